"""An operator with families, task by task: its tables, restarts, restores, storage that fails. Without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark import TaskContext

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import TopologyError
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.aligner import AlignerState
from spark_ckpt.protocol.records import Topology
from spark_ckpt.runtime.operator._subtask_call import SubtaskCall
from spark_ckpt.runtime.operator._subtask_meta import SubtaskMeta, known_states
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.snapshot import SnapshotStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched
from spark_ckpt.state.lsm.layout import FamilyLayout, StateLayout
from spark_ckpt.storage.state_table import StateTable, TableCommit
from spark_ckpt.types import CTL, KEY_HASH, TAG, make_tag

KEY = pa.schema([("k", pa.int64())])
INPUT = KEY.append(pa.field("v", pa.string()))
OUTPUT = pa.schema([*INPUT, ("n", pa.int64()), ("gone", pa.bool_())])
GROUPS, KEEP_MS = 8, 20
TABLES = {"": "visits", "seen": "visits.seen", "log": "visits.log"}


class Visits(StateFunction):
    """Counts the rows of each value (family ``seen``, which forgets), of each key, and keeps them all (``log``). The
    value ``end`` ends its key."""

    key_schema = KEY
    state_schema = pa.schema([("rows", pa.int64())])
    output_schema = OUTPUT
    timeout = "ProcessingTimeTimeout"
    families = {  # noqa: RUF012
        "seen": FamilyLayout(KEY, pa.schema([("v", pa.string())]), pa.schema([("n", pa.int64())]), True),
        "log": FamilyLayout(KEY, pa.schema([("i", pa.int64())]), pa.schema([("v", pa.string())])),
    }

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        keys, none = len(touched.keys), np.zeros(len(touched.keys), bool)
        if touched.timed_out.any():
            gone = self._expired(ctx, touched)
            return Changed(gone, touched.state, none, none, touched.timeout_ms)
        key, v = touched.key_index, touched.rows.select(["v"])
        seen = ctx.families["seen"]
        found = seen.get(key, v)
        n = found.state["n"].fill_null(0).to_numpy() + np.bincount(found.place, minlength=len(found))
        seen.write(found, pa.table({"n": n}), timeout_ms=np.full(len(found), ctx.processing_time_ms + KEEP_MS))
        rows = touched.state["rows"].fill_null(0).to_numpy()
        rank = np.array([np.count_nonzero(key[:i] == k) for i, k in enumerate(key)], np.int64)
        log = ctx.families["log"]
        fresh = log.get(key, pa.table({"i": rows[key] + rank}))
        assert not fresh.exists.any()
        at = np.empty(len(fresh), np.int64)
        at[fresh.place] = np.arange(len(key))
        log.write(fresh, v.take(pa.array(at)))
        output = pa.table([touched.keys["k"].take(pa.array(key)), v["v"], pa.array(n[found.place]),
                           pa.array([False] * len(key))], schema=OUTPUT)  # fmt: skip
        state = pa.table({"rows": rows + np.bincount(key, minlength=keys)})
        ends = np.bincount(key[pc.equal(v["v"], "end").to_numpy()], minlength=keys) > 0
        return Changed(output, state, ~ends, ends, np.full(keys, NO_TIMEOUT))

    def _expired(self, ctx: CallContext, touched: Touched) -> pa.Table:
        assert len(touched.rows) == 0
        assert touched.timed_out.all()
        due = ctx.families["seen"].due()
        assert set(due.key_index.tolist()) == set(range(len(touched.keys)))
        ctx.families["seen"].remove(due)
        keys = touched.keys["k"].take(pa.array(due.key_index))
        return pa.table([keys, due.sub_keys["v"], due.state["n"], pa.array([True] * len(due))], schema=OUTPUT)


class Operator:
    """All tasks of the operator, batch after batch, and what its three tables must hold."""

    def __init__(self, folder: Path, partitions: int = 2, **settings: str) -> None:
        self.folder, self.settings = folder, settings
        self.epoch, self.batch, self.now_ms = 1, 0, 1_000
        self.model: dict[str, dict[Any, Any]] = {"": {}, "seen": {}, "log": {}}
        self.open(partitions)
        self.tables = {t: StateTable(self.spec.url_of(t), t) for t in TABLES.values()}
        for family, table in self.tables.items():
            table.create_if_absent(self.spec.layout_of(_family(family)).table_schema, "")
        self.base: dict[str, TableCommit] = {}
        self.flushed: list[ev.Flushed] = []
        self.done: tuple[dict[str, dict[int, ev.GroupManifest]], Any, int] | None = None

    def open(self, partitions: int) -> None:
        """Empty tasks, so many as ``partitions``."""
        options = {"dir": str(self.folder), "cache.dir": str(self.folder / "cache"), "retry.timeout": "0"}
        operators: dict[str, Any] = {table: {} for table in TABLES.values()}
        run = RunSpec(
            "job", JobConfig.from_options({**options, **self.settings}), 4, 1, self.epoch, None,
            None, Topology(GROUPS, GROUPS, ("in",), operators, ("out",)), partitions,
        )  # fmt: skip
        self.spec = OperatorSpec(run, "visits", 1, Visits(), INPUT.append(pa.field(KEY_HASH, pa.int64())), (), ())
        self.stored: dict[int, Any] = {}

    def send(self, rows: list[tuple[int, str]], barrier: bool = False, *more: ev.Event) -> list[tuple[Any, ...]]:
        """A batch; returns what came out. Its checkpoint, if everybody acknowledged it, is committed to the tables."""
        events = [*([ev.Barrier(self.epoch, GROUPS, 5)] if barrier else []), *more]
        batches = [_batch(rows, self.epoch, None), *(_batch([(0, "")], self.epoch, ev.encode(e)) for e in events)]
        packed = [row for b in PackStage(self.spec, True)(iter(batches)) for row in b.to_pylist()]
        out = []
        for subtask in range(self.spec.run.subtasks.count):
            call = SubtaskCall(self.spec, subtask, self.stored.get(subtask), self.now_ms, self.batch)
            for row in packed:
                if self.spec.run.subtasks.subtask_of_route[row["route"]] == subtask:
                    call.take(row["head"], row["body"])
            call.run()
            self.stored[subtask] = call.sealed()
            out += call.out
        self.batch, self.now_ms = self.batch + 1, self.now_ms + 10
        return self._heard(out, barrier)

    def _heard(self, out: list[tuple[int, int, bytes]], barrier: bool) -> list[tuple[Any, ...]]:
        kind, epoch, body = zip(*out, strict=True) if out else ([], [], [])
        columns = [pa.array(kind, pa.int32()), pa.array(epoch, pa.int64()), pa.array(body, pa.binary())]
        produced = pa.RecordBatch.from_arrays(columns, ["kind", "epoch", "body"])
        rows = [row for b in SnapshotStage(self.spec)(iter([produced])) for row in b.to_pylist()]
        self.said = [ev.decode(row[CTL]) for row in rows if row[CTL] is not None]
        self.flushed += [e for e in self.said if isinstance(e, ev.Flushed)]
        self.acks = {e.uid: e for e in self.said if isinstance(e, ev.OperatorAck)}
        if set(self.acks) == set(TABLES.values()):
            self._commit(self.epoch)
        self.epoch += barrier
        return sorted(tuple(row[f] for f in OUTPUT.names) for row in rows if row[CTL] is None)

    def _commit(self, checkpoint: int) -> None:
        for uid, table in self.tables.items():
            groups = dict(self.acks[uid].groups)
            assert sorted(groups) == list(range(GROUPS))
            mine = [e for e in self.flushed if e.uid == uid]
            base = self.base[uid].content if uid in self.base else None
            self.base[uid] = table.commit("job/" + uid, checkpoint, base, mine, groups)
        self.flushed = []
        copy = {family: dict(rows) for family, rows in self.model.items()}
        self.done = {uid: dict(self.acks[uid].groups) for uid in self.tables}, copy, checkpoint

    def restore(self, partitions: int) -> None:
        """The last checkpoint in other tasks; what came behind it is forgotten."""
        assert self.done is not None
        groups, model, checkpoint = self.done
        self.model = {family: dict(rows) for family, rows in model.items()}
        self.epoch, self.flushed = checkpoint + 1, []
        self.open(partitions)
        # Twice, as a source brings them that reaches the operator along two branches.
        self.check([], False, *(ev.Restore(uid, checkpoint, groups[uid]) for uid in [*groups, *groups]))

    def check(self, rows: list[tuple[int, str]], barrier: bool = False, *more: ev.Event) -> None:
        expected = self.expect(rows)
        assert self.send(rows, barrier, *more) == expected

    def expect(self, rows: list[tuple[int, str]]) -> list[tuple[Any, ...]]:
        """What :meth:`send` must give, by the plain Python of :class:`Visits`."""
        own, seen, log = (self.model[family] for family in TABLES)
        for k, v in rows:
            seen[k, v] = seen.get((k, v), (0, 0))[0] + 1, self.now_ms + KEEP_MS
            log[k, own.get(k, 0)] = v
            own[k] = own.get(k, 0) + 1
        out = [(k, v, seen[k, v][0], False) for k, v in rows]
        for k in {k for k, v in rows if v == "end"}:
            del own[k]
            for family in (seen, log):
                for row in [row for row in family if row[0] == k]:
                    del family[row]
        late = [row for row, (_, due_ms) in seen.items() if due_ms < self.now_ms]
        return sorted(out + [(k, v, seen.pop((k, v))[0], True) for k, v in late])

    def read(self) -> dict[str, dict[Any, Any]]:
        """The three tables at the versions of the last checkpoint, as any Delta reader has them."""
        own, seen, log = (self._read(table) for table in TABLES.values())
        return {
            "": {r["k"]: r["rows"] for r in own},
            "seen": {(r["k"], r["v"]): (r["n"], r["_timeout_ms"]) for r in seen},
            "log": {(r["k"], r["i"]): r["v"] for r in log},
        }

    def _read(self, table: str) -> list[dict[str, Any]]:
        delta = DeltaTable(self.tables[table].url, version=self.base[table].version)
        rows = QueryBuilder().register("t", delta).execute("select * from t").read_all()
        return pa.table(rows).to_pylist()  # type: ignore[no-any-return]

    def block(self, table: str) -> Path:
        """Nothing can be written into the table's folder any more, not even by root."""
        blocked = Path(self.spec.url_of(table)) / ".tmp"
        if blocked.is_dir():
            blocked.rmdir()
        blocked.touch()
        return blocked


