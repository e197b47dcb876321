"""Functions that chains give to ``mapInArrow``, ``mapInPandas`` and ``applyIn...WithState``. Pickled by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc


def keep_all(batches: Any) -> Any:
    yield from batches


def other_names(batches: Any) -> Any:
    """Spark takes the columns of mapInArrow by position."""
    for batch in batches:
        yield batch.rename_columns([f"c{i}" for i in range(batch.num_columns)])


def only_even_ids(batches: Any) -> Any:
    for batch in batches:
        even = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 0)
        yield batch.filter(even)


def twice(batches: Any) -> Any:
    for batch in batches:
        yield batch
        yield batch


def odd_ids_in_pandas(frames: Any) -> Any:
    for frame in frames:
        yield frame[frame["id"] % 2 == 1]


def behind_rename(method: str, func: Any, names: list[str]) -> Any:
    """``func`` with columns by other names than Spark's ``mapInArrow`` and ``mapInPandas`` can take."""

    def renamed(batches: Any) -> Any:
        if method == "mapInArrow":
            return func(batch.rename_columns(names) for batch in batches)
        return func(frame.set_axis(names, axis=1) for frame in batches)

    return renamed


def number_rows_pandas(keys: tuple[str, ...], column: str) -> Any:
    def number(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen, filled = state.get if state.exists else (0, 0)
        everything = pd.concat(list(frames)).sort_values("id")
        out: dict[str, list[Any]] = {name: [value] * len(everything) for name, value in zip(keys, key, strict=True)}
        out.update(id=everything["id"].tolist(), seen=[], filled=[])
        for there in everything[column].notna().tolist():
            seen, filled = seen + 1, filled + int(there)
            out["seen"].append(seen)
            out["filled"].append(filled)
        state.update((seen, filled))
        yield pd.DataFrame(out, columns=[*keys, "id", "seen", "filled"])

    return number


def number_rows_arrow(keys: tuple[str, ...], column: str) -> Any:
    def number(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, pa.Table]:
        seen = [n or 0 for n in state["seen"].to_pylist()]
        filled = [n or 0 for n in state["filled"].to_pylist()]
        at, ids, counts, fills = [], [], [], []
        for row in sorted(rows.select(["id", "_key", column]).to_pylist(), key=lambda r: r["id"]):
            key = row["_key"]
            seen[key] += 1
            filled[key] += row[column] is not None
            at.append(key)
            ids.append(row["id"])
            counts.append(seen[key])
            fills.append(filled[key])
        out = state.select(list(keys)).take(pa.array(at, pa.int64()))
        for name, values in (("id", ids), ("seen", counts), ("filled", fills)):
            out = out.append_column(name, pa.array(values, pa.int64()))
        return out, pa.table({"seen": pa.array(seen, pa.int64()), "filled": pa.array(filled, pa.int64())})

    return number
