"""The ``files`` source: a folder in which files appear, read in the order in which they were discovered.

An offset is a position in the job's discovery log (:mod:`spark_ckpt.sources.file_log`), so a file is never read twice
and a late file with an old time is never missed. A batch is replayed from its two offsets alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.redaction import redact_url
from spark_ckpt.sources._bad_records import FAIL, SKIP, Bad, BadRecords, MalformedFileError, OtherHeader, Unread
from spark_ckpt.sources._convert import arrow_schema, pieces
from spark_ckpt.sources._ends import earlier
from spark_ckpt.sources._file_listing import ChangePolicy, FileEntry, InputFolder
from spark_ckpt.sources._file_modes import check_rules, rules_of, with_mode
from spark_ckpt.sources._file_options import CSV_OPTIONS, OPTIONS, PARQUET_OPTIONS
from spark_ckpt.sources._file_plan import Cut, FileSplit, Limits, Position, next_position, plan_splits
from spark_ckpt.sources._file_rows import FileRows, ParquetRows, TextRows
from spark_ckpt.sources._globs import GlobError, NameGlob, PathGlob
from spark_ckpt.sources._local_times import check_zone
from spark_ckpt.sources._options import parse_options, storage_options_of
from spark_ckpt.sources._orc_rows import OrcRows
from spark_ckpt.sources._orc_rows import check_schema as check_orc
from spark_ckpt.sources._text_records import TextFormat
from spark_ckpt.sources.base import UsesMetadata
from spark_ckpt.sources.file_log import DiscoveryLog
from spark_ckpt.sources.file_text import check_schema
from spark_ckpt.sources.old_calendar import modes_of, settled_modes
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.object_options import OBJECT_STORES, scheme_of
from spark_ckpt.storage.record_store import RecordStore

_UTC = "UTC"
_IGNORES_SINK_LOGS = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
COLUMNAR = ("parquet", "orc")
"""Formats whose files tell their schema and how many rows they have, and are read in parts."""


class FilesSource(DataSource, UsesMetadata):
    """Options, case-insensitive:

    - ``path`` (required): folder, file or glob, local or any fsspec URL; ``fileFormat`` (required): parquet, orc,
      json (one object a line), csv or text (a row a line). ``recursive`` (false): folders below too.
      ``pathGlobFilter``: of file names.
    - ``maxFilesPerTrigger`` (1000), ``maxRowsPerTrigger``, ``maxBytesPerTrigger`` (of files as they are stored; the
      first is always taken): a batch keeps all of them; only the row limit splits a file, and costs the driver a
      look at Parquet footers, or at the text itself.
    - ``maxSplitBytes`` (128m): larger Parquet and ORC files are read in parallel.
    - ``badRecords`` (fail): fail, skip, or a folder where each bad record is kept once.
    - ``changedFiles`` (fail): fail, or accept a file that is no longer what was discovered.
      ``ignoreMissingFiles`` (false): go on without a file that has vanished.
    - ``sinkLog`` (follow): in a folder that Spark's file sink writes, only what its log names counts; ignore: all.
    - ``maxFileAge``: Spark's. ``discoveryInterval`` (1s): how often the folder is listed at most.
    - ``mode`` (json and csv): Spark's, and with it records are read by Spark's rules, for which there are
      ``columnNameOfCorruptRecord``, ``timestampFormat``, ``dateFormat`` and, for csv, ``escape`` and others.
    - ``datetimeRebaseMode``, ``int96RebaseMode`` (parquet; the session's settings for reading): Spark's.
    - ``timeZone`` (json and csv; the session's, where there is one, else UTC): of times that name none.
    - csv only: ``header`` (false: columns by position; true: by name), ``sep`` (,), ``quote`` ("), ``multiLine``
      (false), ``nullValue`` (empty).
    - ``storage.*``: of the input's fsspec file system; without any, those of the job's own storage are used where
      the scheme is the same.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._own_storage, rest = storage_options_of(options)
        rest = with_mode(rest)
        self.parsed = parse_options("files", OPTIONS, rest)
        for name, option in OPTIONS.items():
            if option.required and self.parsed[name] is None:
                raise ConfigError(f"source 'files': expected option '{name}' ({option.expects}), found none")
        given = {key.lower() for key in rest}
        for only, of_it in (("csv", CSV_OPTIONS), ("parquet", PARQUET_OPTIONS)):
            misplaced = [name for name in of_it if name.lower() in given]
            if misplaced and self.parsed["fileFormat"] != only:
                raise ConfigError(
                    f"source 'files': {', '.join(misplaced)} apply to fileFormat {only} only, "
                    f"found fileFormat {self.parsed['fileFormat']}; remove them"
                )
        self._check_globs()
        self._check_bad_records()

    @classmethod
    def name(cls) -> str:
        return "files"

    def schema(self) -> StructType:
        """Of the first Parquet or ORC file, all columns nullable; of text, ``value string``.

        Raises ``ConfigError`` if nothing tells it.
        """
        if self.parsed["fileFormat"] == "text":
            return StructType([StructField("value", StringType())])
        if self.parsed["fileFormat"] not in COLUMNAR:
            raise ConfigError(f"fileFormat {self.parsed['fileFormat']} needs a schema; give one with .schema(...)")
        folder = self.folder()
        rows = OrcRows(folder) if self.parsed["fileFormat"] == "orc" else ParquetRows(folder, stream=True)
        for entry in self._known_files(folder):
            try:
                return rows.schema(entry)
            except (MalformedFileError, FileNotFoundError):
                continue
        raise ConfigError(
            f"no readable {self.parsed['fileFormat']} file to infer the schema from at {redact_url(folder.url)}; "
            "give .schema(...)"
        )

    def missing_path(self, as_in_spark: bool) -> str | None:
        """The path, if there is nothing. Of an object store only ``as_in_spark``: an empty folder is none there."""
        folder = self.folder()
        waits = not as_in_spark and scheme_of(folder.url) in OBJECT_STORES
        return None if waits or folder.is_there() else redact_url(folder.url)

    def settled(self, options: Mapping[str, str], setting: Callable[[str], str]) -> dict[str, str]:
        """With what the session says where it counts, which other processes do not know."""
        kept = dict(options)
        if self.parsed["fileFormat"] in ("json", "csv") and self.parsed["timeZone"] is None:
            kept["timeZone"] = setting("spark.sql.session.timeZone")
        if self.parsed["sinkLog"] is None:
            kept["sinkLog"] = "ignore" if setting(_IGNORES_SINK_LOGS).lower() == "true" else "follow"
        return settled_modes(kept, self.parsed, setting) if self.parsed["fileFormat"] == "parquet" else kept

    def streamReader(self, schema: StructType) -> FilesReader:
        return FilesReader(self, schema)

    def folder(self) -> InputFolder:
        o = self.parsed
        changes = ChangePolicy(o["changedFiles"] == "accept", o["ignoreMissingFiles"])
        storage = self._storage_for(o["path"])
        follow = o["sinkLog"] != "ignore"
        return InputFolder(o["path"], storage, o["recursive"], o["pathGlobFilter"], changes, follow)

    def rows(self, folder: InputFolder) -> FileRows:
        o = self.parsed
        if o["fileFormat"] == "parquet":
            return ParquetRows(folder, stream=o["badRecords"] == FAIL, modes=modes_of(o))
        if o["fileFormat"] == "orc":
            return OrcRows(folder)
        csv = o["sep"], o["quote"], o["header"], o["multiLine"], o["nullValue"]
        return TextRows(folder, TextFormat(o["fileFormat"], *csv, o["timeZone"] or _UTC, rules_of(o)))

    def bad_records(self) -> BadRecords:
        policy = self.parsed["badRecords"]
        return BadRecords(policy, self._storage_for(policy), self.metadata_url)

    def log(self) -> DiscoveryLog:
        return DiscoveryLog(RecordStore(self.metadata_url, self.storage_options))

    def _known_files(self, folder: InputFolder) -> Iterator[FileEntry]:
        """The job's first file before any other, so that a restart infers the same schema."""
        if self.metadata_url:
            yield from self.log().entries
        yield from folder.files()

    def _storage_for(self, url: str) -> Mapping[str, Any]:
        return self._own_storage or (self.storage_options if _scheme(url) == _scheme(self.metadata_url) else {})

    def _check_globs(self) -> None:
        for name, check in (("path", PathGlob), ("pathGlobFilter", NameGlob)):
            found = self.parsed[name]
            try:
                check(found or "")
            except GlobError as error:
                raise ConfigError(
                    f"option '{name}' of source 'files': expected a glob by Hadoop's rules, found {redact_url(found)}: "
                    f"{error}. A letter that is meant as it is has a backslash in front"
                ) from None

    def _check_bad_records(self) -> None:
        policy = self.parsed["badRecords"]
        if policy.lower() in (FAIL, SKIP):
            self.parsed["badRecords"] = policy.lower()
            return
        folder, root = normalize_url(policy), normalize_url(self.parsed["path"])
        if folder == root or folder.startswith(f"{root}/"):
            raise ConfigError(
                f"option 'badRecords' of source 'files': expected a folder outside the input, found "
                f"{redact_url(folder)} inside {redact_url(root)}, where what is kept would be read as input"
            )


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Driver: discovers, admits and plans. Executor: ``read``. Offset: see :class:`Position`."""

    def __init__(self, source: FilesSource, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._schema = arrow_schema(schema)
        self._clock = clock
        o = source.parsed
        if o["fileFormat"] == "orc":
            check_orc(self._schema)
        elif o["fileFormat"] != "parquet":
            check_schema(o["fileFormat"], self._schema, o["mode"] is not None)
            check_zone(o["timeZone"] or _UTC, self._schema)
            check_rules(o, self._schema)
        self._limits = Limits(o["maxFilesPerTrigger"], o["maxRowsPerTrigger"], o["maxBytesPerTrigger"])
        self._folder = source.folder()
        self._rows = source.rows(self._folder)
        self._bad = source.bad_records()
        self._log: DiscoveryLog | None = None
        self._next_listing = float("-inf")
        self._pinned: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_log": None}

    def initialOffset(self) -> dict[str, Any]:
        return Position().offset()

    def behind_files(self, files: Collection[str]) -> dict[str, Any]:
        """``files``: URLs, as Spark's ``inputFiles`` has them; those that are not there any more count for nothing."""
        paths, log = {path_on_file_system(file) for file in files}, self._known()
        log.append([entry for entry in self._folder.files() if entry.path in paths])
        return Position(len(log)).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit; any but ReadAllAvailable stands for all of this source's options here.
        return ReadMaxFiles(self._limits.files or 1)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = Position.of(start)
        log = self._known()
        log.require(at.file)
        if not (at.file or at.row):
            self._refuse_other_folders(log)
        if self._pinned is None:
            self._discover(log)
        known = log.entries if self._pinned is None else log.entries[: self._pinned]
        if at.file >= len(known):
            return start
        if isinstance(limit, ReadAllAvailable):
            return Position(len(known)).offset()
        return next_position(at, known, self._limits, self._cut).offset()

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        return Position.of(asked).offset() if isinstance(asked, dict) else None

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        return earlier(lambda offset: (Position.of(offset).file, Position.of(offset).row), start, found, end)

    def prepareForTriggerAvailableNow(self) -> None:
        log = self._known()
        self._discover(log, now=True)
        self._pinned = len(log)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        log, stop = self._known(), Position.of(end)
        log.require(stop.file + (1 if stop.row else 0))
        divide = self._source.parsed["maxSplitBytes"] if self._source.parsed["fileFormat"] in COLUMNAR else None
        return list(plan_splits(Position.of(start), stop, log.entries, divide))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Checked before and after: what a file was at discovery is what its rows come from, or the batch fails."""
        assert isinstance(partition, FileSplit)
        entry = partition.entry
        if not self._folder.check(entry):
            return
        try:
            for found in self._rows.read(partition, self._schema):
                if isinstance(found, Unread | OtherHeader):
                    self._bad.tell(self._folder.shown(entry.path), found)
                elif isinstance(found, Bad):
                    # A file that is being rewritten looks damaged; that it changed is the better message.
                    self._folder.check(entry)
                    self._bad.handle(entry, self._folder.shown(entry.path), found)
                else:
                    yield from pieces(found)
        except FileNotFoundError:
            pass  # it vanished just now: the check below says so
        self._folder.check(entry)

    def behind(self, offset: dict[str, Any]) -> int:
        """Files that were listed and are not read, or not to their end."""
        return len(self._known()) - Position.of(offset).file

    def there_now(self) -> Callable[[], dict[str, Any] | None]:
        """Behind the files that are listed now, once the job's own reader, which alone writes the log, has logged them.
        Those that are removed before count for nothing."""
        known = self._source.log()
        new = {f.path for f in self._young(self._folder.files(), known) if known.find(f.path) is None}

        def behind() -> dict[str, Any] | None:
            log = self._source.log()
            missing = {path for path in new if log.find(path) is None}
            if missing and missing & {f.path for f in self._folder.files()}:
                return None
            return Position(len(log)).offset()

        return behind

    def savepoint_files(self, offset: dict[str, Any]) -> list[str]:
        at = Position.of(offset)
        log, count = self._known(), at.file + (1 if at.row else 0)
        log.require(count)
        return log.records_upto(count)

    def _known(self) -> DiscoveryLog:
        if self._log is None:
            self._log = self._source.log()
        return self._log

    def _discover(self, log: DiscoveryLog, now: bool = False) -> None:
        """List and log what is new. Not more often than ``discoveryInterval``, nor more than a fifth of the time.

        With an interval of 0 every call lists.
        """
        began = self._clock()
        if began < self._next_listing and not now:
            return
        files = self._young(self._folder.files(), log)
        for file in files:
            known = log.find(file.path)
            if known is not None and file.path not in self._folder.gone:
                self._folder.require_same(known, file)
        log.append(files)
        log.compact()
        ended, interval = self._clock(), self._source.parsed["discoveryInterval"]
        self._next_listing = ended + (max(interval, 4 * (ended - began)) if interval else 0)

    def _refuse_other_folders(self, log: DiscoveryLog) -> None:
        """A source that begins anew reads all that the log has, which may be that of a dropped source of its uid."""
        outside = [e.path for e in log.entries if not self._folder.may_hold(e.path)]
        listed = {e.path for e in self._folder.files()} if outside else set()  # a log of Spark's may name any place
        other = next((path for path in outside if path not in listed), None)
        if other is not None:
            raise InvalidInputError(
                f"the source of {redact_url(self._folder.url)} begins anew, and the job has a log of files under its "
                f"uid that was made for another folder: expected only files of its own, found "
                f"{self._folder.shown(other)}. Give the source a uid that the job has not had: "
                '.option("uid", ...)'
            )

    def _young(self, files: list[FileEntry], log: DiscoveryLog) -> list[FileEntry]:
        """``files`` without new ones that ``maxFileAge`` passes over."""
        age = self._source.parsed["maxFileAge"]
        if age is None or not len(log):
            return files
        oldest_us = max(entry.mtime_us for entry in log.entries) - age * 1_000_000
        return [file for file in files if file.mtime_us >= oldest_us or log.find(file.path) is not None]

    def _cut(self, entry: FileEntry, at: Position, max_rows: int) -> Cut:
        try:
            return self._rows.cut(entry, at, max_rows) if self._folder.check(entry) else Cut(0, None)
        except FileNotFoundError:
            self._folder.check(entry)
            return Cut(0, None)


def path_on_file_system(url: str) -> str:
    """Of a file's URL as Spark writes it: what its file system calls it."""
    if "://" not in url and not url.startswith("file:"):
        return unquote(url)
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else unquote(f"{parts.netloc}{parts.path}")


def _scheme(url: str) -> str:
    url = normalize_url(url) if url else ""
    return url.split("://")[0] if "://" in url else "file"
