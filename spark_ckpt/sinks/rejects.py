"""Rows that a target refuses: with option ``rejects`` they go to another table or folder, with the reason.

That one is a sink of the query like any other, ``<uid>-rejects``: it stages, it commits under the same checkpoint, and
it is cleaned up as the others are. A writer hands it what it finds by :func:`accepted`. What only the target's database
can say is found when the checkpoint is tried and committed (:mod:`spark_ckpt.sinks.sql._searching`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt import clock
from spark_ckpt.errors import BadRowError, ConfigError
from spark_ckpt.formats.json_texts import check_json, json_name, json_texts
from spark_ckpt.sinks._options import SinkOption
from spark_ckpt.sinks.base import SinkWriter
from spark_ckpt.types import BEFORE_BARRIERS, Committable, Epoch

NAME = "rejects"
SCHEMA = pa.schema(
    [
        ("data", pa.string()),
        ("reason", pa.string()),
        ("rule", pa.string()),
        ("sink", pa.string()),
        ("epoch", pa.int64()),
        ("rejected_at", pa.timestamp("us", "UTC")),
    ]
)
"""``data``: the row as a JSON object, as the sink got it. ``rule``: the constraint or index, where the target names it.
``epoch``: the checkpoint that the row belongs to; where that one failed, the next one shows it. Null where rows have no
epoch before their checkpoint is triggered."""

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Refused = Callable[[pa.Table, BadRowError], None]
"""Takes a table of one row, and what is wrong with it."""


def option(place: str) -> SinkOption:
    """The option as a sink declares it; ``place`` says what it names."""
    return SinkOption(NAME, place, "Rows that the target refuses go there, with the reason, under the same checkpoint.")


def target_options(name: str, cls: type, options: Mapping[str, str]) -> dict[str, str] | None:
    """Options of the sink, of class ``cls`` too, that gets the rows that one with ``options`` refuses; None if it was
    not asked for.

    Raises ``ConfigError`` for a class that cannot tell such rows, and for a place that is the target's own.
    """
    given = {k.lower(): v.strip() for k, v in options.items()}
    if not given.get(NAME):
        return None
    kept: Sequence[str] = getattr(cls, "REJECTS", ())
    if not kept:
        raise ConfigError(
            f"sink {name!r} has no option '{NAME}': it cannot tell single rows that its target refuses. sql, delta, "
            "files and iceberg can; before another sink, filter such rows"
        )
    place, *others = (k.lower() for k in kept)
    if given[NAME].rstrip("/") == given.get(place, "").rstrip("/"):
        raise ConfigError(
            f"sink {name!r}: options '{NAME}' and '{place}' are the same; refused rows need a place of their own"
        )
    families = tuple(k[:-1] for k in others if k.endswith(".*"))
    found = {k: v for k, v in options.items() if k.lower() in others or (families and k.lower().startswith(families))}
    return {**found, **getattr(cls, "REJECTS_AS", {}), place: given[NAME]}


def check(schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns that ``data`` cannot have."""
    for field in schema:
        check_json(field.name, field.type)


def accepted(rows: Rows, take: Callable[[Rows], None], refused: Refused | None) -> list[Rows]:
    """The parts of ``rows`` that ``take`` takes, in order.

    ``take`` raises ``BadRowError``, and does nothing, where one of its rows is bad. Such rows are looked for by halves
    and given to ``refused``; without that, the error is raised."""
    try:
        take(rows)
    except BadRowError as error:
        if refused is None:
            raise
        if rows.num_rows <= 1:
            refused(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]), error)
            return []
        half: int = rows.num_rows // 2
        return [p for part in (rows.slice(0, half), rows.slice(half)) for p in accepted(part, take, refused)]
    return [rows]


class CheckedWriter(SinkWriter):
    """Gives ``inner`` the rows that ``look`` lets pass, and the others to ``refused``; raises without that."""

    def __init__(self, inner: SinkWriter, look: Callable[[pa.RecordBatch], None], refused: Refused | None) -> None:
        self._inner, self._look, self._refused = inner, look, refused

    def write(self, batch: pa.RecordBatch) -> None:
        for part in accepted(batch, self._look, self._refused):
            self._inner.write(part)

    def prepare_commit(self) -> Sequence[bytes]:
        return self._inner.prepare_commit()

    def close(self) -> None:
        self._inner.close()


def refuse_nulls(batch: pa.RecordBatch, names: Sequence[str]) -> None:
    """Raises ``BadRowError`` for a null in one of the columns ``names``."""
    for name in names:
        if batch.column(name).null_count:
            raise BadRowError(f"column '{name}' is declared not null, but a row has null in it")


def rejected(rows: pa.Table, errors: Sequence[BadRowError], sink: str, epoch: Epoch) -> pa.RecordBatch:
    """``rows`` in :data:`SCHEMA`; ``errors`` says what is wrong with each."""
    reasons = pa.array([str(e) for e in errors], pa.string())
    rules = pa.array([e.rule for e in errors], pa.string())
    known = pa.scalar(None if epoch == BEFORE_BARRIERS else epoch, pa.int64())
    now = pa.scalar(clock.now_ms() * 1000, pa.int64()).cast(SCHEMA.field("rejected_at").type)
    columns = [objects(rows), reasons, rules, *(pa.repeat(v, len(rows)) for v in (pa.scalar(sink), known, now))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def objects(rows: pa.Table) -> pa.Array:
    """Each row as a JSON object."""
    parts: list[object] = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        parts += [("," if parts else "{") + json_name(name) + ":", json_texts(column.combine_chunks())]
    made = pc.binary_join_element_wise(*parts, "}", "")
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def count(committables: Sequence[Committable]) -> int:
    """How many rows ``committables`` of a built-in sink have."""
    from spark_ckpt.sinks.staging import decode_any  # it imports what this module is imported by

    found = [decode_any(c) for c in committables]
    return sum(int(f.get("rows", f.get("stats", {}).get("numRecords", 0))) for f in found)
