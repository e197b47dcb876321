"""The one snapshot that a checkpoint makes of an Iceberg table, and how the table remembers it.

What is committed is said twice, in the same commit: in the snapshot's summary, for people, and in a property of the
table, which stays when snapshots expire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ckpt.arrow_types import plain_type
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import altered
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.iceberg._data_files import DataFiles, data_file, fits_as_it_is, told_of
from spark_ckpt.sinks.iceberg._merge import Merge
from spark_ckpt.sinks.iceberg._staged_files import remove
from spark_ckpt.sinks.iceberg._types import column_problems
from spark_ckpt.storage.iceberg_rows import rows_of

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_PROPERTY = "spark-ckpt.committed."
_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True)
class Entry:
    """What a table remembers of the commit of a checkpoint."""

    job: str
    sink: str
    checkpoint: int
    digest: str

    @property
    def key(self) -> str:
        return f"{_PROPERTY}{self.job}/{self.sink}"

    def summary(self) -> dict[str, str]:
        return {
            "spark-ckpt.job": self.job,
            "spark-ckpt.sink": self.sink,
            "spark-ckpt.checkpoint": str(self.checkpoint),
            "spark-ckpt.digest": self.digest,
        }

    def value(self) -> str:
        return json.dumps({"checkpoint": self.checkpoint, "digest": self.digest})

    def checkpoint_of(self, snapshot: Any) -> int | None:
        """That of this job's sink that ``snapshot`` committed."""
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if (summary.get("spark-ckpt.job"), summary.get("spark-ckpt.sink")) != (self.job, self.sink):
            return None
        return int(summary["spark-ckpt.checkpoint"])

    def recorded(self, table: Table) -> dict[int, str]:
        """Checkpoint -> digest of what ``table`` knows of this job's sink: the newest at least."""
        found = {}
        for snapshot in table.metadata.snapshots:
            checkpoint = self.checkpoint_of(snapshot)
            if checkpoint is not None and snapshot.summary is not None:
                found[checkpoint] = snapshot.summary.additional_properties["spark-ckpt.digest"]
        newest = json.loads(table.properties.get(self.key, "{}"))
        return {**found, newest["checkpoint"]: newest["digest"]} if newest else found


def newest_shown(table: Table, job: str, sink: str) -> int:
    """The newest checkpoint among the snapshots that readers of the table see; 0 if there is none.

    A table that was rolled back keeps its properties, and the snapshots that are no ancestors of the current one any
    more. Where ancestors have expired, the property is believed, unless its snapshot is there and was rolled back.
    """
    entry, known = Entry(job, sink, 0, ""), {s.snapshot_id: s for s in table.metadata.snapshots}
    recorded = entry.recorded(table)
    newest, at = max(recorded, default=0), table.current_snapshot()
    while at is not None:
        checkpoint = entry.checkpoint_of(at)
        if checkpoint is not None:
            return checkpoint
        parent = known.get(at.parent_snapshot_id or -1)
        if parent is None:
            return 0 if newest in map(entry.checkpoint_of, known.values()) else newest
        at = parent
    return 0


@dataclass(frozen=True)
class Standing:
    """``snapshot`` shows all that the job had committed up to the checkpoint; None: the table had none. Behind it came
    ``undone``, checkpoints of the job, and ``others``, snapshots of somebody else that a later one stands on."""

    snapshot: int | None
    undone: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


def standing_at(table: Table, entry: Entry, shown: str) -> Standing:
    """At ``entry.checkpoint``. Raises ``InvalidInputError`` if the snapshots do not go back that far."""
    known, at = {s.snapshot_id: s for s in table.metadata.snapshots}, table.current_snapshot()
    found = Standing(at.snapshot_id if at is not None else None)
    pending: list[int] = []
    while at is not None:
        checkpoint = entry.checkpoint_of(at)
        if checkpoint is not None and checkpoint <= entry.checkpoint:
            break
        if checkpoint is not None:
            found = Standing(at.parent_snapshot_id, (checkpoint, *found.undone), (*pending, *found.others))
            pending = []
        elif at.summary is None or at.summary.operation.value != "replace":
            pending.insert(0, at.snapshot_id)
        parent = known.get(at.parent_snapshot_id or -1)
        if parent is None and not _is_first(at):
            raise InvalidInputError(
                f"{shown}: the snapshot before {at.snapshot_id} has expired, so what it showed at the checkpoint "
                "cannot be told"
            )
        at = parent
    return found


def _is_first(snapshot: Any) -> bool:
    """Whether the table had none before it. pyiceberg forgets who the parent was when that expires, so the count of
    changes tells it; and that of rows, as tables of format 1 do not count changes."""
    if snapshot.parent_snapshot_id is not None or (snapshot.sequence_number or 0) > 1:
        return False
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return bool(summary.get("total-records", "0") == summary.get("added-records", "0"))


def check_files(table: Table, snapshot: int, shown: str) -> None:
    """Raises ``InvalidInputError`` if data files of ``snapshot`` are gone that the table does not read now."""
    now = {task.file.file_path for task in table.scan().plan_files()}
    then = {task.file.file_path for task in table.scan(snapshot_id=snapshot).plan_files()}
    lost = sorted(path for path in then - now if not table.io.new_input(path).exists())
    if lost:
        raise InvalidInputError(
            f"{shown}: {len(lost)} file(s) of snapshot {snapshot}, which it had at the checkpoint, are gone: "
            f"{', '.join(lost[:3])}"
        )


