"""Random jobs that change: operators, what changes in each and in the job, partitions, and where the job goes on.

A cell runs a query, and the changed one twice, and compares every key that came out with the models. Where a start is
refused, what its message says is written, and told to the models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import CkptError
from spark_ckpt.sinks import memory
from tests.spark.changing_models import CLOSING, KEYS, Field, Model, Out, Row, Shape
from tests.spark.changing_queries import OPERATORS, SCHEMA, together
from tests.spark.conftest import DEADLINE_S, Input

FOLDED = ("totals", "windows", "sessions", "function", "processor", "chain")
WITH_FIELDS = (*FOLDED, "top", "pairs")
NOT_VARIABLES = tuple(name for name in WITH_FIELDS if name != "processor")
AGGREGATES = ("totals", "windows", "sessions", "chain")
LESS = Field("less", "sum", "w")


@dataclass(frozen=True)
class Change:
    """Of the operators ``of``. ``before`` and ``after`` make the shapes of the two queries. ``way``: what is written
    beside the query ahead of any refusal, and told to the model."""

    of: tuple[str, ...]
    after: Callable[[Shape], Shape] = lambda shape: shape
    before: Callable[[Shape], Shape] = lambda shape: shape
    refused: bool | None = False
    """None: either."""
    way: Callable[[Any, Shape, Model], None] | None = None


def _fields(change: Callable[[tuple[Field, ...]], tuple[Field, ...]]) -> Callable[[Shape], Shape]:
    return lambda shape: replace(shape, fields=change(shape.fields))


def _with_last(**values: str) -> Callable[[Shape], Shape]:
    return _fields(lambda fields: (*fields[:-1], fields[-1]._replace(**values)))


def _moved(ckpt: Any, shape: Shape, model: Model) -> None:
    old = shape.uid.removesuffix("2")
    ckpt.moved(old, shape.uid)
    if shape.kind == "chain":
        ckpt.moved(f"{old}-once", f"{shape.uid}-once")


def _by(ckpt: Any, shape: Shape, model: Model) -> None:
    """Keys are merged: counts and sums are added up."""
    computed = KEYS[shape.by][0]

    def merged(old: Any) -> Any:
        kinds = {"n": F.sum, "count": F.sum, "total": F.sum, "sum": F.sum, "most": F.max, "max": F.max}
        values = [c for c in old.columns if c.split("_")[0] in kinds]
        keys = [F.expr(computed).alias(c) if c == shape.key else F.col(c) for c in old.columns if c not in values]
        if not values:
            return old.select(*keys).distinct()
        found = [kinds[c.split("_")[0]](c).cast(old.schema[c].dataType).alias(c) for c in values]
        return old.groupBy(*keys).agg(*found)

    ckpt.migrate(shape.uid).by(merged)
    model.regrouped(shape.by)


def _constant(ckpt: Any, shape: Shape, model: Model) -> None:
    ckpt.migrate(shape.uid).add(shape.fields[-1].alias, 1000)
    model.answer("add", shape.fields[-1].alias, 1000)


def _as_processor(ckpt: Any, shape: Shape, model: Model) -> None:
    """Each variable is made of a column of the aggregates' state."""

    def variable(of: Field) -> Any:
        def made(old: Any) -> Any:
            column = next(c for c in old.columns if c.split("_")[0] in (of.kind, of.alias))
            return old.select(shape.key, F.col(column).cast(of.type).alias("x"))

        return made

    for of in shape.fields:
        ckpt.migrate(f"{shape.uid}.{of.alias}").by(variable(of), of=shape.name, name=f"as {of.alias}")
        model.answer("rename", model.name(of), of.alias)
    model.named = False


