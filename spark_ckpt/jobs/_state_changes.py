"""What changed in a state table between two checkpoints, by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import int64_view, one_batch
from spark_ckpt.state.keys.keys import Mask, equal_keys, match
from spark_ckpt.state.lsm.stored_form import completed
from spark_ckpt.storage.content import FileEntry, same_rows
from spark_ckpt.storage.state_rows import live_rows
from spark_ckpt.types import KEY_HASH

if TYPE_CHECKING:
    from spark_ckpt.jobs.state import StateFiles

CHANGE, BEFORE, AFTER = "_change", "_before", "_after"


def changes(old: StateFiles, new: StateFiles, keys: list[str]) -> pa.Table:
    """As :meth:`spark_ckpt.jobs.state.State.diff`. Memory: what differs."""
    gone, come = _differing(old, new)
    before, after = _sorted(gone, new.schema), _sorted(come, new.schema)
    values = [n for n in new.schema.names if n not in (*keys, KEY_HASH)]
    place = match(_hashes(after), after.select(keys), _hashes(before), before.select(keys))
    both = np.flatnonzero(place >= 0)
    then, now = before.select(values).take(pa.array(place[both])), after.select(values).take(pa.array(both))
    changed = both[~_same(then, now)]
    added = np.flatnonzero(place < 0)
    removed = np.setdiff1d(np.arange(len(before)), place[both])
    parts = [
        _part("added", after, added, None, None, after, added, keys, values),
        _part("removed", before, removed, before, removed, None, None, keys, values),
        _part("changed", after, changed, before, place[changed], after, changed, keys, values),
    ]
    return pa.concat_tables(parts)


def _differing(old: StateFiles, new: StateFiles) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Rows that are live in one of them only. A key that was written again with the same values is among both."""
    gone: list[pa.RecordBatch] = []
    come: list[pa.RecordBatch] = []
    if old.url != new.url:  # what a file's name says is said of one folder
        return _all(old), _all(new)
    for file in sorted({*old.content, *new.content}):
        was: FileEntry | None = old.content.get(file)
        now: FileEntry | None = new.content.get(file)
        if was is not None and now is not None and same_rows(was, now):
            continue
        before, after = live_rows(old.folder, was), live_rows(new.folder, now)
        gone += old.of(file, before - after)
        come += new.of(file, after - before)
    return gone, come


def _all(files: StateFiles) -> list[pa.RecordBatch]:
    return [batch for file in files.content for batch in files.rows(file)]


def _sorted(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    known = [completed(b.select([n for n in b.schema.names if n in schema.names]), schema, {}) for b in batches]
    table = pa.Table.from_batches(known, schema)
    return one_batch(
        table.take(pa.array(np.argsort(int64_view(one_batch(table.select([KEY_HASH])).column(0)), kind="stable")))
    )


def _hashes(rows: pa.RecordBatch) -> np.ndarray:
    return int64_view(rows.column(KEY_HASH))


def _same(then: pa.RecordBatch, now: pa.RecordBatch) -> Mask:
    """Row by row. Arrow compares no maps: those go by their values in Python."""
    plain = [n for n in then.schema.names if not _has_map(then.schema.field(n).type)]
    same = equal_keys(then.select(plain), now.select(plain)) if plain else np.ones(len(then), bool)
    for name in set(then.schema.names) - set(plain):
        pairs = zip(then.column(name).to_pylist(), now.column(name).to_pylist(), strict=True)
        same &= np.fromiter((a == b for a, b in pairs), bool, len(then))
    return same


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(at).type) for at in range(kind.num_fields))


def _part(
    change: str,
    named: pa.RecordBatch,
    rows: np.ndarray,
    before: pa.RecordBatch | None,
    before_rows: np.ndarray | None,
    after: pa.RecordBatch | None,
    after_rows: np.ndarray | None,
    keys: list[str],
    values: list[str],
) -> pa.Table:
    columns = dict(zip(keys, named.select(keys).take(pa.array(rows)).columns, strict=True))
    columns[CHANGE] = pa.array([change] * len(rows), pa.string())
    if values:
        kind = pa.struct([named.schema.field(n) for n in values])
        for name, side, at in ((BEFORE, before, before_rows), (AFTER, after, after_rows)):
            columns[name] = pa.nulls(len(rows), kind) if side is None or at is None else _structs(side, at, kind)
    return pa.table(columns)


def _structs(side: pa.RecordBatch, rows: np.ndarray, kind: pa.StructType) -> pa.StructArray:
    taken = side.select([f.name for f in kind]).take(pa.array(rows))
    return pa.StructArray.from_arrays(taken.columns, fields=list(kind))
