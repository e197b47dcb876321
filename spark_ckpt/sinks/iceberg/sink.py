"""The ``iceberg`` sink: one snapshot a checkpoint, append or upsert by key.

Writers put Parquet files into the table's data folder, where no reader sees them until a commit adds them. The commit
says in the snapshot's summary and in a property of the table which checkpoint it is: that is looked up before, and the
catalogue refuses a commit that does not follow the snapshot it was made for, so a checkpoint lands once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import rejects, staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions, option_names
from spark_ckpt.sinks.base import Part, PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.iceberg import _staged_files as staged_files
from spark_ckpt.sinks.iceberg._data_files import KIND, DataFiles, local_path, refuse_folders, refuse_others
from spark_ckpt.sinks.iceberg._keyed_files import KeyedFile
from spark_ckpt.sinks.iceberg._merge import Merge
from spark_ckpt.sinks.iceberg._partitions import check_spec, check_terms, parse_terms
from spark_ckpt.sinks.iceberg._snapshots import (
    Change,
    Entry,
    SnapshotMaker,
    Standing,
    check_files,
    check_staged,
    newest_shown,
    standing_at,
)
from spark_ckpt.sinks.iceberg._types import check_columns, check_names, iceberg_arrow
from spark_ckpt.sinks.rejects import CheckedWriter, refuse_nulls
from spark_ckpt.storage.iceberg_catalog import FAILURES, IcebergCatalog, absolute, check_catalog
from spark_ckpt.storage.retry import Retry
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

if TYPE_CHECKING:
    from pyiceberg.table import Table

_COMMIT_TRIES = 10
_NEWEST_FORMAT = 2
_RETRY = Retry()


class IcebergSink(TwoPhaseSink):
    """Options: ``table``; ``catalog`` (its name) and ``catalog.*`` (pyiceberg's properties); ``createTable``;
    ``partitionBy``; ``mode`` (append, upsert), ``mergeKeys`` and ``changeColumn``;
    ``rejects``.

    Upserting, the last row a key wins, and keys that are null are equal to each other; files that have rows of these
    keys are written anew by the driver. Someone else's commits to the table are met by trying again.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("table", "namespace.table", "The table; made if there is none.", required=True),
        SinkOption("catalog", meaning="The catalogue's name, as in pyiceberg's configuration.", default="default"),
        SinkOption("catalog.*", "text", "The catalogue's properties as pyiceberg names them: `catalog.uri` and so on."),
        SinkOption("createTable", "true or false", "Make the table if there is none.", "true"),
        SinkOption(
            "partitionBy",
            "columns or transforms, comma separated",
            "Of a new table: `city, day(ts), bucket(16, id)`. Of one that is there it may be left out.",
        ),
        SinkOption(
            "mode",
            "append or upsert",
            "With `mergeKeys` it is `upsert`, without `append`.",
            choices=("append", "upsert"),
        ),
        SinkOption("mergeKeys", "columns, comma separated", "The last row of each key replaces the one in the table."),
        changes.CHANGE_OPTION,
        rejects.option("namespace.table"),
    )
    REJECTS = ("table", "catalog", "catalog.*")
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(KIND, options, self.DECLARED)
        properties = {k.lower(): v for k, v in parsed.prefixed("catalog.").items()}
        check_catalog("sink 'iceberg'", properties)
        name = parsed.text("catalog") or ""
        self._catalog = IcebergCatalog("sink 'iceberg'", name, properties, parsed.required("table"))
        self._create, self._terms = parsed.flag("createTable"), parse_terms(parsed.text("partitionBy"))
        self._keys, self._rejects = parsed.merge_keys(), parsed.text(rejects.NAME)
        self._change = changes.change_column(KIND, parsed, self._keys)

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return absolute(options)

    def __repr__(self) -> str:
        return f"IcebergSink({self._catalog.name}.{self._catalog.table})"

    def validate(self, schema: pa.Schema) -> None:
        """Connects, creates the table if it is absent, and refuses one that the rows do not fit."""
        changes.check_column(self._change, schema)
        rows = changes.without(self._change, schema)
        stored = iceberg_arrow(rows)
        check_names(repr(self._catalog), stored)
        staging.require_columns("mergeKeys", self._keys, rows)
        nested = [k for k in self._keys if pt.is_nested(stored.field(k).type)]
        if nested:
            raise InvalidInputError(f"option 'mergeKeys' names {', '.join(nested)}, which are nested; keys are flat")
        with self._catalog.errors("opening it", InvalidInputError):
            table = self._open(stored)
            self._refuse_version(table)
            check_spec(repr(self._catalog), table.spec(), table.schema(), self._terms)
            check_columns(repr(self._catalog), table.schema(), self._fitting(rows))
        absent = [f.name for f in table.schema().fields if f.name not in rows.names]
        if self._keys and absent:
            raise InvalidInputError(
                f"{self._catalog} has columns that the query has not: {', '.join(absent)}. With mergeKeys whole rows "
                "are replaced: add them to the query, such as F.lit(None).cast(...)"
            )

    def _refuse_version(self, table: Table) -> None:
        if table.format_version > _NEWEST_FORMAT:
            raise InvalidInputError(
                f"{self._catalog} has format version {table.format_version}, and pyiceberg writes versions up to "
                f"{_NEWEST_FORMAT}; write to a table of version {_NEWEST_FORMAT} (property format-version)"
            )

    def _open(self, stored: pa.Schema) -> Table:
        try:
            return self._catalog.load()
        except NoSuchTableError:
            if not self._create:
                raise InvalidInputError(f"{self._catalog} does not exist and option 'createTable' is false") from None
        try:
            with self._catalog.catalog.create_table_transaction(self._catalog.table, schema=stored) as transaction:
                check_terms(self._terms, transaction.table_metadata.schema())
                with transaction.update_spec() as spec:
                    for term in self._terms:
                        spec.add_field(term.column, term.transform, term.field)
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another job makes it at the same time
        except FAILURES:
            self._refuse_namespace()
            raise
        return self._catalog.load()

    def _refuse_namespace(self) -> None:
        """REST catalogues say in ways of their own that it is not there; some only when the table is committed."""
        namespace = self._catalog.table.rpartition(".")[0]
        try:
            self._catalog.catalog.load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            raise InvalidInputError(
                f"{self._catalog}: namespace {namespace} does not exist; create it, such as with CREATE NAMESPACE "
                f"{namespace} in Spark, or catalog.create_namespace({namespace!r}) in pyiceberg"
            ) from None

    def writer(self, ctx: WriterContext) -> SinkWriter:
        stem = staging.staged_name(ctx)
        with self._catalog.errors("opening it to stage rows"):
            # A task that fails is run again four times at once, which no outage is as short as.
            table = self._catalog.load_patiently(self.patience_s)
            check_columns(repr(self._catalog), table.schema(), self._fitting(changes.without(self._change, ctx.schema)))
            if self._keys:
                inner: SinkWriter = KeyedFile(table, stem, ctx, repr(self._catalog), self._keys, self._change)
            else:
                inner = DataFiles(table, stem, ctx, repr(self._catalog))
        required = {f.name for f in table.schema().fields if f.required} if ctx.refused is not None else set()
        not_null = [f.name for f in ctx.schema if not f.nullable or f.name in required]
        by_folder = ctx.refused is not None and not self._keys and not table.spec().is_unpartitioned()

        def look(batch: pa.RecordBatch) -> None:
            refuse_nulls(batch, not_null)
            changes.check_rows(self._change, batch)
            if by_folder:  # else a name that is none is met when its file is opened
                refuse_folders(table, pa.Table.from_batches([batch]))

        return CheckedWriter(inner, look, ctx.refused)

    def _fitting(self, rows: pa.Schema) -> pa.Schema:
        """Rows with nulls where the table has none are refused one by one, if they have somewhere to go."""
        return pa.schema([f.with_nullable(False) for f in rows]) if self._rejects else rows

    def try_commit(self, parts: Sequence[Part]) -> None:
        """Whether the table has room for what was staged: somebody may have altered it since the start."""
        with self._catalog.errors("looking at it before a checkpoint is complete"):
            table = self._catalog.load_patiently(self.patience_s)
            for staged in ([staging.decode(KIND, c) for c in p.committables] for p in parts):
                refuse_others(table, staged, repr(self._catalog))
                check_staged(table, staged, repr(self._catalog))

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        staged = [staging.decode(KIND, c) for c in committables]
        entry = Entry(permit.job, sink, permit.checkpoint, staging.digest(committables))
        table = self._until_no_conflict(entry, permit, staged)
        # A crash before or in here: the next commit or gc removes the rest.
        with self._catalog.errors(f"cleaning up behind checkpoint {permit.checkpoint}"):
            merged = any(map(_is_keyed, staged))
            staged_files.remove(table, [s["file"] for s in staged if merged or not s["rows"]])

    def _until_no_conflict(self, entry: Entry, permit: CommitPermit, staged: Sequence[Mapping[str, Any]]) -> Table:
        pauses, last = _RETRY.pauses(), ""
        for _ in range(_COMMIT_TRIES):
            try:
                return self._try(entry, permit, staged)
            except CommitFailedException as conflict:
                last = self._catalog.told(conflict)
            except NoSuchTableError:
                with self._catalog.errors(f"committing checkpoint {permit.checkpoint}"):
                    raise
            except FAILURES as error:
                # Whether it landed may be unknown: the next try looks.
                last = self._catalog.told(error)
            _RETRY.sleep(next(pauses))
        raise RetryableError(
            f"{self._catalog}: checkpoint {permit.checkpoint} could not be committed in {_COMMIT_TRIES} tries, the "
            f"last one: {last}. Start the query again: it commits what is missing"
        )

    def _try(self, entry: Entry, permit: CommitPermit, staged: Sequence[Mapping[str, Any]]) -> Table:
        table = self._catalog.load()
        recorded = entry.recorded(table)
        if max(recorded, default=0) >= permit.checkpoint:
            known = recorded.get(permit.checkpoint)
            staging.check_same_life(repr(self._catalog), permit, entry.sink, known, entry.digest)
            return table
        refuse_others(table, staged, repr(self._catalog))
        self._check_staged(table, staged)
        self._step("before snapshot")  # a crash here: the files are staged as before, the next commit starts over
        maker = SnapshotMaker(table, entry, permit.generation, repr(self._catalog))
        change = self._change_of(maker, staged)
        try:
            maker.commit(change)
        except CommitFailedException:
            maker.forget(change)  # a crash before or in here: gc removes what was written for this try
            raise
        self._sync(table)
        self._step("after snapshot")  # a crash here: the table's property tells the next commit it is done
        return table

    def _change_of(self, maker: SnapshotMaker, staged: Sequence[Mapping[str, Any]]) -> Change:
        keyed = [s for s in staged if _is_keyed(s)]
        if not keyed:
            return maker.replace(staged) if self.replacing else maker.append(staged)
        change = next((s["change"] for s in reversed(keyed) if s["change"]), None)
        return maker.merge(staged, Merge(tuple(keyed[-1]["keys"]), change))

    def newest_checkpoint(self, job: str, sink: str) -> int:
        with self._catalog.errors("looking for the newest checkpoint"):
            return newest_shown(self._catalog.load(), job, sink)

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        with self._catalog.errors("looking for the snapshot of a checkpoint"):
            table = self._catalog.load()
            found = self._standing(table, job, sink, checkpoint)
            if found.snapshot is not None:
                check_files(table, found.snapshot, repr(self._catalog))
        return PastRows(f"snapshot {found.snapshot or 'none'}", lambda: self._rows_at(found.snapshot))

    def _rows_at(self, snapshot: int | None) -> pa.RecordBatchReader:
        with self._catalog.errors("reading an older snapshot"):
            table = self._catalog.load()
            if snapshot is None:
                return table.schema().as_arrow().empty_table().to_reader()
            return table.scan(snapshot_id=snapshot).to_arrow_batch_reader()

    def _standing(self, table: Table, job: str, sink: str, checkpoint: int) -> Standing:
        return standing_at(table, Entry(job, sink, checkpoint, ""), repr(self._catalog))

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        with self._catalog.errors("looking for the snapshot of a checkpoint"):
            table = self._catalog.load()
            found = self._standing(table, job, sink, checkpoint)
            if found.undone and found.snapshot is not None:
                check_files(table, found.snapshot, repr(self._catalog))
        if found.undone and found.snapshot is None:
            raise InvalidInputError(
                f"{self._catalog} had no snapshot yet, and Iceberg cannot go back to none: all of its rows came later. "
                "Drop the table, create it again as it is, without rows, and roll back again"
            )
        if found.others:
            raise InvalidInputError(
                f"{self._catalog}: somebody else changed rows in snapshot(s) {', '.join(map(str, found.others))}, "
                f"which going back to snapshot {found.snapshot} would undo, too. If that is right, roll it back "
                f"yourself: CALL system.rollback_to_snapshot('{self._catalog.table}', {found.snapshot})"
            )
        told = f"checkpoint(s) {', '.join(map(str, found.undone))}, back to snapshot {found.snapshot}"
        return told if found.undone else ""

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        if not self.to_undo(job, sink, checkpoint):
            return
        with self._catalog.errors(f"going back to checkpoint {checkpoint}"):
            table = self._catalog.load()
            found = self._standing(table, job, sink, checkpoint)
            if found.undone and found.snapshot is not None:
                # One change of the catalogue: a crash before it changes nothing, behind it nothing is left to undo.
                table.manage_snapshots().rollback_to_snapshot(found.snapshot).commit()
                self._sync(table)

    def abort(self, committables: Sequence[Committable]) -> None:
        locations = [staging.decode(KIND, c)["file"] for c in committables]
        with self._catalog.errors("aborting"):
            staged_files.remove_unknown(self._catalog.load(), locations)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        named = {staged_files.base_name(str(staging.decode_any(c).get("file", ""))) for c in keep}
        return self._collect(staging.staged_prefix(job), named)

    def discard(self, who: str) -> list[str]:
        return self._collect(staging.prefix_of(who), set())

    def staged_by(self) -> dict[str, int]:
        """Lists the table's data folder and reads its manifests."""
        with self._catalog.errors("looking for what is staged"):
            table = self._catalog.load()
            found = staged_files.present(table, "ckpt-")
            known = staged_files.known(table, found)
        return staging.count_stagers(n for n in found if n not in known)

    def _collect(self, prefix: str, named: set[str]) -> list[str]:
        with self._catalog.errors("collecting garbage"):
            table = self._catalog.load()
            found = staged_files.present(table, prefix)
            return staged_files.remove_unknown(table, [where for name, where in found.items() if name not in named])

    def _check_staged(self, table: Table, staged: Sequence[Mapping[str, Any]]) -> None:
        missing = [s["file"] for s in staged if not table.io.new_input(s["file"]).exists()]
        if missing:
            raise CorruptStorageError(
                f"{self._catalog}: staged file(s) {', '.join(missing)} are missing: did a removal of orphan files run "
                "with a retention shorter than a checkpoint takes? Nothing was committed; put them back"
            )

    def _sync(self, table: Table) -> None:
        """A power loss before or in here: ``committed/K`` is not written yet, the next start does it again."""
        snapshot = table.current_snapshot()
        if local_path(table.metadata_location) is None or snapshot is None:
            return
        own = [m.manifest_path for m in snapshot.manifests(table.io) if m.added_snapshot_id == snapshot.snapshot_id]
        paths = [local_path(p) for p in (*own, snapshot.manifest_list, table.metadata_location)]
        durable.sync([p for p in paths if p is not None])


def _is_keyed(staged: Mapping[str, Any]) -> bool:
    return bool(staged.get("keys"))