def _family(table: str) -> str:
    return next(family for family, name in TABLES.items() if name == table)


def _batch(rows: list[tuple[int, str]], epoch: int, event: bytes | None) -> pa.RecordBatch:
    n = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([k for k, _ in rows], pa.int64()),
            pa.array([v for _, v in rows], pa.string()),
            pa.array([make_tag(epoch)] * n, pa.int64()),
            pa.array([event] * n, pa.binary()),
        ],
        names=["k", "v", TAG, CTL],
    )


@pytest.fixture(autouse=True)
def _task() -> Iterator[None]:
    TaskContext._getOrCreate()._partitionId = 0
    yield
    TaskContext._setTaskContext(None)


def some_rows(rng: random.Random) -> list[tuple[int, str]]:
    return [(rng.randrange(6), rng.choice([*"abcde", "end"])) for _ in range(rng.randrange(8))]


@pytest.mark.parametrize("seed", range(3))
def test_three_tables_are_one_state_through_checkpoints_and_restores(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    operator = Operator(tmp_path, 1 + seed, **({"memtable.maxBytes": "200"} if seed else {}))
    for step in range(16):
        barrier = step % 5 == 4 or rng.random() < 0.3
        operator.check(some_rows(rng), barrier)
        if barrier:
            assert operator.read() == operator.model
            assert {uid: ack.stats["keys"] for uid, ack in operator.acks.items()} == {
                table: len(operator.model[family]) for family, table in TABLES.items()
            }
        if operator.done is not None and rng.random() < 0.2:
            operator.restore(rng.choice([1, 2, 3, 8]))


@pytest.mark.parametrize("table", TABLES.values())
def test_a_table_that_cannot_be_written_declines_the_checkpoint_and_the_next_one_has_it_all(
    tmp_path: Path, table: str
) -> None:
    operator = Operator(tmp_path)
    for rows in ([(1, "a"), (2, "b")], [(1, "a"), (3, "c"), (2, "d")]):
        operator.check(rows, True)
    blocked = operator.block(table)
    operator.check([(1, "e"), (1, "a"), (3, "c")], True)
    (decline,) = [e for e in operator.said if isinstance(e, ev.Decline)]
    assert (decline.uid, decline.checkpoint, decline.failed) == ("visits", 3, True)
    assert operator.done is not None
    assert operator.done[2] == 2
    blocked.unlink()
    operator.check([(4, "a"), (1, "e")], True)
    assert operator.read() == operator.model


def test_a_replay_adopts_what_its_checkpoint_recorded_of_every_table(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    rows = [(1, "a"), (2, "b"), (1, "b")]
    operator.check(rows)
    before = dict(operator.stored), operator.batch, operator.epoch, operator.now_ms
    more = [(1, "a"), (5, "c")]
    expected = operator.expect(more)
    assert operator.send(more, True) == expected
    acks = operator.acks
    operator.stored, operator.batch, operator.epoch, operator.now_ms = before
    blocked = [operator.block(table) for table in TABLES.values()]
    adopt = [ev.Restore(uid, 1, ack.groups, adopt=True) for uid, ack in acks.items()]
    assert operator.send(more, True, *adopt) == expected
    assert {uid: ack.groups for uid, ack in operator.acks.items()} == {uid: ack.groups for uid, ack in acks.items()}
    for file in blocked:
        file.unlink()
    operator.check(rows, True)
    assert operator.read() == operator.model


def test_attempts_at_one_call_say_and_write_the_same(tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.tables = {}  # nobody commits
    operator.send([(1, "a"), (2, "b")], True)
    before = dict(operator.stored), operator.batch, operator.epoch, operator.now_ms
    said = []
    for _ in range(2):
        operator.stored, operator.batch, operator.epoch, operator.now_ms = dict(before[0]), *before[1:]
        operator.send([(2, "b"), (3, "c")], True)
        events = [e for e in operator.said if not isinstance(e, ev.OperatorAck)]
        said.append((events, {u: a.groups for u, a in operator.acks.items()}, operator.stored))
    assert said[0] == said[1]
    assert "not written yet" not in repr(said)


def test_an_operator_without_families_keeps_what_it_always_kept() -> None:
    """Jobs of earlier versions go on, and theirs with what is written here."""
    groups = {"0": {"runs": [], "keys": 0, "watermarks_us": {}}}
    old = {
        "aligner": AlignerState(4).to_json(), "watermarks": {}, "late_us": 0, "later_watermarks": {},
        "adopt": [3, groups], "restored": 7, "held": {},
    }  # fmt: skip
    again = SubtaskMeta.from_json(json.loads(json.dumps({**old, "keyed": {}}))).to_json()
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(old))
    assert known_states({"keyed": "k"}, b"memtable", [""]) == {"": ("k", b"memtable")}
    assert known_states(None, None, ["", "f"]) == {"": (None, None), "f": (None, None)}


def test_names_of_tables_are_told_apart_when_the_query_is_built() -> None:
    def node(uid: str, *families: str) -> OperatorNode:
        layout = Visits.families["log"]
        state = StateLayout(KEY, pa.schema([]))
        return OperatorNode(uid, state, (), "NoTimeout", {}, families=dict.fromkeys(families, layout))

    assert list(node("a", "x", "y").tables("a")) == ["a", "a.x", "a.y"]
    lineage = Lineage().through(node("a", "x"))
    with pytest.raises(TopologyError, match=r"two keyed operators have the uid 'a\.x'"):
        lineage.through(node("a.x"))
    with pytest.raises(TopologyError, match=r"both sides .* \['a'\]"):
        lineage.union(Lineage().through(node("a.x")))
    with pytest.raises(TopologyError, match=r"state table 'a\.x/y' has the character /"):
        Lineage().through(node("a", "x/y"))
