"""The ``delta`` source: rows that are appended to a Delta table, or its change data feed. No JVM is needed for it.

An offset is a place in the table's own log, a version and how many of its files are read, so nothing is kept besides.
Options, what the first batch has and what ends a stream are those of Delta's source in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import CkptError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.redaction import redact, redact_url, secret_values
from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources._ends import earlier
from spark_ckpt.sources._options import parse_options, storage_options_of
from spark_ckpt.sources.base import OwnSchema, UsesMetadata
from spark_ckpt.sources.delta._changes import Policy
from spark_ckpt.sources.delta._log import TableLog, table_files
from spark_ckpt.sources.delta._offsets import BEGIN, Position, Room, between, next_position
from spark_ckpt.sources.delta._rows import DeltaSplit, TableColumns, rows_of
from spark_ckpt.sources.delta._schema import stream_schema
from spark_ckpt.sources.delta._start import check_start, first_position, first_since, with_zone
from spark_ckpt.sources.delta._table import FollowedTable, Reading
from spark_ckpt.sources.delta.options import LATEST, OPTIONS, refuse_others
from spark_ckpt.sources.old_calendar import modes_of, settled_modes
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.object_options import delta_rs_options, scheme_of

_ANSWER = re.compile(r":?\s*<\?xml.*?<Code>(\w+)</Code>.*", re.DOTALL)
"""What a store answers in full: it may tell how the request was signed."""


def ahead_of_version(table: str, changes: bool, version: int) -> dict[str, Any]:
    """The offset of a stream that has read all in front of ``version`` of the table with the id ``table``."""
    return Position(table, changes, version, False, version).offset()


class DeltaSource(DataSource, UsesMetadata, OwnSchema):
    """Options, case-insensitive and by Delta's names: ``path`` (required), ``maxFilesPerTrigger`` (1000),
    ``maxBytesPerTrigger``, ``startingVersion``, ``startingTimestamp``, ``readChangeFeed``, ``ignoreDeletes``,
    ``ignoreChanges``, ``skipChangeCommits``, ``excludeRegex``, ``failOnDataLoss``, ``maxSplitBytes``;
    ``storage.*``, as ``spark.ckpt.storage.*`` are for the job; without any, the job's own are used where the
    scheme is the same.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._own_storage, given = storage_options_of(options)
        refuse_others(given)
        self.parsed = parse_options("delta", OPTIONS, given)
        if self.parsed["path"] is None:
            raise ConfigError("source 'delta': expected option 'path', a table's folder or URL, found none")
        self._path = normalize_url(self.parsed["path"])
        o = self.parsed
        if o["startingVersion"] is not None and o["startingTimestamp"] is not None:
            raise ConfigError(
                "[DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET] source 'delta': expected startingVersion or "
                "startingTimestamp, found both; leave one out"
            )
        policy = Policy(o["ignoreDeletes"], o["ignoreChanges"], o["skipChangeCommits"], o["excludeRegex"])
        self._reading = Reading(o["readChangeFeed"], policy, o["failOnDataLoss"])

    @classmethod
    def name(cls) -> str:
        return "delta"

    @property
    def shown(self) -> str:
        return f"Delta table {redact_url(self._path)}"

    def schema(self) -> StructType:
        """The table's columns as they are now. Raises ``InvalidInputError`` if there is no table, one that cannot be
        read, or none of the version that the stream is to begin with."""
        with self.errors("opening it", InvalidInputError):
            table = self.follow()
            check_start(self.parsed, table)
        return stream_schema(table.state.metadata, self._reading.changes, self.shown)

    def settled(self, options: Mapping[str, str], setting: Callable[[str], str]) -> dict[str, str]:
        """An absolute path, and a time with its zone: other processes have neither this folder nor this session."""
        names = {name.lower(): name for name in options}
        kept = {**options, names["path"]: self._path}
        if self.parsed["startingTimestamp"] is not None:
            kept[names["startingtimestamp"]] = with_zone(
                self.parsed["startingTimestamp"], setting("spark.sql.session.timeZone")
            )
        return settled_modes(kept, self.parsed, setting)

    def streamReader(self, schema: StructType) -> DeltaReader:
        return DeltaReader(self, schema)

    def files(self) -> pa.fs.FileSystem:
        same = scheme_of(self._path) == scheme_of(normalize_url(self.metadata_url or "/"))
        given = self._own_storage or (self.storage_options if same else {})
        return table_files(self._path, delta_rs_options(self._path, given))

    @contextmanager
    def errors(self, doing: str, kind: type[CkptError] = RetryableError) -> Iterator[None]:
        """What the store says no to, or that it is away, as ``kind``: in one line, and without secrets."""
        try:
            yield
        except OSError as error:
            secrets = secret_values({**self._own_storage, **self.storage_options})
            told = _ANSWER.sub(r" (\1)", redact(str(error), secrets))
            raise kind(
                f"{self.shown}: {doing} failed: {told}. Check the store, the bucket's name and the credentials in "
                "storage options or the environment, and start the query again"
            ) from None

    def follow(self) -> FollowedTable:
        """The table as it is now. Driver."""
        return FollowedTable(TableLog(self.files(), self.shown), self._reading, "://" not in self._path)


class DeltaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Driver: follows the log and plans. Executor: ``read``. Offset: see :class:`Position`."""

    def __init__(self, source: DeltaSource, schema: StructType) -> None:
        self._source = source
        self._schema, self._target = schema, arrow_schema(schema)
        self._table: FollowedTable | None = None
        self._start: Position | None = None
        self._pinned: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    # -- offsets (driver) ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return dict(BEGIN)

    def starting_from(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        if asked not in ("earliest", "latest", "none"):
            return None
        with self._source.errors("looking where to begin"):
            options = self._source.parsed
            if asked != "none":
                start = LATEST if asked == "latest" else None
                options = {**options, "startingVersion": start, "startingTimestamp": None}
            return first_position(options, self._opened(), None).offset()

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        """In front of the first version of a time or later; of a change data feed, whole versions."""
        with self._source.errors("looking where to end"):
            if isinstance(asked, str):
                return {"version": first_since(asked, self._opened()), "index": 0}
        end = {"version": int(asked["version"]), "index": int(asked.get("index", 0))}
        if self._source.parsed["readChangeFeed"] and end["index"]:
            raise ValueError(asked)
        return end

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        if found.get("start", -1) > end["version"]:
            return None
        return earlier(lambda offset: (offset["version"], offset["index"]), start, found, end)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit; any but ReadAllAvailable stands for all of this source's options here.
        return ReadMaxFiles(self._source.parsed["maxFilesPerTrigger"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """From the beginning on always another offset than ``start``: it says where the stream began."""
        with self._source.errors("looking for new versions"):
            return self._latest(start, limit)

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at, table = Position.of(start), self._opened()
        if at is None:
            at = self._start = self._start or first_position(self._source.parsed, table, self._pinned)
        else:
            self._check(at)
            if not at.in_snapshot:
                table.forget_snapshot()
        o = self._source.parsed
        room = Room() if isinstance(limit, ReadAllAvailable) else Room(o["maxFilesPerTrigger"], o["maxBytesPerTrigger"])

        def entries(position: Position) -> Any:
            beyond = self._pinned is not None and position.version > self._pinned
            return None if beyond else table.entries(position)

        end = next_position(at, entries, room)
        return start if start == end.offset() else end.offset()

    def behind(self, offset: dict[str, Any]) -> int | None:
        """Versions of the table that are not read, or not to their end; None if it does not answer just now."""
        at = Position.of(offset)
        try:
            return None if at is None else self._opened().newest() - at.version + 1
        except (CkptError, OSError):
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        with self._source.errors("looking for new versions"):
            self._pinned = self._opened().look_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        with self._source.errors("planning a batch"):
            return self._splits(start, end)

    def _splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stop, table = Position.of(end), self._opened()
        if stop is None:
            return []
        self._check(stop)
        metadata, most = table.state.metadata, self._source.parsed["maxSplitBytes"]
        columns = TableColumns(metadata.schema, frozenset(metadata.partition_columns), metadata.mapping == "id")
        splits = []
        for entry in between(Position.of(start) or stop.first, stop, table.entries):
            parts = max(1, -(-entry.file.size_bytes // most))
            splits += [DeltaSplit(entry, columns, part, parts) for part in range(parts)]
        return list(splits)

    # -- rows (executor) -------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same rows whenever: files of a table never change. Raises ``CorruptStorageError`` if one is gone."""
        assert isinstance(partition, DeltaSplit)
        source = self._source
        return rows_of(partition, self._target, source.files(), source.shown, modes_of(source.parsed))

    # -- the table -------------------------------------------------------------------------------------------------

    def _opened(self) -> FollowedTable:
        if self._table is None:
            table = self._source.follow()
            there = stream_schema(table.state.metadata, self._source.parsed["readChangeFeed"], table.shown)
            if there.simpleString() != self._schema.simpleString():
                raise InvalidInputError(
                    f"[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS] {table.shown} has changed since the DataFrame was made: "
                    f"expected columns {self._schema.simpleString()}, found {there.simpleString()}; make it anew, from "
                    "readStream...load() on"
                )
            self._table = table
        return self._table

    def _check(self, at: Position) -> None:
        table = self._opened()
        at.check(table.table, self._source.parsed["readChangeFeed"], table.shown)
        if at.version > table.head + 1:
            raise InvalidInputError(
                f"{table.shown} ends with version {table.head}, and the stream has read up to {at.version - 1}: an "
                "older copy was put in its place. Put the newer one back, or begin anew: another queryName and a new, "
                "empty checkpointLocation"
            )
