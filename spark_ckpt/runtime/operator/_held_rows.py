"""Rows behind a barrier that is not aligned yet, as they wait in Spark's state store. Executor."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from spark_ckpt.state.ipc import compress, decompress, from_bytes, one_batch, schema_from_text, to_bytes
from spark_ckpt.state.lsm.stored_form import completed

Labelled = Mapping[int, list[pa.RecordBatch]]
"""Rows by their epoch label."""


def hold(rows: Labelled) -> tuple[dict[int, int], bytes | None]:
    """How many rows each label has, and all of them in label order; None if there are none."""
    counts = {label: sum(b.num_rows for b in rows[label]) for label in sorted(rows)}
    if not rows:
        return counts, None
    batches = [b for label in counts for b in rows[label]]
    return counts, compress(to_bytes(one_batch(pa.Table.from_batches(batches))))


def unhold(
    held: bytes, schema: str | None, counts: Mapping[int, int], wanted: pa.Schema, begins: Mapping[str, pa.Scalar]
) -> dict[int, list[pa.RecordBatch]]:
    """What :func:`hold` kept, with the columns ``wanted``. ``schema``, if it had others, is that of the rows.

    ``begins``: what stands in a column that they do not have.
    """
    kept = wanted if schema is None else schema_from_text(schema)
    batch, start, rows = from_bytes(decompress(held), kept), 0, dict[int, list[pa.RecordBatch]]()
    if batch.schema.names != wanted.names:
        batch = completed(batch, wanted, begins)
    for label, count in sorted(counts.items()):
        rows[label] = [batch.slice(start, count)]
        start += count
    return rows
