"""What tests of state functions share: a keyed operator in a few lines, and aggregates written as plain Python."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_ckpt.agg import AggSpec
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, StateFunction, Touched
from spark_ckpt.state.keys.keys import NULL_HASH
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_HASH

CTX = CallContext(uid="totals", subtask=3, checkpoint=7, processing_time_ms=1_000, watermark_ms=None)

KEYS = pa.schema([("k", pa.string())])
TYPES = {
    "double": (pa.float64(), st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -0.0, 0.0])),
    "float": (pa.float32(), st.sampled_from([1.5, -2.25, 1024.0, math.nan])),
    "long": (pa.int64(), st.integers(-(2**40), 2**40)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "decimal": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    "wide": (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    "string": (pa.string(), st.text(max_size=20)),
    "binary": (pa.binary(), st.binary(max_size=10)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.timezone.utc)),
    ),
    "ntz": (pa.timestamp("us"), st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2200, 1, 1))),
}
NUMBERS = ("double", "float", "long", "byte", "decimal", "wide")


def schema_of(type_: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.string()), ("v", type_)])


def table(rows: list[tuple[Any, Any]], type_: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema=schema_of(type_))


class Operator:
    """Keeps state between batches as the keyed operator does.

    ``one_hash`` gives all keys that of null, which one long has too.
    """

    def __init__(self, function: StateFunction, one_hash: bool = False) -> None:
        self.function, self.one_hash = function, one_hash
        self.state: dict[str, dict[str, Any]] = {}
        self.families = {
            name: KeyedState.open(layout.stored, KeyRange(0, 1, 1), None, None, MemoryRuns())
            for name, layout in function.families.items()
        }

    def batch(self, *tasks: pa.Table) -> list[dict[str, Any]]:
        """Each task's rows are combined by themselves, in two portions; returns the output rows."""
        combined = pa.concat_tables([self._combined(self.with_hash(rows)) for rows in tasks])
        keys, index = self._keys(combined)
        names = [repr(k) for k in keys.to_pylist()]
        rows = [self.state.get(name, {}) for name in names]
        exists = np.array([name in self.state for name in names], bool)
        none = np.zeros(len(names), bool)
        state = pa.Table.from_pylist(rows, schema=self.function.state_schema)
        timeouts = np.full(len(names), NO_TIMEOUT, np.int64)
        changed = self.function.process(
            self._context(keys), Touched(keys, combined, index, state, exists, none, timeouts)
        )
        assert changed.state.schema.equals(self.function.state_schema)
        assert changed.output.schema.equals(self.function.output_schema)
        for name, row, write in zip(names, changed.state.to_pylist(), changed.write.tolist()):
            if write:
                self.state[name] = row
        return changed.output.to_pylist()

    def _context(self, keys: pa.Table) -> CallContext:
        hashes = self.with_hash(keys).column(KEY_HASH).to_numpy()
        layouts = self.function.families.items()
        return replace(CTX, families={n: Family(self.families[n], layout, hashes, keys) for n, layout in layouts})

    def _combined(self, rows: pa.Table) -> pa.Table:
        half = rows.num_rows // 2
        portions = [part for part in (rows.slice(0, half), rows.slice(half)) if part.num_rows] or [rows]
        return self.function.recombine([self.function.combine(part) for part in portions])

    def with_hash(self, rows: pa.Table) -> pa.Table:
        keys = rows.select(self.function.key_schema.names).to_pylist()
        hashes = [NULL_HASH if self.one_hash else hash_of(k) for k in keys]
        return rows.append_column(KEY_HASH, pa.array(hashes, pa.int64()))

    def _keys(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        keys = rows.select(self.function.key_schema.names)
        distinct: dict[str, int] = {}
        index = [distinct.setdefault(repr(k), len(distinct)) for k in keys.to_pylist()]
        first = [index.index(i) for i in range(len(distinct))]
        return keys.take(pa.array(first, pa.int64())), np.array(index, np.int64)


def hash_of(key: dict[str, Any]) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little", signed=True)


def expected(spec: AggSpec, rows: Sequence[dict[str, Any]], type_: pa.DataType | None) -> Any:
    """The aggregate of one key's rows, in order of arrival, as Spark defines it."""
    if spec.column is None:
        return len(rows)
    values = [r[spec.column] for r in rows]
    known = [v for v in values if v is not None]
    if spec.kind in ("first", "last"):
        pool = known if spec.options["ignore_nulls"] else values
        return None if not pool else pool[0 if spec.kind == "first" else -1]
    if spec.kind == "count":
        return len(known)
    if spec.kind == "count_distinct":
        return len({"NaN" if is_nan(v) else v for v in known})
    if spec.kind == "collect_list":
        return known[: spec.options["max_items"]]
    with localcontext() as exact:
        exact.prec = 80
        return _numeric(spec.kind, known, type_) if known else None


def _numeric(kind: str, known: list[Any], type_: pa.DataType | None) -> Any:
    if kind in ("min", "max"):
        ordered = sorted(known, key=lambda v: (is_nan(v), 0 if is_nan(v) else v))
        return ordered[0 if kind == "min" else -1]
    if kind == "stddev":
        if len(known) < 2:
            return None
        floats = [float(v) for v in known]
        return math.nan if any(not math.isfinite(v) for v in floats) else statistics.stdev(floats)
    total = sum(known)
    if kind == "sum":
        return total
    if isinstance(total, Decimal):
        return (total / len(known)).quantize(Decimal(1).scaleb(-type_.scale - 4), ROUND_HALF_UP)
    return total / len(known)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def same(a: Any, b: Any, scale: float = 1.0) -> bool:
    """Equal, with NaN equal to NaN and floats equal up to rounding beside numbers of size ``scale``."""
    if isinstance(a, float) and isinstance(b, float):
        if is_nan(a) or is_nan(b) or math.isinf(a) or math.isinf(b):
            return (is_nan(a) and is_nan(b)) or a == b
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * scale)
    return type(a) is type(b) and a == b


def by_key(rows: Iterable[dict[str, Any]], *names: str) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        out.setdefault(repr({name: row[name] for name in names}), []).append(row)
    return out
