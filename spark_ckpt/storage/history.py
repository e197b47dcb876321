"""The checkpoint history: a plain Delta table, one row a checkpoint, for people. Recovery never reads it.

A job runs without it, too: what is wrong with it is told once, and ``spark-ckpt repair-history`` makes it anew.
"""

from __future__ import annotations

import io
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.schema import PrimitiveType

from spark_ckpt import clock
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage import _delta_log as delta_log
from spark_ckpt.storage._delta_log import DeltaLog
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.object_options import delta_rs_options
from spark_ckpt.storage.retry import Retry

_logger = logging.getLogger(__name__)
_warned: set[str] = set()

COMPACT_VERSIONS = 100
"""After this many versions the small files become one."""

_LOG_RETENTION, _ONE_HOUR = "delta.logRetentionDuration", "interval 1 hours"

# Rows come nearly in the order of ids, but a timed-out checkpoint may be recorded after a newer one. One transaction
# id for every 256th checkpoint tells "recorded" exactly as long as ids are less than 256 out of order.
_TRANSACTION_SLOTS = 256

_INSTANT = pa.timestamp("us", tz="UTC")
_STATE = pa.map_(pa.string(), pa.struct([("keys", pa.int64()), ("size_bytes", pa.int64()), ("files", pa.int64())]))
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("triggered", _INSTANT),
        ("completed", _INSTANT),
        ("duration_ms", pa.int64()),
        ("commit_ms", pa.int64()),
        ("alignment_ms", pa.int64()),
        ("held_back_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
        ("written_rows", pa.int64()),
        ("keys", pa.int64()),
        ("state", _STATE),
        ("generation", pa.int64()),
        ("batch", pa.int64()),
        ("phases", pa.string()),
        ("target", pa.string()),
    ]
)
LATER = ("phases", "target")
"""Columns that tables of older releases are without."""


@dataclass(frozen=True)
class UidSize:
    """How large the state of one operator is: live keys, bytes and number of its state files."""

    keys: int
    size_bytes: int
    files: int


@dataclass(frozen=True)
class HistoryRow:
    """One checkpoint. ``kind``: checkpoint, savepoint, ...; ``outcome``: completed, or why it was given up.

    ``duration_ms`` runs from trigger to completion, ``commit_ms`` is the driver's part of it; ``alignment_ms`` is the
    largest of all key groups; ``written_*`` counts state files written since the checkpoint before. ``phases``: see
    :mod:`spark_ckpt.monitoring.timeline`; empty in rows of older releases. ``target``: where a savepoint went, without
    secrets; None in rows of older releases.
    """

    id: int
    kind: str | None
    outcome: str
    triggered_ms: int
    generation: int
    batch: int
    reason: str | None = None
    completed_ms: int | None = None
    commit_ms: int = 0
    alignment_ms: int = 0
    held_back_bytes: int = 0
    written_bytes: int = 0
    written_rows: int = 0
    keys: int = 0
    state: Mapping[str, UidSize] = field(default_factory=dict)
    phases: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None

    @property
    def duration_ms(self) -> int | None:
        return None if self.completed_ms is None else self.completed_ms - self.triggered_ms


