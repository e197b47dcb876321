"""What the built-in sinks share: the form of their committables, names of staged things, and batching of rows."""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.protocol.file_format import FIELD, require_known
from spark_ckpt.redaction import redact
from spark_ckpt.sinks.base import SinkWriter, WriterContext
from spark_ckpt.types import CommitPermit, Committable

CHUNK_ROWS = 128 * 1024
CHUNK_BYTES = 32 * 1024 * 1024


@contextmanager
def disk_errors(doing: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """What a disk or an object store says, with what was being done."""
    try:
        yield
    except OSError as error:
        raise RetryableError(
            f"{doing} failed: {redact(str(error), secrets)}. Nothing is lost: see to it (free space, permissions, "
            "network) and start the query again; it commits what is missing"
        ) from None


FORMAT = 1
"""Of a built-in sink's committable, which does not say it while it is 1."""


def encode(kind: str, **fields: Any) -> bytes:
    """A committable of sink kind ``kind``."""
    return json.dumps({"kind": kind, **fields}, sort_keys=True, separators=(",", ":")).encode()


def decode(kind: str, committable: Committable) -> dict[str, Any]:
    """Inverse of :func:`encode`. Raises ``CorruptStorageError`` if it is not one of ``kind``."""
    fields = decode_any(committable)
    require_known(fields.get(FIELD), FORMAT, f"What sink {committable.sink!r} staged in epoch {committable.epoch}")
    if fields.get("kind") != kind:
        raise CorruptStorageError(
            f"sink '{committable.sink}', epoch {committable.epoch}: expected a committable of a '{kind}' sink, found "
            f"{fields.get('kind', 'unreadable bytes')!r}; was the sink's kind changed under the same uid? "
            "Restore with the sink it was written by"
        )
    return fields


def decode_any(committable: Committable) -> dict[str, Any]:
    """The fields of any built-in sink's committable; empty for one of another sink."""
    try:
        fields = json.loads(committable.data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def digest(committables: Sequence[Committable]) -> str:
    """Identifies what one checkpoint commits, so that another committer under the same identity is noticed."""
    sha = hashlib.sha256()
    for c in committables:
        sha.update(f"{c.epoch}:{len(c.data)}:".encode() + c.data)
    return sha.hexdigest()[:32]


def sink_of(committables: Sequence[Committable]) -> str:
    """The one sink uid all of ``committables`` belong to."""
    names = {c.sink for c in committables}
    if len(names) != 1:
        raise CorruptStorageError(f"expected committables of one sink, found {sorted(names)}; nothing was committed")
    return names.pop()


def check_same_life(target: str, permit: CommitPermit, sink: str, recorded: str | None, found: str) -> None:
    """Checkpoint ids of one identity never repeat, so the same id with other contents means that somebody else has it.

    Raises ``InvalidInputError`` rather than drop its rows as already committed.
    """
    if recorded is not None and recorded != found:
        raise InvalidInputError(
            f"{target} already holds checkpoint {permit.checkpoint} of job '{permit.job}', sink '{sink}', with other "
            "contents: another job of that name without a mark of its life, or a copy of this one's folder, wrote "
            "there. Start with another queryName or another uid of the sink, or write to another target"
        )


def waits_elsewhere(found: str, expected: str) -> InvalidInputError:
    """Rows of an earlier start, completed and not committed, that were staged for ``found``; this start's sink of that
    uid writes to ``expected``."""
    return InvalidInputError(
        f"rows of a completed checkpoint wait for {found}, and the sink of their uid now writes to {expected}. Nothing "
        f"was committed: start once with {found} under that uid, then change the query; or give these rows up: "
        "`spark-ckpt abandon`"
    )


def tag(name: str) -> str:
    """``name`` as part of a file or table name: readable, collision free."""
    return f"{_slug(name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:24]


def is_of_job(who: str, job: str) -> bool:
    """Whether ``who`` staged something as a job called ``job``, in any of its lives: an identity, or the tag of one. A
    tag tells it by its readable part only, which long names share."""
    if who == job or who.startswith(f"{job}@"):
        return True
    slug = _slug(job)
    if not slug:
        return re.fullmatch(r"([0-9a-f]{1,16})?-[0-9a-f]{8}", who) is not None
    ending = r"(-[0-9a-f]{0,16})?" if len(slug) < 24 else ""
    return re.fullmatch(rf"{re.escape(slug)}{ending}-[0-9a-f]{{8}}", who) is not None


def count_stagers(names: Iterable[str]) -> dict[str, int]:
    """How many of the staged files ``names`` are whose."""
    found = (re.match(r"ckpt-(.*?-[0-9a-f]{8})--", name) for name in names)
    return dict(sorted(Counter(m[1] for m in found if m).items()))


def staged_prefix(job: str) -> str:
    """What the names of all the job's staged files begin with."""
    return prefix_of(tag(job))


def prefix_of(who: str) -> str:
    """``who``: the tag of a job, as :func:`count_stagers` gives it."""
    return f"ckpt-{who}--"


def staged_name(ctx: WriterContext) -> str:
    """The stem of what a writer stages; unique to the task attempt and sorted by epoch, batch and partition."""
    place = f"e{ctx.epoch:010d}-b{ctx.batch:010d}-p{ctx.partition:05d}"
    return f"{staged_prefix(ctx.job)}{tag(ctx.sink)}-{place}-{tag(ctx.attempt)}"


def require_columns(option: str, names: Iterable[str], schema: pa.Schema) -> None:
    missing = [n for n in names if n not in schema.names]
    if missing:
        raise InvalidInputError(
            f"option '{option}' names {', '.join(missing)}; the columns are {', '.join(schema.names)}"
        )


def last_by_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Only the last row of each key, in their order. Which keys are equal: see :func:`key_columns`."""
    flat = key_columns(table, keys)
    names = [f"k{i}" for i in range(len(flat))]
    columns = [*flat, pa.array(range(len(table)), pa.int64())]
    last = pa.table(columns, [*names, "row"]).group_by(names).aggregate([("row", "max")])["row_max"]
    return table.take(last.sort())


def refuse_unhashed(option: str, names: Iterable[str], schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for keys that Arrow cannot group by, however deep in a struct."""
    for name in names:
        if not _is_flat(schema.field(name).type):
            raise InvalidInputError(
                f"option '{option}' names {name}, whose type {schema.field(name).type} has a list or a map in it; keys "
                "are plain values, or structs of such"
            )


def _is_flat(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_flat(f.type) for f in kind)
    return not pa.types.is_nested(kind)


def key_columns(table: pa.Table, keys: Sequence[str]) -> list[pa.ChunkedArray]:
    """Flat columns in which Arrow takes two rows for the same where Spark takes their ``keys`` for the same.

    Null equals null, NaN equals NaN, and the two zeros of floating numbers are equal. Without names: to Arrow, one
    that begins with a dot or a bracket is a path.
    """
    return [column for key in keys for column in _flat(table.column(key))]


def _flat(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """What is equal where ``column`` is: a struct is whether it is null, and its members."""
    if pa.types.is_floating(column.type):
        # Arrow compares bits. Adding zero makes 0.0 of -0.0; NaN has many forms.
        nan, zero = (pa.scalar(value, column.type) for value in (float("nan"), 0.0))
        return [pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))]
    if not pa.types.is_struct(column.type):
        return [column]
    return [pc.is_valid(column), *(flat for member in column.flatten() for flat in _flat(member))]


class Chunks:
    """Collects small batches and hands them back as tables of some ``CHUNK_ROWS`` rows or ``CHUNK_BYTES`` bytes."""

    def __init__(self, rows: int = CHUNK_ROWS, size_bytes: int = CHUNK_BYTES) -> None:
        self._limit_rows, self._limit_bytes = rows, size_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.Table | None:
        """A table if there is enough for one."""
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        full = self._rows >= self._limit_rows or self._bytes >= self._limit_bytes
        return self.rest() if full else None

    def rest(self) -> pa.Table | None:
        """What is left, or None."""
        if not self._rows:
            return None
        table = pa.Table.from_batches(self._batches, schema=self._batches[0].schema)
        self._batches, self._rows, self._bytes = [], 0, 0
        return table


class FileWriter(SinkWriter):
    """What writers of one staged file share: rows come in chunks, and without rows there is no file, unless it is to
    replace what is there."""

    def __init__(self, doing: str, ctx: WriterContext) -> None:
        self._doing = doing
        self._empty = ctx.schema.empty_table() if ctx.replacing else None
        self._chunks = Chunks()
        self._stream: Any = None
        self._writer: Any = None

    @abstractmethod
    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        """(stream, writer) of the file that begins with ``rows``."""

    @abstractmethod
    def _put(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def _finish(self) -> bytes:
        """The writer is closed: close the stream, make the file durable and say what it is."""

    def write(self, batch: pa.RecordBatch) -> None:
        with disk_errors(self._doing):
            self._take(self._chunks.add(batch))

    def prepare_commit(self) -> Sequence[bytes]:
        with disk_errors(self._doing):
            self._take(self._chunks.rest())
            if self._writer is None:
                self._take(self._empty)
            if self._writer is None:
                return []
            self._writer.close()
            self._writer = None
            return [self._finish()]

    def close(self) -> None:
        if self._writer is not None:  # the task failed: gc finds what reached the storage
            with suppress(Exception):
                self._writer.close()
        if self._stream is not None and not self._stream.closed:
            with suppress(Exception):
                self._stream.close()

    def _take(self, rows: pa.Table | None) -> None:
        if rows is None:
            return
        if self._writer is None:
            self._stream, self._writer = self._open(rows)
        self._put(rows)
