"""Runs chains as streams and as batches, into every sink, and compares cell by cell.

A query costs seconds to start, whatever it does. So many chains run in one query: each gets the columns of its result
into columns that all chains share, by type, and a union of them is written. Others run alone, with their own columns.
"""

from __future__ import annotations

import collections
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import spark_ckpt
from spark_ckpt.testing.sink_harness import SinkTarget
from tests.generated.chains import APPEND, MERGE, Chain
from tests.generated.expressions import quoted
from tests.generated.operations import applied
from tests.generated.values import SCHEMA, write_batches
from tests.sinks.test_sink_conformance import DeltaTarget, FilesTarget, MemoryTarget, SqlTarget

DEADLINE_S = 300.0

Rows = collections.Counter[str]


@dataclass(frozen=True)
class Difference:
    """Cells that a sink holds and the batch has not, or the other way round, of one chain."""

    chain: Chain
    sink: str
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.chain!r}", f"  into {self.sink}; columns {self.chain.columns}"]
        lines += [f"  expected, not found: {row[:600]}" for row in self.missing[:3]]
        lines += [f"  found, not expected: {row[:600]}" for row in self.extra[:3]]
        return "\n".join(lines)


class Lab:
    """One Spark session and one folder for any number of runs."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self._runs = 0

    def bundle(
        self, chains: Sequence[Chain], rows: pa.Table, *, batches: int = 2, chaining: bool = True
    ) -> list[Difference]:
        """All ``chains`` in one query, over ``rows``; what came out wrong."""
        return self._run(lambda df: together(df, chains), chains, rows, batches, chaining, True)

    def alone(self, chain: Chain, rows: pa.Table, *, batches: int = 2, chaining: bool = True) -> list[Difference]:
        """One chain with the columns that it has."""
        return self._run(lambda df: applied(chain.operations, df), [chain], rows, batches, chaining, False)

    def stream(self, files: Path) -> Any:
        """A checkpointed stream of ``files``, one a batch; its job's folder is beside them."""
        self.spark.conf.set("spark.ckpt.dir", str(files.parent / "jobs"))
        reader = spark_ckpt.enable(self.spark).readStream.format("files").option("fileFormat", "parquet").schema(SCHEMA)
        return reader.option("maxFilesPerTrigger", 1).option("discoveryInterval", "1ms").load(str(files))

    def _run(
        self, build: Any, chains: Sequence[Chain], rows: pa.Table, batches: int, chaining: bool, tagged: bool
    ) -> list[Difference]:
        self._runs += 1
        here = self.folder / f"run-{self._runs}"
        write_batches(here / "in", rows, batches)
        try:
            expected = build(self.spark.createDataFrame(rows, SCHEMA)).toArrow()
            targets = sinks_of(here / "out", expected, chains[0], tagged, random.Random(str(chains[0])))
            self._stream(build, here, targets, chaining)
            return [d for t in targets for d in differences(chains, expected, t, tagged)]
        finally:
            shutil.rmtree(here, ignore_errors=True)

    def _stream(self, build: Any, here: Path, targets: list[Target], chaining: bool) -> None:
        df = build(self.stream(here / "in"))
        first, *others = targets
        writer = df.writeStream.format(first.sink).options(**first.written_options)
        for target in others:
            writer = writer.alsoTo(target.sink, **target.written_options)
        writer = writer.option("spark.ckpt.chaining", chaining).queryName("job").trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"


def slots_of(chain: Chain) -> dict[str, str]:
    """Names of columns that chains share -> their own: the first ``int`` of each chain goes to ``int_0``."""
    count: collections.Counter[str] = collections.Counter()
    found = {}
    for name, kind in chain.columns.items():
        found[f"{re.sub(r'[^0-9a-z]+', '_', kind).strip('_')}_{count[kind]}"] = name
        count[kind] += 1
    return found


def together(df: Any, chains: Sequence[Chain]) -> Any:
    """The union of all chains over ``df``, each row with the number of its chain.

    The rows are read once a batch, as Spark uses an exchange again, and two tasks write: most of what a chain costs is
    the tasks that it takes. And all have the same columns, as Spark takes long over a union by name.
    """
    df, whole = df.repartition(1), None
    slots = {slot: chain.columns[name] for chain in chains for slot, name in slots_of(chain).items()}
    for chain in chains:
        made = _with_shared_columns(applied(chain.operations, df), chain, slots)
        whole = made if whole is None else whole.union(made)
    return None if whole is None else whole.coalesce(2)