ALL = tuple(OPERATORS)
MERGED = ("totals", "windows", "once", "function")
CHANGES = {
    "nothing": Change(ALL),
    "another uid": Change(ALL, lambda s: replace(s, uid=f"{s.uid}2"), refused=True),
    "a moved uid": Change(ALL, lambda s: replace(s, uid=f"{s.uid}2"), way=_moved),
    "a key's name": Change(ALL, lambda s: replace(s, key="client"), refused=True),
    "a key's type": Change(ALL, lambda s: replace(s, by="number"), refused=True),
    "merged keys": Change(MERGED, lambda s: replace(s, by="letter"), way=_by),
    "merged keys of another type": Change(MERGED, lambda s: replace(s, by="number"), way=_by),
    "a field comes": Change(WITH_FIELDS, before=_fields(lambda f: f[:-1])),
    "a field goes": Change(NOT_VARIABLES, _fields(lambda f: f[:-1])),
    "a variable goes": Change(("processor",), _fields(lambda f: f[:-1]), refused=True),
    "fields change places": Change(WITH_FIELDS, _fields(lambda f: f[::-1])),
    "a field may be another": Change(AGGREGATES, _with_last(of="w"), refused=True),
    "a field has another name": Change(
        ("function", "processor", "top", "pairs"), _with_last(alias="less"), refused=True
    ),
    "a wider field": Change(WITH_FIELDS, _with_last(type="bigint")),
    "a narrower field": Change(WITH_FIELDS, before=_with_last(type="bigint"), refused=True),
    "a field as text": Change(("function",), _with_last(type="string"), refused=True),
    "a field with a constant": Change(("function",), _fields(lambda f: (*f, LESS)), way=_constant),
    "other windows": Change(("windows",), lambda s: replace(s, minutes=20), refused=True),
    "another gap": Change(("sessions",), lambda s: replace(s, minutes=20), refused=None),
    "fewer first rows": Change(("top",), lambda s: replace(s, first=1)),
    "more first rows": Change(("top",), lambda s: replace(s, first=3), refused=True),
    "the first of two goes": Change(("chain",), lambda s: replace(s, once=False), refused=True),
    "the first of two comes": Change(("chain",), before=lambda s: replace(s, once=False)),
    "a processor": Change(("totals",), lambda s: replace(s, uid="totals2", kind="processor"), way=_as_processor),
    "it goes": Change(ALL, lambda s: replace(s, there=False), refused=True),
    "it comes": Change(ALL, before=lambda s: replace(s, there=False)),
}

JOBS = {
    "nothing": False, "sources in another order": False, "a source comes": False, "a source goes": True,
    "another uid of a source": True, "more key groups": True, "fewer key groups": True, "a filter": False,
    "a sink comes": False, "latest": False, "earliest": False, "update": False,
}  # fmt: skip
"""What changes in the job, and whether it is refused."""
PARTITIONS, PLACES = {"up": "3", "same": "2", "down": "1"}, ("same", "empty", "savepoint")


@dataclass(frozen=True)
class Cell:
    operators: dict[str, str]
    """Each with the name of its change."""
    job: str
    partitions: str
    place: str
    mode: str
    seed: int


def random_cell(seed: int) -> Cell:
    chance = Random(f"changes {seed}")
    mode = chance.choice(["update", "append"])
    able = [name for name in OPERATORS if mode in OPERATORS[name].modes]
    names = chance.sample(able, chance.choice([1, 2, 3]))
    job = chance.choice(["nothing", chance.choice(list(JOBS))])
    if job == "update":
        mode, names = "append", [name for name in names if len(OPERATORS[name].modes) == 2] or ["windows"]
    operators = {n: chance.choice([c for c, change in CHANGES.items() if n in change.of]) for n in names}
    if all(not CHANGES[c].after(_base(n)).there for n, c in operators.items()) or all(
        not _shape(n, c).there for n, c in operators.items()
    ):
        operators = {"once": "nothing", **operators}
    return Cell(operators, job, chance.choice(list(PARTITIONS)), chance.choice(PLACES), mode, seed)


def _base(name: str) -> Shape:
    return Shape(name, name, name, OPERATORS[name].fields)


def _shape(name: str, change: str) -> Shape:
    return CHANGES[change].before(_base(name))


