"""The ``files`` sink: Parquet, JSON or CSV files in a folder, by fsspec.

Writers stage below ``.staging/``. A commit moves each staged file to its final name, which depends on nothing but the
checkpoint and the file's place in it, and then writes ``_manifests/{checkpoint}-{job and sink}.json``.

What is atomic: the manifest. It appears once all its files are in place, whole, and only then; who reads just the
files that manifests name sees whole checkpoints. What is not: the folder. Who lists it, as Spark does, sees a prefix
of the checkpoint's files while a commit is under way, or after a crash within one until the query starts again; each
single file is whole. Files are never rewritten, and hidden names (``.`` or ``_`` first) are not for readers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.dataset as pds

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.redaction import redact, redact_url, secret_values
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import rejects, staging
from spark_ckpt.sinks._files_writer import KIND, FilesWriter
from spark_ckpt.sinks._options import (
    STORAGE_OPTIONS,
    SinkOption,
    SinkOptions,
    check_path,
    option_names,
    with_absolute_path,
)
from spark_ckpt.sinks._partitions import PartitionedWriter, check_partitions, folder_of, refuse_folders, without
from spark_ckpt.sinks.base import PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.files_formats import EXTENSIONS, FileOptions, check_schema
from spark_ckpt.storage.filesystem import make_on, open_filesystem
from spark_ckpt.storage.job_paths import checkpoint_of
from spark_ckpt.storage.object_options import OBJECT_STORES, scheme_of
from spark_ckpt.storage.refusals import writing
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_STAGING, _MANIFESTS = ".staging", "_manifests"
_UNDONE = ".undone"
"""Behind the name of a manifest whose files a rollback is about to remove."""


class FilesSink(TwoPhaseSink):
    """Options: ``path`` (any fsspec URL), ``fileFormat`` (parquet, json, csv, text), ``header`` (of CSV files, true).

    ``partitionBy``, ``sep``, ``escape``, ``compression``, ``rejects``. ``storage.*`` goes to the fsspec file system,
    JSON objects, lists and booleans as such. Rows are appended, one file a task and epoch, and with ``partitionBy`` one
    for each combination of values. JSON and CSV files have timestamps with a zone in UTC. See the module for what
    readers see when.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("path", "a folder, local or any fsspec URL", "Where the files go.", required=True),
        SinkOption(
            "fileFormat",
            "parquet, json, csv or text",
            "json is one object a line, text a line of the one column, a string.",
            "parquet",
            tuple(sorted(EXTENSIONS)),
        ),
        SinkOption("header", "true or false", "csv only. The first line names the columns.", "true"),
        SinkOption("sep", "one character", "csv only. What stands between two values.", ","),
        SinkOption(
            "escape",
            '`"` or `\\`',
            'csv only. What stands in front of a quote within quotes. `format("csv")` has Spark\'s default, `\\`.',
            '"',
            ('"', "\\"),
        ),
        SinkOption(
            "compression",
            "none, snappy, gzip, zstd or lz4",
            "parquet only.",
            "snappy",
            ("none", "uncompressed", "snappy", "gzip", "zstd", "lz4"),
        ),
        SinkOption(
            "partitionBy", "columns, comma separated", "Folders `column=value`, as Spark's `partitionBy` makes them."
        ),
        rejects.option("a folder, local or any fsspec URL; of JSON files"),
        STORAGE_OPTIONS,
    )
    REJECTS = ("path", "storage.*")
    REJECTS_AS: ClassVar[Mapping[str, str]] = {"fileFormat": "json"}
    OPTIONS = option_names(DECLARED)
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(KIND, options, self.DECLARED)
        self._url = parsed.required("path").rstrip("/") or "/"
        self._format = parsed.choice("fileFormat")
        self._how = FileOptions(
            parsed.flag("header"), _separator(parsed), parsed.choice("escape"), parsed.choice("compression")
        )
        self._partitions = parsed.names("partitionBy")
        self._storage = parsed.fsspec()

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return with_absolute_path(options)

    def __repr__(self) -> str:
        return f"FilesSink({self._url}, {self._format})"

    def validate(self, schema: pa.Schema) -> None:
        """Also proves that the folder can be written."""
        check_partitions(self._partitions, schema)
        check_schema(self._format, without(self._partitions, schema))
        check_path(KIND, self._url)
        try:
            files, root = self._open()
            probe = f"{_STAGING}/.probe-{uuid.uuid4().hex}"
            if durable.is_local(files):
                durable.make_folders(f"{root}/{_STAGING}")
                durable.make_folders(f"{root}/{_MANIFESTS}")
            make_on(files, f"{root}/{_STAGING}")
            with writing(lambda: redact_url(f"{self._url}/{probe}")):
                files.pipe_file(f"{root}/{probe}", b"")
                files.rm_file(f"{root}/{probe}")
        except (OSError, ValueError, ImportError) as error:
            told = redact(str(error), secret_values(self._storage))
            raise InvalidInputError(f"{self!r}: the folder cannot be written: {told}") from None

    def writer(self, ctx: WriterContext) -> SinkWriter:
        files, root = self._open()
        folder = f"{root}/{_STAGING}"
        if not self._partitions:
            return FilesWriter(files, folder, ctx, self._format, self._how)
        inner = replace(ctx, schema=without(self._partitions, ctx.schema))
        parts = PartitionedWriter(
            self._partitions,
            lambda values, number: FilesWriter(
                files, folder, inner, self._format, self._how, (folder_of(self._partitions, values), number)
            ),
        )
        if ctx.refused is None:  # a name that is none is met when its file is opened
            return parts
        return rejects.CheckedWriter(parts, partial(refuse_folders, self._partitions), ctx.refused)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        with self._disk(f"committing checkpoint {permit.checkpoint}"):
            self._commit(permit, committables)

    def _commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        staged = [staging.decode(KIND, c) for c in committables]
        files, root = self._open()
        found = staging.digest(committables)
        place = f"{permit.checkpoint:010d}-{staging.tag(f'{permit.job}/{sink}')}"
        manifest = f"{root}/{_MANIFESTS}/{place}.json"
        if files.exists(manifest):
            recorded = json.loads(files.cat_file(manifest))["digest"]
            staging.check_same_life(manifest, permit, sink, recorded, found)
            self._sync(files, f"{root}/{_MANIFESTS}")  # who wrote it may have been killed right then
            return
        names = _final_names(place, staged)
        self._check_present(files, root, staged, names)
        self._move_all(files, root, staged, names)
        self._step("before manifest")  # a crash here: everything is in place, the next commit writes the manifest
        listed = [{"file": n, "rows": s["rows"], "epoch": c.epoch}
                  for n, s, c in zip(names, staged, committables, strict=True)]  # fmt: skip
        body = {"job": permit.job, "sink": sink, "checkpoint": permit.checkpoint, "digest": found, "files": listed}
        self._publish(files, root, manifest, body)
        self._step("after manifest")  # a crash here: the manifest tells the next commit it is done

    def newest_checkpoint(self, job: str, sink: str) -> int:
        """Lists the manifests."""
        files, root = self._open()
        with self._disk("looking for the newest checkpoint"):
            return max((k for k, _ in self._manifests_of(files, root, job, sink)), default=0)

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        """Of Parquet files; the others do not say what types their columns have."""
        files, root = self._open()
        with self._disk("looking for the files of a checkpoint"):
            shown = [m for k, m in self._manifests_of(files, root, job, sink) if k <= checkpoint]
            names = [f["file"] for m in shown for f in self._listed(files, root, m)]
            self._refuse_moved(files, root, names)
        if self._format != "parquet" or self._partitions:
            raise InvalidInputError(
                f"{self!r} has rows of checkpoints up to {checkpoint} in the files that these manifests in "
                f"{_MANIFESTS} name: {', '.join(shown) or 'none'}. Read them with their schema"
            )

        def rows() -> pa.RecordBatchReader:
            places = [f"{root}/{name}" for name in names]
            with self._disk("reading the files of a checkpoint"):
                return pds.dataset(places, filesystem=files, format="parquet").scanner().to_reader()

        return PastRows(f"{len(shown)} manifest(s)", rows)

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        files, root = self._open()
        with self._disk("looking for the files of a checkpoint"):
            behind = [m for k, m in self._manifests_of(files, root, job, sink) if k > checkpoint]
            names = [one["file"] for m in behind for one in self._listed(files, root, m)]
            self._refuse_moved(files, root, names)
            begun = self._undone(files, root, job, sink)
            names += [one["file"] for m in begun for one in self._listed(files, root, m)]
        return f"{len(names)} file(s) of {len(behind) + len(begun)} checkpoint(s)" if behind or begun else ""

    def _refuse_moved(self, files: Any, root: str, names: Sequence[str]) -> None:
        """Raises ``InvalidInputError`` if committed files are gone: their rows may be in others, as of a compaction."""
        gone = [name for name in names if not files.exists(f"{root}/{name}")]
        if gone:
            raise InvalidInputError(
                f"{self!r}: {len(gone)} file(s) that checkpoints committed are not there any more: "
                f"{', '.join(gone[:3])}. Where they were moved to, or which files have their rows now, is not known "
                "here: put them back, or remove the rows yourself"
            )

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        self.to_undo(job, sink, checkpoint)
        files, root = self._open()
        with self._disk(f"going back to checkpoint {checkpoint}"):
            for k, manifest in reversed(self._manifests_of(files, root, job, sink)):
                if k > checkpoint:
                    place = f"{root}/{_MANIFESTS}/{manifest}"
                    files.pipe_file(f"{place}{_UNDONE}", files.cat_file(place))
                    # A crash before this: the checkpoint is there as before.
                    _remove(files, place)
            self._sync(files, f"{root}/{_MANIFESTS}")
            # A crash behind this: the names of files to remove wait here for the next try.
            for manifest in self._undone(files, root, job, sink):
                for one in self._listed(files, root, manifest):
                    _remove(files, f"{root}/{one['file']}")
                self._step("files removed")
                _remove(files, f"{root}/{_MANIFESTS}/{manifest}")

    def _manifests_of(self, files: Any, root: str, job: str, sink: str) -> list[tuple[int, str]]:
        """(checkpoint, name), the oldest first."""
        ending = f"-{staging.tag(f'{job}/{sink}')}.json"
        names = [n for n in self._names(files, f"{root}/{_MANIFESTS}") if n.endswith(ending)]
        return sorted((checkpoint_of(n) or 0, n) for n in names)

    def _undone(self, files: Any, root: str, job: str, sink: str) -> list[str]:
        """Manifests of checkpoints that are gone already, and whose files may be there still."""
        ending = f"-{staging.tag(f'{job}/{sink}')}.json"
        found = self._names(files, f"{root}/{_MANIFESTS}")
        return [n for n in found if n.endswith(f"{ending}{_UNDONE}") and n.removesuffix(_UNDONE) not in found]

    def _listed(self, files: Any, root: str, manifest: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(files.cat_file(f"{root}/{_MANIFESTS}/{manifest}"))["files"]
        except (ValueError, KeyError, TypeError):
            raise InvalidInputError(
                f"{self!r}: {_MANIFESTS}/{manifest} is damaged: expected JSON that names the files of its checkpoint. "
                "Put back a good copy"
            ) from None
        return found

    def abort(self, committables: Sequence[Committable]) -> None:
        files, root = self._open()
        with self._disk("aborting"):
            for c in committables:
                _remove(files, f"{root}/{_STAGING}/{staging.decode(KIND, c)['file']}")

    def _disk(self, doing: str) -> AbstractContextManager[None]:
        return staging.disk_errors(f"{self!r}: {doing}", secret_values(self._storage))

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        return self._remove_staged(staging.staged_prefix(job), {staging.decode_any(c).get("file") for c in keep})

    def staged_by(self) -> dict[str, int]:
        with self._disk("looking for what is staged"):
            return staging.count_stagers(self._staged(*self._open()))

    def discard(self, who: str) -> list[str]:
        return self._remove_staged(staging.prefix_of(who), set())

    def _remove_staged(self, prefix: str, keep: set[str | None]) -> list[str]:
        files, root = self._open()
        with self._disk("collecting garbage"):
            lost = [n for n in self._staged(files, root) if n.startswith(prefix) and n not in keep]
            for name in lost:
                _remove(files, f"{root}/{_STAGING}/{name}")
        return lost

    def _staged(self, files: Any, root: str) -> list[str]:
        return self._names(files, f"{root}/{_STAGING}")

    @staticmethod
    def _names(files: Any, folder: str) -> list[str]:
        there = files.ls(folder, detail=False) if files.exists(folder) else []
        return sorted(str(p).rsplit("/", 1)[-1] for p in there)

    def _open(self) -> tuple[Any, str]:
        files, root = open_filesystem(self._url, self._storage)
        files.invalidate_cache()  # other processes write here, too
        return files, str(root).rstrip("/")

    def _move_all(self, files: Any, root: str, staged: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        folders = sorted({f"{root}/{n.rpartition('/')[0]}" for n in names if "/" in n})
        self._make(files, folders)
        for i, (s, name) in enumerate(zip(staged, names, strict=True)):
            # A crash between two of these: the next commit moves the rest. One that copies and then deletes, as on
            # object stores, may have left both names: moving again overwrites the same bytes.
            self._step(f"before move {i}")
            self._move(files, f"{root}/{_STAGING}/{s['file']}", f"{root}/{name}")
        self._sync(files, root, f"{root}/{_STAGING}", *folders)

    def _move(self, files: Any, staged: str, final: str) -> None:
        try:
            if files.exists(staged):
                files.mv(staged, final)
        except FileNotFoundError:
            if not files.exists(final):  # else another driver, committing the same checkpoint, was faster
                raise

    @staticmethod
    def _make(files: Any, folders: Sequence[str]) -> None:
        """Of partitions. A crash behind it leaves empty ones, which nobody sees in the data."""
        for folder in folders:
            if durable.is_local(files):
                durable.make_folders(folder)
            else:
                make_on(files, folder)

    @staticmethod
    def _sync(files: Any, *folders: str) -> None:
        if durable.is_local(files):
            durable.sync_folders(*folders)

    def _check_present(self, files: Any, root: str, staged: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        places = zip(staged, names, strict=True)
        missing = [
            s["file"]
            for s, name in places
            if not files.exists(f"{root}/{_STAGING}/{s['file']}") and not files.exists(f"{root}/{name}")
        ]
        if missing:
            raise CorruptStorageError(
                f"{self!r}: staged file(s) {', '.join(missing)} are missing from {_STAGING}. The manifest was not "
                "written; put them back"
            )

    def _publish(self, files: Any, root: str, manifest: str, body: Mapping[str, Any]) -> None:
        """Written aside and moved, so that no reader meets half a manifest; an object appears whole by itself."""
        if scheme_of(self._url) in OBJECT_STORES:
            self._step("before manifest move")
            files.pipe_file(manifest, json.dumps(body, indent=1).encode())
            return
        make_on(files, f"{root}/{_MANIFESTS}")
        # A name of its own: of two drivers, one must not move what the other is still writing.
        stem = f"{staging.staged_prefix(body['job'])}{manifest.rsplit('/', 1)[-1].removesuffix('.json')}-"
        aside = f"{root}/{_STAGING}/{stem}{uuid.uuid4().hex}.json"
        files.pipe_file(aside, json.dumps(body, indent=1).encode())
        if durable.is_local(files):
            durable.sync([aside])
        self._step("before manifest move")  # a crash here: the next commit moves one of its own and removes this one
        self._move(files, aside, manifest)
        self._sync(files, f"{root}/{_MANIFESTS}")
        # The manifest is there, so whoever misses what he wrote aside, finds that he need not move it.
        for name in (str(p).rsplit("/", 1)[-1] for p in files.ls(f"{root}/{_STAGING}", detail=False)):
            if name.startswith(stem):
                with suppress(FileNotFoundError):
                    files.rm_file(f"{root}/{_STAGING}/{name}")


def _final_names(place: str, staged: Sequence[Mapping[str, Any]]) -> list[str]:
    """What readers see the staged files as, the same whoever commits them."""
    files_of = (f"part-{place.replace('-', f'-{i:05d}-', 1)}.{s['ext']}" for i, s in enumerate(staged))
    return [f"{s['folder']}/{n}" if s.get("folder") else n for n, s in zip(files_of, staged, strict=True)]


def _separator(options: SinkOptions) -> str:
    found = options.raw("sep")
    if len(found) != 1 or found in '"\n\r' or not found.isascii():
        raise options.malformed("sep", found, "one character, and no quote")
    return found


def _remove(files: Any, path: str) -> None:
    if files.exists(path):
        files.rm_file(path)
