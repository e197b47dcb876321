"""The ``delta`` sink: one Delta version a checkpoint, append or merge by key.

Writers put Parquet files into the table's folder, where no Delta reader sees them until a commit names them. The
commit carries Delta's application transaction (``job/sink``, checkpoint): it is looked up before, and delta-rs
refuses a concurrent one, so a checkpoint lands once however often and by however many processes it is committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from json import JSONDecodeError
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from spark_ckpt.arrow_types import delta_schema
from spark_ckpt.errors import CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.names import PATH_SPECIAL
from spark_ckpt.redaction import redact, redact_url, secret_values
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import rejects, staging
from spark_ckpt.sinks._options import (
    STORAGE_OPTIONS,
    SinkOption,
    SinkOptions,
    check_path,
    option_names,
    with_absolute_path,
)
from spark_ckpt.sinks._partitions import PartitionedWriter, Values, check_partitions, without
from spark_ckpt.sinks.base import Part, PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.delta._as_of import Standing, opened_at, rows_of, standing_at
from spark_ckpt.sinks.delta._fitting import (
    added,
    check_cases,
    check_columns,
    check_keys,
    check_merged_partitions,
    check_own_names,
    check_rules,
    check_staged,
    with_columns,
)
from spark_ckpt.sinks.delta._fitting import check_partitions as check_partitions_of
from spark_ckpt.sinks.delta._log import logged_names, torn_entry
from spark_ckpt.sinks.delta._open_table import OpenTable
from spark_ckpt.sinks.delta._restored import newest_shown
from spark_ckpt.sinks.delta._versions import add, merge
from spark_ckpt.sinks.delta._writer import KIND, DeltaWriter, check_rows
from spark_ckpt.sinks.rejects import CheckedWriter
from spark_ckpt.storage.create_if_absent import require_create_if_absent
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.object_options import S3_SCHEMES, delta_rs_options, scheme_of
from spark_ckpt.storage.retry import Retry
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_COMMIT_TRIES = 10
_RETRY = Retry()


class DeltaSink(TwoPhaseSink):
    """Options: ``path``; ``mode`` (append, merge), ``mergeKeys`` and ``changeColumn``; ``partitionBy``;
    ``mergeSchema``; ``rejects``; ``storage.*``, as ``spark.ckpt.storage.*`` are for the job.

    Merging, the last row a key wins, and keys that are null are equal to each other. A merge reads what the
    checkpoint staged into the driver's memory. Someone else's commits to the table are met by trying again. A process
    killed inside a merge may leave files with delta-rs's own names; like any writer's, VACUUM removes them.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("path", "a folder or a URL that delta-rs knows", "The table; made if there is none.", required=True),
        SinkOption(
            "mode", "append or merge", "With `mergeKeys` it is `merge`, without `append`.", choices=("append", "merge")
        ),
        SinkOption("mergeKeys", "columns, comma separated", "The last row of each key replaces the one in the table."),
        changes.CHANGE_OPTION,
        SinkOption(
            "partitionBy", "columns, comma separated", "The table's partition columns, as Spark's `partitionBy`."
        ),
        SinkOption(
            "mergeSchema",
            "true or false",
            "Add the columns, and fields of structs, that the table does not have, when the query starts.",
            "false",
        ),
        rejects.option("a folder or a URL that delta-rs knows"),
        STORAGE_OPTIONS,
    )
    REJECTS = ("path", "storage.*")
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(KIND, options, self.DECLARED)
        path = parsed.required("path")
        self._path = "/" + path[5:].lstrip("/") if path.startswith("file:") else path
        self._local = "://" not in self._path
        self._keys, self._partitions = parsed.merge_keys(), parsed.names("partitionBy")
        self._change = changes.change_column(KIND, parsed, self._keys)
        self._merge_schema = parsed.flag("mergeSchema")
        self._rejects = parsed.text(rejects.NAME)
        self._given = parsed.fsspec()
        delta_rs_options(self._path, self._given)  # refuses what it does not know

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return with_absolute_path(options)

    def __repr__(self) -> str:
        return f"DeltaSink({self._path})"

    @cached_property
    def _storage(self) -> dict[str, str]:
        return delta_rs_options(self._path, self._given, self.patience_s)

    @cached_property
    def _table(self) -> OpenTable:
        return OpenTable(self._path, self._storage)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Of what is not a commit: what the store says, without secrets."""
        try:
            yield
        except (DeltaError, OSError, JSONDecodeError) as error:
            raise self._torn(error) or RetryableError(
                f"Delta table {redact_url(self._path)}: {doing} failed: {self._told(error)}. Nothing is lost: try "
                "again when the store answers"
            ) from None

    def _torn(self, error: Exception) -> CorruptStorageError | None:
        """What to raise if ``error`` comes of an entry of the log that is half written: no other try can help."""
        is_json = isinstance(error, JSONDecodeError) or "Json error" in str(error)
        torn = torn_entry(self._files()) if is_json else None
        if torn is None:
            return None
        return CorruptStorageError(
            f"Delta table {redact_url(self._path)}: expected whole JSON in its log, found {torn} half written, so "
            "nobody can read the table. Put back a good copy of that file. If there is none, and it is the newest, "
            "remove it: the table is then as it was ahead of that commit. Then start the query again: what it has to "
            "show, and the table has not, is committed then"
        )

    def validate(self, schema: pa.Schema) -> None:
        """Creates the table if it is absent. Refuses one the rows do not fit or whose rules nobody would check."""
        # delta-rs merges through URLs, in which more is special; what it takes for quoted, no mode can have.
        quoted = "%" if re.search("%[0-9A-Fa-f]{2}", self._path) else ""
        check_path(KIND, self._path, PATH_SPECIAL if self._keys else f"{quoted}\\")
        changes.check_column(self._change, schema)
        schema = changes.without(self._change, schema)
        wanted = delta_schema(schema)
        check_keys(self._keys, wanted)
        check_partitions(self._partitions, wanted)
        if self._keys:
            check_merged_partitions(redact_url(self._path), self._partitions, wanted)
        shown = f"Delta table {redact_url(self._path)}"
        check_cases(shown, wanted)
        table = self._made(wanted)
        check_rules(self._path, table, self._rewrites)
        check_partitions_of(self._path, table, self._partitions)
        there = pa.schema(table.schema())
        check_cases(shown, with_columns(there, wanted))
        if self._keys:
            check_own_names(shown, table, with_columns(there, wanted))
        fitting = with_columns(there, wanted) if self._merge_schema else there
        # Rows with nulls where the table has none are refused one by one, if they have somewhere to go.
        declared = _without_nulls(schema) if self._rejects else schema
        check_columns(self._path, fitting, wanted, declared)
        if fitting is not there:
            self._until_no_conflict(self._adding(wanted))

    def _made(self, wanted: pa.Schema) -> DeltaTable:
        """The table, made if it is absent."""
        try:
            if self._local:
                durable.make_folders(self._path)
            elif scheme_of(self._path) in S3_SCHEMES:  # stores of other makers speak S3, and not all of it
                require_create_if_absent(Folder(self._path, self._given))
            DeltaTable.create(
                self._path,
                schema=wanted,
                mode="ignore",
                partition_by=list(self._partitions),
                storage_options=self._storage,
            )
            table = self._table.open()
            if self._local:
                durable.sync_new_delta(self._path)
        except (DeltaError, OSError, ValueError) as error:
            raise self._torn(error) or InvalidInputError(
                f"Delta table {self._path} cannot be made or opened: {self._told(error)}"
            ) from None
        return table

    @property
    def _rewrites(self) -> str | None:
        """What removes rows of the table, as messages name it."""
        if self.replacing:
            return "output mode complete"
        return "mergeKeys" if self._keys else None

    def _adding(self, wanted: pa.Schema) -> Callable[[DeltaTable], None]:
        """Adds a version with the query's columns; none if it was stopped behind that, or somebody else was faster."""

        def add_columns(table: DeltaTable) -> None:
            there = pa.schema(table.schema())
            fitting = with_columns(there, wanted)
            if fitting is not there:
                table.alter.add_columns(list(added(there, fitting).fields))

        return add_columns

    def writer(self, ctx: WriterContext) -> SinkWriter:
        not_null = {f.name: f for f in ctx.schema if not f.nullable}
        if ctx.refused is not None:
            with self._errors("looking at its columns"):
                not_null |= {f.name: f for f in pa.schema(self._table.open().schema()) if not f.nullable}
        known = [n for n in not_null if n in ctx.schema.names], self._change, bool(self._keys), self._partitions
        return CheckedWriter(self._writer(ctx), lambda batch: check_rows(batch, *known), ctx.refused)

    def _writer(self, ctx: WriterContext) -> SinkWriter:
        files, folder = self._files(), self._path if self._local else None
        if self._keys or not self._partitions:  # a merge writes the table's files itself
            return DeltaWriter(files, ctx, self._keys, folder, redact_url(self._path), change=self._change)
        inner = replace(ctx, schema=without(self._partitions, ctx.schema))

        def opened(values: Values, number: int) -> SinkWriter:
            place = number, dict(zip(self._partitions, values, strict=True))
            return DeltaWriter(files, inner, (), folder, redact_url(self._path), place)

        return PartitionedWriter(self._partitions, opened, ctx.replacing)

    def try_commit(self, parts: Sequence[Part]) -> None:
        """Whether the table has room for what was staged: somebody may have altered it since the start."""
        for part in parts:
            staged = [staging.decode(KIND, c) for c in part.committables]
            with self._errors("looking at it before a checkpoint is complete"):
                table = self._table.open()
                check_rules(self._path, table, self._rewrites)
                check_staged(self._path, table, staged, None)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        staged = [staging.decode(KIND, c) for c in committables]
        app, found = f"{permit.job}/{sink}", staging.digest(committables)
        properties = CommitProperties(
            app_transactions=[Transaction(app, permit.checkpoint)],
            custom_metadata={"ckpt": {"app": app, "checkpoint": permit.checkpoint, "digest": found}},
        )

        def apply(table: DeltaTable) -> None:
            if self._is_committed(table, permit, sink, found):
                return
            check_rules(self._path, table, self._rewrites)  # somebody may have changed the table since the start
            check_staged(self._path, table, staged, permit.checkpoint)
            self._check_there(staged)
            self._step("before version")  # a crash here: the files are staged as before, the next commit starts over
            self._add_version(table, staged, properties)
            self._step("after version")  # a crash here: the application transaction tells the next commit it is done

        self._until_no_conflict(apply)
        if self._local:
            # A power loss before or in here: `committed/K` is not written yet, the next start does it again.
            durable.sync_delta(self._path, app, permit.checkpoint)
        if _merge_keys(staged):  # a crash before or in here: the next commit or gc removes the rest
            self._remove([s["file"] for s in staged])

    def _add_version(
        self, table: DeltaTable, staged: Sequence[Mapping[str, Any]], properties: CommitProperties
    ) -> None:
        keys = _merge_keys(staged)
        if keys:
            # Staged by a release that did not look.
            check_merged_partitions(
                redact_url(self._path), table.metadata().partition_columns, pa.schema(table.schema())
            )
            change = next((s["change"] for s in reversed(staged) if s.get("change")), None)
            merge(table, self._files(), staged, keys, change, properties)
        else:
            add(table, self._files(), staged, "overwrite" if self.replacing else "append", properties)

    def newest_checkpoint(self, job: str, sink: str) -> int | None:
        """Reads the log from its end to the newest commit of ours."""
        app = f"{job}/{sink}"
        with self._errors("looking for the newest checkpoint"):
            table = self._table.open()
            recorded = self._table.transactions.newest(table, self._files(), app)
            return newest_shown(self._files(), table.version(), app, recorded) if recorded else 0

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        with self._errors("looking for the version of a checkpoint"):
            table = self._table.open()
            version = self._standing(table, job, sink, checkpoint).version
            then = opened_at(table, version, self._files(), self._storage, self._shown)
            return PastRows(f"version {version}", rows_of(then, self._shown))

    @property
    def _shown(self) -> str:
        return f"Delta table {redact_url(self._path)}"

    def _standing(self, table: DeltaTable, job: str, sink: str, checkpoint: int) -> Standing:
        return standing_at(self._files(), table.version(), f"{job}/{sink}", checkpoint, self._shown)

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        with self._errors("looking for the version of a checkpoint"):
            found = self._to_undo(self._table.open(), job, sink, checkpoint)
        return str(found) if found.undone else ""

    def _to_undo(self, table: DeltaTable, job: str, sink: str, checkpoint: int) -> Standing:
        """Raises ``InvalidInputError`` unless the table can be restored to it."""
        found = self._standing(table, job, sink, checkpoint)
        if found.others:
            versions = ", ".join(map(str, found.others))
            raise InvalidInputError(
                f"{self._shown}: somebody else changed rows in its version(s) {versions}, which going back to version "
                f"{found.version} would undo, too. If that is right, restore it yourself: RESTORE TABLE ... TO VERSION "
                f"AS OF {found.version}"
            )
        if found.undone:
            check_rules(redact_url(self._path), table, "a rollback")
            opened_at(table, found.version, self._files(), self._storage, self._shown)
        return found

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        def restore(table: DeltaTable) -> None:
            found = self._to_undo(table, job, sink, checkpoint)
            if found.undone:
                # A crash before the version is written: nothing happened. Behind it: nothing is left to undo.
                table.restore(found.version)

        self._until_no_conflict(restore, "going back failed", "Run the rollback again")
        if self._local:
            durable.sync_newest_delta(self._path)

    def abort(self, committables: Sequence[Committable]) -> None:
        with self._errors("aborting"):
            self._remove([staging.decode(KIND, c)["file"] for c in committables])

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        named = {staging.decode_any(c).get("file") for c in keep}
        prefix = staging.staged_prefix(job)
        with self._errors("collecting garbage"):
            return self._remove([n for n in self._present() if n.startswith(prefix) and n not in named])

    def staged_by(self) -> dict[str, int]:
        """Reads the table's log."""
        with self._errors("looking for what is staged"):
            present = [n for n in self._present() if n.startswith("ckpt-")]
            logged = logged_names(self._files(), present) if present else set()
        return staging.count_stagers(n for n in present if n not in logged)

    def discard(self, who: str) -> list[str]:
        with self._errors("collecting garbage"):
            return self._remove([n for n in self._present() if n.startswith(staging.prefix_of(who))])

    def _present(self) -> list[str]:
        return [i.base_name for i in self._files().get_file_info(pafs.FileSelector("", allow_not_found=True))]

    def _files(self) -> pafs.FileSystem:
        return self._table.files()

    def _is_committed(self, table: DeltaTable, permit: CommitPermit, sink: str, found: str) -> bool:
        app = f"{permit.job}/{sink}"
        version = self._table.transactions.newest(table, self._files(), app)
        if version is None or version < permit.checkpoint:
            return False
        notes = (h.get("ckpt") for h in table.history())
        ours = [
            n for n in notes if isinstance(n, dict) and (n.get("app"), n.get("checkpoint")) == (app, permit.checkpoint)
        ]
        staging.check_same_life(f"Delta table {self._path}", permit, sink, ours[0]["digest"] if ours else None, found)
        return True

    def _check_there(self, staged: Sequence[Mapping[str, Any]]) -> None:
        infos = self._files().get_file_info([s["file"] for s in staged])
        missing = [i.path for i in infos if i.type != pafs.FileType.File]
        if missing:
            raise CorruptStorageError(
                f"staged file(s) {', '.join(missing)} are missing from {self._path}: was the table made anew, or "
                "vacuumed with a retention shorter than a checkpoint takes? Nothing was committed; put them back"
            )

    def _told(self, error: Exception) -> str:
        return redact(str(error), secret_values(self._storage))

    def _until_no_conflict(
        self,
        apply: Callable[[DeltaTable], None],
        failed: str = "the commit failed",
        way: str = "Start the query again: it commits what is missing",
    ) -> None:
        pauses = _RETRY.pauses()
        for _ in range(_COMMIT_TRIES):
            try:
                return apply(self._table.open())
            except CommitFailedError as error:
                last = self._told(error)
            except (DeltaError, OSError, JSONDecodeError) as error:
                raise self._torn(error) or RetryableError(
                    f"Delta table {self._path}: {failed}: {self._told(error)}. {way}"
                ) from None
            _RETRY.sleep(next(pauses))
        raise RetryableError(
            f"Delta table {self._path}: {_COMMIT_TRIES} commits met a conflict, the last one: {last}. Nothing was "
            f"committed. {way}"
        )

    def _remove(self, names: Sequence[str]) -> list[str]:
        """Delete those of ``names`` that no version of the table ever named; returns them."""
        files = self._files()
        present = [i.path for i in files.get_file_info(list(names)) if i.type == pafs.FileType.File]
        if not present:
            return []
        logged = logged_names(files, present)
        lost = [n for n in present if n not in logged]
        for name in lost:
            files.delete_file(name)
        return lost


def _without_nulls(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(False) for f in schema])


def _merge_keys(staged: Sequence[Mapping[str, Any]]) -> list[str]:
    """As the query that staged last had them; none if it appends."""
    return next((s["keys"] for s in reversed(staged) if s["keys"]), [])