class History:
    """The history table at ``url`` (local or an object store that delta-rs knows). Driver; one writer at a time.
    ``patience_s``: as in ``delta_rs_options``."""

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, patience_s: float | None = None
    ) -> None:
        self.url = normalize_url(url)
        self._options = delta_rs_options(self.url, storage_options, patience_s) or None
        retry = Retry() if patience_s is None else Retry(patience_s)
        self._folder = Folder(url, storage_options, retry)
        self._log = DeltaLog(self._folder)
        self._table: DeltaTable | None = None
        self._version = 0
        """The newest one that this object knows of."""
        self._appended: int | None = None
        """The newest checkpoint that this object has appended."""

    def record(self, row: HistoryRow) -> None:
        """:meth:`append`, as a running job does it: a failure is logged, once a process, and raised never."""
        try:
            self.append(row)
        except BaseException as error:  # delta-rs panics on some damaged files, with what is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            # Perhaps it is only this version that cannot be gone on from.
            self._table = self._appended = None
            if self.url not in _warned:
                _warned.add(self.url)
                _logger.warning(
                    "The checkpoint history at %s cannot be written (%s). The job does not need it and goes on; "
                    "'spark-ckpt repair-history DIR JOB' makes it anew.",
                    redact_url(self.url),
                    type(error).__name__,
                )

    def append(self, row: HistoryRow) -> bool:
        """Record ``row`` unless its checkpoint is recorded already; returns whether it was written.

        Called again with the same checkpoint after a crash.
        """
        while True:
            if not self._is_new(row):
                return False
            if self._put(row):
                break  # else somebody wrote since, perhaps this very checkpoint: the successor of a halted driver does
        self._appended = row.id
        if self._version % COMPACT_VERSIONS == 0:
            self._compact(self._opened() or self._created())
        return True

    def _is_new(self, row: HistoryRow) -> bool:
        """Whether nobody has recorded its checkpoint up to ``_version``, which becomes the newest."""
        if self._appended is not None and row.id > self._appended:
            newest = self._log.newest(self._version)
            if newest == self._version:  # nobody else wrote; a look goes through the whole log
                return True
            if newest is None:  # the table was removed
                self._table = None
        table = self._with_all_columns(self._opened() or self._created())
        self._version = table.version()
        recorded = table.transaction_version(_slot(row))
        return recorded is None or recorded < row.id

    def _put(self, row: HistoryRow) -> bool:
        """One file and one commit of the log, which say what delta-rs would, with a tenth of its work; returns false if
        somebody else made the version behind ``_version``."""
        data, name, now_ms = _to_parquet(_to_table(row)), f"{uuid.uuid4()}.parquet", clock.now_ms()
        self._folder.create(name, data, durable=False)
        # Stopped here: a file that no version names, which the table's vacuum removes.
        actions = (
            delta_log.commit_info_action("WRITE", {"checkpoint": row.id}, now_ms),
            delta_log.transaction_action(_slot(row), row.id, now_ms),
            delta_log.add_action(name, FileEntry(1, len(data)), now_ms),
        )
        if not self._log.put(self._version + 1, actions, durable=False):
            return False
        self._version += 1
        return True

    def write_all(self, rows: Sequence[HistoryRow]) -> None:
        """Append ``rows``, in the order of their ids, to a table that has none of them."""
        slots = {_slot(row): row.id for row in rows}
        done = CommitProperties(app_transactions=[Transaction(slot, newest) for slot, newest in slots.items()])
        table = self._with_all_columns(self._opened() or self._created())
        if rows:
            write_deltalake(table, pa.concat_tables(map(_to_table, rows)), mode="append", commit_properties=done)

    def read(
        self, newest: int | None = None, checkpoint: int | None = None, savepoints: bool = False
    ) -> list[HistoryRow]:
        """All rows by id, or the ``newest`` ones, or that of one ``checkpoint``; of ``savepoints`` only, if that is
        set. Empty if nothing was recorded. Raises ``CorruptStorageError``."""
        where = "" if checkpoint is None else f" WHERE id = {checkpoint:d}"
        where = " WHERE kind = 'savepoint'" if savepoints else where
        limit = "" if newest is None else f" LIMIT {newest:d}"
        try:
            return self._read(f"SELECT * FROM history{where} ORDER BY id DESC{limit}")
        except BaseException as error:  # as in record()
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            raise CorruptStorageError(
                f"The checkpoint history at {redact_url(self.url)} cannot be read: expected a Delta table, found"
                f" {type(error).__name__}. The job does not need it; 'spark-ckpt repair-history DIR JOB' makes it anew."
            ) from None

    def _read(self, query: str) -> list[HistoryRow]:
        table = self._opened()
        if table is None:
            return []
        # Not through pyarrow's dataset reader: its threads call back into Python, and a process that exits soon
        # afterwards may abort.
        found = QueryBuilder().register("history", table).execute(query)
        rows = pa.table(found.read_all()).to_pylist()
        return [from_dict(row) for row in reversed(rows)]

    def _opened(self) -> DeltaTable | None:
        try:
            if self._table is None:
                self._table = DeltaTable(self.url, storage_options=self._options)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return None
        return self._table

    @staticmethod
    def _with_all_columns(table: DeltaTable) -> DeltaTable:
        """Stopped here: the table has the columns, null in all rows."""
        there = {f.name for f in table.schema().fields}
        missing = [Field(name, PrimitiveType("string"), nullable=True) for name in LATER if name not in there]
        if missing:
            table.alter.add_columns(missing)
        return table

    def _created(self) -> DeltaTable:
        self._table = DeltaTable.create(
            self.url, SCHEMA, mode="ignore", name="checkpoints", storage_options=self._options
        )
        return self._table

    @staticmethod
    def _compact(table: DeltaTable) -> None:
        table.optimize.compact()
        if table.metadata().configuration.get(_LOG_RETENTION) != _ONE_HOUR:  # Delta's own default is 30 days
            table.alter.set_table_properties({_LOG_RETENTION: _ONE_HOUR})
        table.create_checkpoint()
        # An hour is enough for whoever reads an older version just now.
        table.vacuum(retention_hours=1, enforce_retention_duration=False, dry_run=False)
        table.cleanup_metadata()


def _slot(row: HistoryRow) -> str:
    return f"checkpoint-{row.id % _TRANSACTION_SLOTS}"


def _to_parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=False, store_schema=False)
    return sink.getvalue()


def _to_table(row: HistoryRow) -> pa.Table:
    value = {f.name: getattr(row, f.name) for f in fields(row)}
    value["duration_ms"] = row.duration_ms
    value["triggered"] = _instant(value.pop("triggered_ms"))
    value["completed"] = _instant(value.pop("completed_ms"))
    value["state"] = [(uid, vars(size)) for uid, size in sorted(row.state.items())]
    value["phases"] = json.dumps(row.phases, separators=(",", ":")) if row.phases else None
    return pa.Table.from_pylist([value], schema=SCHEMA)


def from_dict(value: dict[str, Any]) -> HistoryRow:
    """A row of the table, as Arrow gives it."""
    del value["duration_ms"]
    value["triggered_ms"] = _millis(value.pop("triggered"))
    value["completed_ms"] = _millis(value.pop("completed"))
    value["state"] = {uid: UidSize(**size) for uid, size in value["state"]}
    value["phases"] = json.loads(value.get("phases") or "{}")
    return HistoryRow(**value)


def _instant(millis: int | None) -> datetime | None:
    return None if millis is None else datetime.fromtimestamp(millis / 1000, timezone.utc)


def _millis(instant: datetime | None) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)