def covering(count: int, of: int = 600) -> list[Cell]:
    """That many of the first cells, which have as many pairs as may be of what a cell is made of."""
    known, found = set[tuple[str, ...]](), list[Cell]()
    cells = {seed: _pairs(random_cell(seed)) for seed in range(of)}
    for _ in range(count):
        best = max(cells, key=lambda seed: len(cells[seed] - known))
        known |= cells.pop(best)
        found.append(random_cell(best))
    return found


def _pairs(cell: Cell) -> set[tuple[str, ...]]:
    about = [f"in {cell.partitions}", f"at {cell.place}", f"job: {cell.job}", f"mode {cell.mode}"]
    changes = [f"{name}: {change}" for name, change in cell.operators.items()]
    return {(one, other) for one in (*about, *changes) for other in about if one != other}


class Told:
    """In place of a session, for the lines that a message has: tells the models."""

    def __init__(self, run: Run) -> None:
        self.run, self.uid = run, ""

    def migrate(self, uid: str) -> Told:
        self.uid = uid
        return self

    def moved(self, old: str, new: str) -> None:
        """Of a source, an operator or a variable of one."""
        owner = new.partition(".")[0]
        if "." in new:
            self.run.model(owner).answer("rename", old.partition(".")[2], new.partition(".")[2])

    def rescale(self) -> None: ...

    def __getattr__(self, method: str) -> Callable[..., Told]:
        def answered(*arguments: Any) -> Told:
            owner, _, part = self.uid.partition(".")
            if method == "begin_empty" and part and owner.startswith("processor"):
                self.run.model(owner).answer(method, part)  # a variable, whatever its column is called
            elif owner.endswith("-once"):
                self.run.model(owner.removesuffix("-once")).front.answer(method, *arguments)
            else:
                self.run.model(owner).answer(method, *arguments)
            return self

        return answered