def _with_shared_columns(df: Any, chain: Chain, slots: dict[str, str]) -> Any:
    own = slots_of(chain)
    key = [f"{_key_text(chain)} as key"] if chain.kind == MERGE else []
    columns = [f"{quoted(own[s]) if s in own else f'cast(null as {kind})'} as {s}" for s, kind in slots.items()]
    # Texts, because each Column is a call into the JVM.
    return df.selectExpr(f"{chain.number} as chain", *key, *columns)


def _key_text(chain: Chain) -> str:
    texts = []
    for key in chain.keys:
        plain = quoted(key)
        if chain.columns[key] == "timestamp":
            plain = f"unix_micros({plain})"  # a local time names two instants in autumn
        texts.append(f"coalesce(hex(cast({plain} as string)), '-')")
    return f"concat_ws('|', {', '.join(texts)})"


# -- sinks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A sink and which of the columns go there."""

    sink: str
    target: SinkTarget
    columns: tuple[str, ...] | None

    @property
    def written_options(self) -> dict[str, str]:
        given = dict(self.target.options)
        return given if self.columns is None else {**given, "columns": ",".join(self.columns)}


def sinks_of(out: Path, expected: pa.Table, chain: Chain, tagged: bool, chosen: random.Random) -> list[Target]:
    out.mkdir()
    schema = expected.schema
    keys = {"mergeKeys": "chain,key" if tagged else ",".join(chain.keys)} if chain.kind == MERGE else {}
    merging = {"mode": "merge", **keys} if keys else {}
    flat = tuple(f.name for f in schema if not pa.types.is_nested(f.type))
    found = [Target("memory", MemoryTarget("memory", {"path": f"{out}/memory", **merging}), None)]
    found.append(Target("delta", DeltaTarget("delta", {"path": f"{out}/delta", **merging}), None))
    upsert = {"mode": "upsert", **keys} if keys else {}
    sql = SqlTarget("sql", {"url": f"sqlite:///{out}/x.db", "table": "t", **upsert})
    found.append(Target("sql", sql, flat) if len(flat) < len(schema) else Target("sql", sql, None))
    if chain.kind == APPEND:
        kind = chosen.choice(["parquet", "json", "csv"])
        columns = tuple(f.name for f in schema if f.name in flat and not pa.types.is_binary(f.type))
        some = columns if kind == "csv" else None
        found.append(Target("files", FilesTarget(f"{out}/{kind}", kind), some))
    if keys and not tagged and any(_has_no_value(expected[key]) for key in chain.keys):
        found = [t for t in found if t.sink != "sql"]  # it refuses such a key
    return [t for t in found if t.columns is None or t.columns]


def _has_no_value(key: pa.ChunkedArray) -> bool:
    return pc.any(pc.is_null(key, nan_is_null=True)).as_py() or False


# -- comparing -------------------------------------------------------------------------------------------------------


def differences(chains: Sequence[Chain], expected: pa.Table, target: Target, tagged: bool) -> list[Difference]:
    wanted = expected if target.columns is None else expected.select(list(target.columns))
    wanted = _as_plain(wanted)
    found = _as_plain(target.target.read(wanted.schema).select(wanted.column_names))
    for_sqlite = target.sink == "sql"
    before, after = _by_chain(wanted, tagged, for_sqlite), _by_chain(found, tagged, False)
    wrong = []
    for chain in chains:
        tag = chain.number if tagged else None
        a, b = before.pop(tag, Rows()), after.pop(tag, Rows())
        if a != b:
            wrong.append(Difference(chain, target.sink, tuple((a - b).elements()), tuple((b - a).elements())))
    assert not after, f"rows of unknown chains in {target.sink}: {after}"
    return wrong


def _plain(schema: pa.Schema) -> pa.Schema:
    """Instants in UTC, as all sinks keep them."""
    return pa.schema([pa.field(f.name, _utc(f.type)) for f in schema])


def _as_plain(table: pa.Table) -> pa.Table:
    schema = _plain(table.schema)
    return pa.Table.from_arrays([pa.array(c.to_pylist(), f.type) for c, f in zip(table.columns, schema)], schema=schema)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_list(kind):
        return pa.list_(_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), _utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _utc(f.type)) for f in kind])
    return kind


def _by_chain(table: pa.Table, tagged: bool, for_sqlite: bool) -> dict[int | None, Rows]:
    found: dict[int | None, Rows] = collections.defaultdict(Rows)
    for row in table.to_pylist():
        tag = row.pop("chain") if tagged else None
        # repr tells -0.0 from 0.0 and takes all NaNs for one.
        shown = {k: _in_sqlite(v) if for_sqlite else v for k, v in row.items()}
        found[tag][repr({k: v for k, v in shown.items() if v is not None})] += 1
    return found


def _in_sqlite(value: Any) -> Any:
    """It has neither NaN nor a zero with a sign."""
    if not isinstance(value, float):
        return value
    return None if value != value else value + 0.0