@dataclass
class Change:
    """What a snapshot adds and takes away; ``written`` are the files that were made for it, in this process."""

    added: list[DataFile] = field(default_factory=list)
    deleted: list[DataFile] = field(default_factory=list)
    written: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SnapshotMaker:
    """Makes the snapshot of one checkpoint of a freshly loaded ``table``."""

    table: Table
    entry: Entry
    generation: int
    shown: str

    def append(self, staged: Sequence[Mapping[str, Any]]) -> Change:
        """All that was staged, file by file. Rows that were staged for another partitioning, or other columns of the
        same names, are written anew."""
        change = Change()
        for one in (s for s in staged if s["rows"]):
            if fits_as_it_is(self.table, one):
                change.added.append(data_file(self.table, one))
            else:
                rows = self._staged_rows(one)
                self._check(rows, self.entry.checkpoint)
                self._write([rows], change)
        return change

    def replace(self, staged: Sequence[Mapping[str, Any]]) -> Change:
        change = self.append(staged)
        change.deleted += [task.file for task in self.table.scan().plan_files()]
        return change

    def merge(self, staged: Sequence[Mapping[str, Any]], merge: Merge) -> Change:
        """Files with rows of the keys are written anew without them, and the new rows to the first of these."""
        change = Change()
        rows = pa.concat_tables([self._staged_rows(s) for s in staged], promote_options="default")
        self._check(rows if merge.change is None else rows.drop_columns(merge.change), self.entry.checkpoint)
        new, touched = merge.last(rows, self.table.schema())
        for task in self.table.scan(row_filter=merge.filter(touched)).plan_files():
            there = self._rows_of(task, new.schema)
            kept = merge.without(there, touched)
            if len(kept) < len(there):
                change.deleted.append(task.file)
                self._write([kept, new], change)
                new = new.slice(0, 0)
        self._write([new], change)
        return change

    def _check(self, rows: pa.Table, checkpoint: int | None) -> None:
        """Raises ``InvalidInputError`` if the table was altered so that columns of staged ``rows`` have no place."""
        problems = column_problems(self.table.schema(), pa.schema([_as_filled(rows, f) for f in rows.schema]))
        if problems:
            raise altered(self.shown, checkpoint, problems)

    def commit(self, change: Change) -> None:
        """One atomic change of the table. Raises pyiceberg's ``CommitFailedException`` if somebody else was first.

        pyiceberg would then do the same again by itself, without a look at what is committed meanwhile: another driver
        may have committed this very checkpoint. So it is told not to.
        """
        self.table.metadata.properties.update(_NO_RETRIES)  # of this object in memory, and not of the table
        with self.table.transaction() as transaction:
            transaction.set_properties({self.entry.key: self.entry.value()})
            update = transaction.update_snapshot(snapshot_properties=self.entry.summary())
            with update.overwrite() if change.deleted else update.merge_append() as snapshot:
                for file in change.added:
                    snapshot.append_data_file(file)
                for file in change.deleted:
                    snapshot.delete_data_file(file)

    def forget(self, change: Change) -> None:
        """The commit surely failed: remove what was written for it."""
        remove(self.table, change.written)

    def _rows_of(self, task: FileScanTask, schema: pa.Schema) -> pa.Table:
        batches = list(rows_of(self.table, self.table.schema(), task))
        return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()

    def _staged_rows(self, staged: Mapping[str, Any]) -> pa.Table:
        with self.table.io.new_input(staged["file"]).open() as stream:
            return pq.read_table(stream)

    def _write(self, tables: Sequence[pa.Table], change: Change) -> None:
        schema = tables[0].schema
        ctx = WriterContext(
            self.entry.job, self.entry.sink, self.generation, self.entry.checkpoint, 0, len(change.written),  # type: ignore[arg-type]
            f"{self.table.metadata.new_snapshot_id()}", schema,
        )  # fmt: skip
        writer = DataFiles(self.table, staging.staged_name(ctx), ctx, self.shown)
        try:
            for rows in tables:
                for batch in rows.to_batches():
                    writer.write(batch)
            made = [json.loads(data) for data in writer.prepare_commit()]
        finally:
            writer.close()
        change.added += [data_file(self.table, one) for one in made]
        change.written += [one["file"] for one in made]


def check_staged(table: Table, staged: Sequence[Mapping[str, Any]], shown: str) -> None:
    """Raises ``InvalidInputError`` if ``table`` was altered so that columns of staged rows have no place. Rows are read
    only where the table is another one than it was for their task."""
    maker = SnapshotMaker(table, Entry("", "", 0, ""), 0, shown)
    for one in (s for s in staged if s["rows"]):
        is_same = told_of(table).items() <= one.items() if one.get("keys") else fits_as_it_is(table, one)
        if not is_same:
            rows = maker._staged_rows(one)
            maker._check(rows.drop_columns(one["change"]) if one.get("change") else rows, None)


def _as_filled(rows: pa.Table, field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), rows.column(field.name).null_count > 0)