@dataclass
class Run:
    """One cell, in a folder of its own."""

    spark: Any
    folder: Path
    cell: Cell
    phase: int = 1
    refusals: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    expected: dict[tuple[str, str], Out] = field(default_factory=dict)
    second: dict[tuple[str, str], Out] = field(default_factory=dict)
    job: str = "job"
    again: list[Row] = field(default_factory=list)
    """What is read once more."""

    def __post_init__(self) -> None:
        self.spark.conf.set("spark.ckpt.dir", str(self.folder / "jobs"))
        self.ckpt = spark_ckpt.enable(self.spark)
        self.chance = Random(f"rows {self.cell.seed}")
        self.inputs = {name: Input(self.folder / name, SCHEMA) for name in ("a", "b", "c")}
        self.fed: dict[str, list[Row]] = {name: [] for name in self.inputs}
        self.models = {name: OPERATORS[name].model() for name in self.cell.operators}
        self.shapes = {name: _shape(name, change) for name, change in self.cell.operators.items()}
        self.count = 0

    def model(self, uid: str) -> Model:
        return self.models[uid.removesuffix("2")]

    # -- rows --------------------------------------------------------------------------------------------------

    def add(self, name: str, rows: int, keys: list[str | None]) -> list[Row]:
        made = []
        for _ in range(rows):
            self.count += 1
            k, v = self.chance.choice(keys), self.chance.randrange(12)
            made.append(Row(k, v, 3 * v + 1, self.count, self.phase, self.chance.randrange(3600)))
        return self.put(name, made)

    def put(self, name: str, rows: list[Row]) -> list[Row]:
        base = datetime(1970, 1, 1, tzinfo=timezone.utc)
        self.inputs[name].add(*(row._replace(at=base + timedelta(seconds=row.at)) for row in rows))
        self.fed[name] += rows
        return rows

    def news(self) -> list[Row]:
        """What the query is to read in this phase."""
        few = ["a1", "b1", None, f"c{self.phase}"]
        every = ["a1", "a2", "b1", "b2", "d1", None, f"c{self.phase}"]
        keys = few if self.phase == 2 else every
        rows = self.add("a", 14, keys) + self.add("a", 5, keys)
        if self.phase == 2 and self.cell.job in ("another uid of a source", "earliest"):
            for _ in range(2):  # a batch has one file of each source: those of "b" come behind what is read again
                self.inputs["b"].add()
        rows += self.add("b", 9, keys)
        if self.phase > 1:
            rows += self.add("c", 6, keys) if self.cell.job == "a source comes" else []
            if self.cell.job == "a source goes":
                rows = [row for row in rows if row not in self.fed["b"]]
            if self.cell.job == "a filter":
                rows = [row for row in rows if row.v % 5]
        if self.phase == 2 and self.cell.job in ("latest", "earliest"):
            of_b = [row for row in rows if row in self.fed["b"]]
            rows = of_b if self.cell.job == "latest" else [*self.fed["a"], *of_b]
        return rows

    # -- queries -------------------------------------------------------------------------------------------------

    def stream(self) -> Any:
        cell, now = self.cell.job, self.phase > 1
        uids = {"a": "a2" if now and cell == "another uid of a source" else "a", "b": "b"}
        if now and cell == "a source comes":
            uids = {"c": "c", **uids}
        if now and cell == "a source goes":
            del uids["b"]
        streams = [self.inputs[name].stream(self.ckpt, uid=uid) for name, uid in uids.items()]
        if now and cell == "sources in another order":
            streams.reverse()
        rows = streams[0]
        for other in streams[1:]:
            rows = rows.union(other)
        return rows.where("v % 5 <> 0") if now and cell == "a filter" else rows

    def start(self) -> None:
        mode = "update" if self.phase > 1 and self.cell.job == "update" else self.cell.mode
        df = together(self.stream(), self.shapes, mode)
        writer = df.writeStream.format("memory").option("path", f"{self.folder}/sink-{self.job}").queryName("job")
        writer = writer.option("mergeKeys", "kind,key").option("changeColumn", "op").outputMode(mode)
        if self.phase > 1 and self.cell.job == "a sink comes":
            writer = writer.alsoTo("memory", path=f"{self.folder}/second", mergeKeys="kind,key", changeColumn="op")
        query = writer.options(**self.options).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"

    def run(self) -> None:
        """The start, and what its refusals say."""
        for _ in range(9):
            try:
                self.start()
            except CkptError as error:
                if self.phase != 2:
                    raise
                self.refusals.append(str(error))
                self.follow(str(error))
            else:
                return
        raise AssertionError("refused again and again: " + "\n".join(self.refusals))

    def follow(self, message: str) -> None:
        questions = re.findall(r"write ((?:`ckpt\.[^`]*`(?: or )?)+)", message)
        held = re.search(r"holds state of \[([^]]*)\]", message)
        if held and (not questions or self.chance.random() < 0.5):
            self.options["spark.ckpt.allowNonRestoredState"] = "true"
            for uid in re.findall(r"'([^']+)'", held[1]):
                self.dropped(uid)
        elif "maxParallelism changed" in message and (self.cell_changes() or self.chance.random() < 0.3):
            self.options["spark.ckpt.maxParallelism"] = re.search(r"maxParallelism=(\d+)", message)[1]
        else:
            assert questions, f"no line to write: {message}"
            answered = set[str]()
            for question in questions:
                line = self.chance.choice(re.findall(r"`(ckpt\.[^`]*)`", question))
                table = line.split("'")[1] if "'" in line else ""
                if "." in table and table.partition(".")[0] in answered:
                    continue  # what was said of the operator counts for its other tables; else it is asked again
                answered.add(table)
                exec(line, {"ckpt": self.ckpt})
                exec(line, {"ckpt": Told(self)})

    def dropped(self, uid: str) -> None:
        owner = uid.partition(".")[0].removesuffix("-once")
        if owner not in self.models:
            self.again += [row for row in self.fed["a"] if row.p == 1 and uid == "a"]
            return  # a source
        if uid.partition(".")[0].endswith("-once"):
            self.models[owner].front.answer("begin_empty")
        elif "." in uid and self.cell.operators[owner] != "another uid":
            return  # a variable
        else:
            self.models[owner].answer("begin_empty")

    def cell_changes(self) -> bool:
        return any(change != "nothing" for change in self.cell.operators.values())

    # -- phases --------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """What is changed in phase 2."""
        self.shapes = {name: CHANGES[change].after(_base(name)) for name, change in self.cell.operators.items()}
        for name, change in self.cell.operators.items():
            if CHANGES[change].way is not None:
                CHANGES[change].way(self.ckpt, self.shapes[name], self.models[name])
        groups = {"more key groups": "7", "fewer key groups": "3"}.get(self.cell.job)
        if groups:
            self.options["spark.ckpt.maxParallelism"] = groups
        if self.cell.job in ("latest", "earliest"):
            self.options["startingFrom"] = f'{{"a": "{self.cell.job}"}}'
        self.spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS[self.cell.partitions])
        if self.cell.place == "empty":
            self.options["checkpointLocation"] = f"{self.folder}/elsewhere"
        if self.cell.place == "savepoint":
            self.taken()

    def taken(self) -> None:
        done = spark_ckpt.job(f"{self.folder}/jobs", "job")
        done.savepoint(f"{self.folder}/savepoint", checkpoint=done.completed()[-1].checkpoint)
        self.job, self.expected = "forked", {}
        self.options |= {"job": "forked", "restore": f"{self.folder}/savepoint"}
        self.options["checkpointLocation"] = f"{self.folder}/elsewhere"

    def feed(self, rows: list[Row]) -> None:
        for name, shape in self.shapes.items():
            if shape.there:
                news = self.models[name].feed(shape, rows)
                if name not in ("windows", "sessions") or not self.appends():
                    self.told({(name, key): value for key, value in news.items()})

    def appends(self) -> bool:
        return self.cell.mode == "append" and not (self.phase > 1 and self.cell.job == "update")

    def told(self, news: Mapping[tuple[str, str], Out]) -> None:
        self.expected |= news
        if self.phase > 1:
            self.second |= news

    def closing(self) -> None:
        self.count += 1
        row = Row("zz", 1, 4, self.count, self.phase, CLOSING)
        self.put("a", [row])
        if self.cell.mode == "append":  # what waited for its end comes at it in mode update, too
            for name, shape in self.shapes.items():
                if shape.there:
                    self.told({(name, key): v for key, v in self.models[name].ended(shape).items()})
        self.feed([row])

    def compared(self) -> str:
        """What is wrong, or nothing."""
        wrong = _differs(self.expected, f"{self.folder}/sink-{self.job}")
        if self.phase > 1 and self.cell.job == "a sink comes":
            wrong += _differs(self.second, f"{self.folder}/second")
        return f"phase {self.phase}: {wrong}" if wrong else ""


