"""Programs in which names matter, built on Spark's own streams and on checkpointed ones statement by statement.

What Spark's analysis refuses has to be refused, what it takes has to have the same names, types and rows, or to be
refused by a message of this library's own.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from tests.generated.named_steps import ROW_STEPS, NamedSteps
from tests.generated.queries import modes_of
from tests.generated.query_checks import explained
from tests.generated.query_rows import BEGIN, STEP, ddl
from tests.generated.two_sides import Query, Side, TwoSides, said

ROWS, GROUPS = KINDS = ("rows", "groups")
A = {"k": "string", "v": "int", "t": "timestamp", "st": "struct<k:string,x:int>", "xs": "array<int>", "x.y": "int"}
B = {"k": "string", "v": "int", "K2": "string", "w": "int", "u": "timestamp", "Größe": "int"}
STATIC = [("a", 21, "A"), ("b", 22, "B"), ("b", 23, None), ("z", 1, "a"), (None, 11, "b"), ("c", None, "c")]
OTHER = [("a", "b", 3), ("b", "b", 4), ("d", None, None)]
FRAMES = ("a", "b", "c", "s", "d")
WRONG, REFUSED, UNTOLD, OTHER_WORDS = "wrong", "refused here", "untold", "other words"


class NamedSide(Side):
    """``steps`` are statements; the frame that they make is ``q``."""

    def start(self) -> Any:
        return self.stream("in", A)

    def other(self) -> Any:
        return self.stream("other", B)

    def frames(self) -> dict[str, Any]:
        a, b = self.start(), self.other()
        static = self.spark.createDataFrame(STATIC, "k string, v int, `K3` string")
        other = self.spark.createDataFrame(OTHER, "K string, `x.y` string, w int")
        return {"F": F, "a": a, "b": b, "c": a.select("k", "v"), "s": static, "d": other, "q": a}

    def done(self, frames: dict[str, Any], statement: str) -> dict[str, Any]:
        """The frames behind it."""
        made = dict(frames)
        exec(statement, made)
        made.pop("__builtins__", None)
        _ = made["q"].schema
        return made

    def built(self, steps: Sequence[str]) -> Any:
        frames = self.frames()
        for statement in steps:
            frames = self.done(frames, statement)
        q = frames["q"]
        return q.toDF(*(f"c{i}" for i in range(len(q.columns))))


_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Finding:
    kind: str
    statements: tuple[str, ...]
    told: str

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.told}", *(f"  {s}" for s in self.statements)])


@dataclass
class Program:
    """``statements`` are those that both take."""

    statements: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def query(self, kind: str) -> Query:
        return Query(tuple(self.statements), "append" if kind == ROWS else "update")


class ProgramMaker:
    """Grows a program on both sides at once."""

    def __init__(self, seed: str, sides: TwoSides) -> None:
        self.chosen, self.sides = random.Random(seed), sides
        self.frames, self.here = sides.plain.frames(), sides.ours.frames()
        self.aliases: list[str] = []
        self.program = Program()

    def made(self, kind: str, steps: int) -> Program:
        for _ in range(steps):
            self._one(ROW_STEPS, "append")
        if kind == GROUPS:
            self._one((NamedSteps.grouped,), "update")
        elif self.chosen.random() < 0.15:
            self._one((NamedSteps.unduplicated,), "append")
        return self.program

    def _one(self, makers: Any, mode: str) -> None:
        for _ in range(8):
            if self._taken(self._statement(self.chosen.choice(makers)), mode):
                return

    def _statement(self, maker: Callable[[NamedSteps], str]) -> str:
        frames = {name: frame for name, frame in self.frames.items() if name != "F"}
        self.steps = NamedSteps(self.chosen, frames, list(self.aliases))
        return maker(self.steps)

    def _taken(self, statement: str, mode: str) -> bool:
        found, frames, here = tried(self.sides, self.frames, self.here, statement, mode)
        if found is not None:
            kind, told = found
            self.program.findings.append(Finding(kind, (*self.program.statements, statement), told))
        if frames is None or here is None or found is not None:
            return False
        if not 0 < len(frames["q"].columns) < 14:
            return False
        self.frames, self.here, self.aliases = frames, here, self.steps.aliases
        self.program.statements.append(statement)
        return True


def tried(sides: TwoSides, frames: Any, here: Any, statement: str, mode: str | None = None) -> tuple[Any, Any, Any]:
    """What differs, if something does, and the frames behind it on both sides. What Spark takes in no output mode, or
    not in ``mode``, is none that a query has: None."""
    theirs, made = outcome(sides.plain, frames, statement), outcome(sides.ours, here, statement)
    if not isinstance(theirs, Exception) and not isinstance(made, Exception) and theirs["q"] is not frames["q"]:
        modes = modes_of(theirs["q"]) if theirs["q"].isStreaming else []
        if not modes or mode not in (None, *modes):
            return None, None, None
        made = checked(sides, made, mode or modes[0])
    return different(theirs, made), *(None if isinstance(one, Exception) else one for one in (theirs, made))


def checked(sides: TwoSides, frames: Any, mode: str) -> Any:
    """``frames``, or what a start of ``q`` would raise."""
    try:
        sides.ours.reader.check(frames["q"], mode, foreachBatch=True)
    except Exception as error:  # noqa: BLE001 - Spark takes it
        return error
    return frames


def outcome(side: Any, frames: Any, statement: str) -> Any:
    try:
        return side.done(frames, statement)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is to say the same
        return error


def different(theirs: Any, ours: Any) -> tuple[str, str] | None:
    if isinstance(theirs, Exception):
        if not isinstance(ours, Exception):
            return WRONG, f"Spark refuses it, here it is taken. {said(theirs)}"
        told = f"Spark says {said(theirs)}\nhere: {said(ours)}"
        same = type(theirs) is type(ours) or isinstance(ours, (InvalidInputError, AnalysisException))
        return None if same or isinstance(theirs, AttributeError) else (OTHER_WORDS, told)
    if isinstance(ours, Exception):
        return (REFUSED if isinstance(ours, InvalidInputError) else UNTOLD), f"Spark takes it, here: {said(ours)}"
    a, b = ([(f.name, f.dataType.simpleString()) for f in frames["q"].schema] for frames in (theirs, ours))
    return None if a == b else (WRONG, f"columns of Spark: {a}\n  here: {b}")


def differences(sides: TwoSides, statements: Sequence[str]) -> Iterator[tuple[str, str] | None]:
    """What each of ``statements`` differs in, up to the first one that does or that is not taken."""
    frames, here = sides.plain.frames(), sides.ours.frames()
    for statement in statements:
        found, frames, here = tried(sides, frames, here, statement)
        yield found
        if found or frames is None or here is None:
            return


def first_difference(sides: TwoSides, statements: Sequence[str]) -> tuple[str, str] | None:
    """What the first of ``statements`` that differs does differ in."""
    return next(filter(None, differences(sides, statements)), None)


def again(sides: TwoSides, statements: Sequence[str]) -> tuple[str, str] | None:
    """What the last of ``statements`` differs in. None, too, where one in front of it is not taken."""
    found = list(differences(sides, statements))
    return found[-1] if len(found) == len(statements) else None


def shortest(sides: TwoSides, finding: Finding) -> Finding:
    for at in range(len(finding.statements) - 2, -1, -1):
        fewer = (*finding.statements[:at], *finding.statements[at + 1 :])
        found = again(sides, fewer)
        if found is not None and found[0] == finding.kind:
            return shortest(sides, Finding(finding.kind, fewer, found[1]))
    return finding


def check_programs(spark: Any, folder: Path, seed: int, count: int) -> list[Finding]:
    """Programs of ``seed``, the last of which aggregates; the others run in one query. What is refused here is
    returned. Raises ``AssertionError`` for what goes another way than in Spark."""
    sides = made_sides(spark, folder / f"names-{seed}", random.Random(seed))
    try:
        kinds = [*[ROWS] * (count - 1), GROUPS]
        programs = [_program(sides, f"{seed}/{number}", kind) for number, kind in enumerate(kinds)]
        findings = [finding for program in programs for finding in program.findings]
        wrong = [shortest(sides, f) for f in findings if f.kind in (WRONG, OTHER_WORDS)]
        assert not wrong, "\n".join([f"programs of {seed}:", *map(str, wrong)])
        _run(sides, [program.query(kind) for program, kind in zip(programs, kinds) if program.statements])
        return [finding for finding in findings if finding.kind in (REFUSED, UNTOLD)]
    finally:
        shutil.rmtree(sides.folder, ignore_errors=True)


def _program(sides: TwoSides, seed: str, kind: str) -> Program:
    maker = ProgramMaker(seed, sides)
    return maker.made(kind, maker.chosen.randint(3, 8))


def _run(sides: TwoSides, queries: list[Query]) -> None:
    rows = [query for query in queries if query.mode == "append"]
    for together in filter(None, [rows, *([query] for query in queries if query.mode != "append")]):
        told = sides.difference(together)
        if told is not None:
            raise AssertionError(f"{told}\n{explained(sides, together)}")


def made_sides(spark: Any, folder: Path, chosen: random.Random) -> TwoSides:
    values = {"k": ["a", "b", "c", None], "K2": ["a", "b", "A", None], "v": [1, 2, 3, 4, None], "w": [3, 4, 5, None]}
    values |= {"x.y": [41, 42, None], "Größe": [51, 4], "xs": [[], [1, None], [61, 62], None]}
    values |= {"st": [{"k": "a", "x": 71}, {"k": "b", "x": None}, None], "t": [BEGIN], "u": [BEGIN + STEP / 4]}
    tables = [[_table(chosen, columns, values, rows) for _ in range(2)] for columns, rows in ((A, 5), (B, 4))]
    return TwoSides(spark, folder, tables, 1, NamedSide)


def _table(chosen: random.Random, columns: dict[str, str], values: dict[str, list[Any]], rows: int) -> pa.Table:
    schema = to_arrow_schema(parse_ddl(ddl(columns)))
    made = [pa.array([chosen.choice(values[f.name]) for _ in range(rows)], f.type) for f in schema]
    return pa.Table.from_arrays(made, schema=schema)


def assert_rows_as_in_spark(lab: Any, programs: Sequence[Sequence[str]]) -> None:
    """Of all ``programs``, each in an output mode that Spark takes it in; those of mode append are in one query."""
    sides = made_sides(lab.spark, lab.folder / f"rows as in Spark {next(_NUMBERS)}", random.Random(3))
    queries = [Query(tuple(statements), modes_of(sides.plain.built(statements))[0]) for statements in programs]
    together = [query for query in queries if query.mode == "append"]
    for some in filter(None, [together, *([query] for query in queries if query.mode != "append")]):
        told = sides.difference(some)
        assert told is None, f"{told}\n{explained(sides, some)}"


def assert_as_in_spark(lab: Any, programs: Sequence[Sequence[str]], run: Sequence[Sequence[str]] = ()) -> TwoSides:
    """All ``programs`` are taken as Spark takes them, and the rows of those to ``run`` are Spark's, in one query."""
    sides = made_sides(lab.spark, lab.folder / f"as in Spark {next(_NUMBERS)}", random.Random(1))
    told = [(statements, first_difference(sides, statements)) for statements in programs]
    differ = [(statements, found) for statements, found in told if found is not None]
    assert not differ, differ
    assert not run or sides.difference([Query(tuple(statements)) for statements in run]) is None
    return sides