def _differs(expected: Mapping[tuple[str, str], Out], sink: str) -> str:
    found = {(r["kind"], r["key"]): r["value"] for r in memory.read(sink).to_pylist()}
    both = {k: (expected.get(k), found.get(k)) for k in {*expected, *found}}
    wrong = {k: (e, f) for k, (e, f) in both.items() if (f not in e if isinstance(e, frozenset) else f != e)}
    return f"(expected, found): {wrong}" if wrong else ""


def tried(spark: Any, folder: Path, cell: Cell) -> tuple[str, list[str]]:
    """What is wrong with it, and what was refused on the way."""
    folder.mkdir(parents=True)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    run = Run(spark, folder, cell, options={"checkpointLocation": f"{folder}/given"})
    for run.phase in (1, 2, 3):
        rows = run.news()
        if run.phase == 2:
            run.changed()
        if run.phase == 2:
            run.run()
            run.feed([*run.again, *rows])
        else:
            run.feed(rows)
            if run.phase == 3:
                run.closing()
            run.run()
        wrong = run.compared()
        if wrong:
            return wrong, run.refusals
    return _refused_as_told(cell, run.refusals), run.refusals


def _refused_as_told(cell: Cell, refusals: list[str]) -> str:
    told = [JOBS[cell.job], *(CHANGES[change].refused for change in cell.operators.values())]
    if None not in told and any(told) != bool(refusals):
        return f"expected {'a refusal' if any(told) else 'no refusal'}, found {refusals}"
    return ""
