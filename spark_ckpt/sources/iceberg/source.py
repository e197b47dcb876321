"""The ``iceberg`` source: what is appended to a table, snapshot after snapshot."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import index_by_id
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources._convert import spark_schema
from spark_ckpt.sources._options import Option, duration_s, flag, natural, parse_options, positive, text
from spark_ckpt.sources.iceberg._history import SKIP_DELETE, SKIP_OVERWRITE, History, Position, Skips
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from spark_ckpt.storage.iceberg_catalog import IcebergCatalog, absolute, check_catalog
from spark_ckpt.storage.iceberg_rows import rows_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

_WHAT = "source 'iceberg'"
_MAX_FILES, _MAX_ROWS = "streaming-max-files-per-micro-batch", "streaming-max-rows-per-micro-batch"
_FROM = "stream-from-timestamp"
_UNLIMITED = 2**31 - 1


def _instant() -> Option:
    def parse(value: str) -> int:
        if value.strip().isdigit():
            return int(value)
        found = dt.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        zoned = found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)
        return round(zoned.timestamp() * 1000)

    return Option(parse, "a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970")


OPTIONS = {
    "table": text(expects="namespace.table").means("The table. `load(...)` may name it, too.", required=True),
    "catalog": text("default").means("The catalogue's name, as in pyiceberg's configuration."),
    "catalog.*": text().means("The catalogue's properties as pyiceberg names them: `catalog.uri` and so on."),
    "startingSnapshotId": natural(expects="the id of a snapshot").means(
        "The first snapshot to read. Without a start, all of the table is read."
    ),
    "startingTimestamp": _instant().means("Snapshots that were committed then or later are read."),
    _FROM: natural(expects="milliseconds since 1970").means("The same, as Iceberg's source for Spark has it."),
    _MAX_FILES: positive().means("Files of a batch at most."),
    _MAX_ROWS: positive().means("Rows of a batch at most; files are not cut, so the first is always taken."),
    SKIP_OVERWRITE: flag().means("Pass over snapshots that overwrite, with all they add, instead of ending the query."),
    SKIP_DELETE: flag().means("Pass over snapshots that only delete, instead of ending the query."),
    "discoveryInterval": duration_s(1.0).means("How often the catalogue is asked for new snapshots at most."),
}


class IcebergSource(DataSource):
    """Options: those of ``OPTIONS``. Schema: the table's at start, or a given one with some of its columns."""

    def __init__(self, options: Mapping[str, str]) -> None:
        prefix = "catalog."
        own = {k: v for k, v in options.items() if not k.lower().startswith(prefix)}
        own = {("table" if k.lower() == "path" else k): v for k, v in own.items()}
        made = absolute({k.lower(): v for k, v in options.items() if k.lower().startswith(prefix)})
        properties = {k[len(prefix) :]: v for k, v in made.items()}
        self.parsed = parse_options("iceberg", {k: o for k, o in OPTIONS.items() if k != "catalog.*"}, own)
        if self.parsed["table"] is None:
            raise ConfigError(f"{_WHAT}: expected option 'table' (namespace.table), found none")
        check_catalog(_WHAT, properties)
        starts = [n for n in ("startingSnapshotId", "startingTimestamp", _FROM) if self.parsed[n] is not None]
        if len(starts) > 1:
            raise ConfigError(f"{_WHAT}: expected one start, found {' and '.join(starts)}; leave one out")
        self.catalog = IcebergCatalog(_WHAT, self.parsed["catalog"], properties, self.parsed["table"])

    @classmethod
    def name(cls) -> str:
        return "iceberg"

    def schema(self) -> StructType:
        """Of the table as it is now, every column nullable. Asks the catalogue. Raises ``InvalidInputError``."""
        return spark_schema(schema_to_pyarrow(self._opened().schema(), include_field_ids=False))

    def streamReader(self, schema: StructType) -> IcebergReader:
        """Asks the catalogue, and refuses columns that are not there."""
        table = self._opened()
        names = [f.name for f in table.schema().fields]
        missing = [f.name for f in schema if f.name not in names]
        if missing:
            raise InvalidInputError(
                f"{self.catalog} has no column {', '.join(missing)}; its columns are {', '.join(names)}"
            )
        return IcebergReader(self, table.schema().select(*(f.name for f in schema)))

    def history(self, table: Table) -> History:
        return History(repr(self.catalog), table, Skips(self.parsed[SKIP_OVERWRITE], self.parsed[SKIP_DELETE]))

    def _opened(self) -> Table:
        with self.catalog.errors("opening it", InvalidInputError):
            return self.catalog.load()


class IcebergSplit(InputPartition):
    """One data file, with what takes rows of it away."""

    def __init__(self, task: FileScanTask) -> None:
        self.file, self.delete_files = task.file, task.delete_files
        self.size_bytes = task.file.file_size_in_bytes


class IcebergReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: a position in the table's history, as :class:`Position` says it."""

    def __init__(self, source: IcebergSource, columns: Schema) -> None:
        self._source, self._columns = source, columns
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "_columns": self._columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._table: Table | None = None
        self._history: History | None = None
        self._next_look = 0.0
        self._is_pinned = False

    # --- driver -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        o = self._source.parsed
        since = o["startingTimestamp"] if o["startingTimestamp"] is not None else o[_FROM]
        if since is not None:
            return Position(None, since_ms=since).to_json()
        # Looked for by a fresh stream alone: one that goes on is behind it, and it may have expired.
        history = self._known(now=True)[1]
        if o["startingSnapshotId"] is not None:
            return history.at(o["startingSnapshotId"]).to_json()
        return history.first().to_json()

    def starting_from(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        return self._known(now=True)[1].first().to_json() if asked == "earliest" else None

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        """Behind so many files of a snapshot."""
        return None if isinstance(asked, str) else {name: int(asked[name]) for name in ("snapshot", "files")}

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        """Positions are ordered by the history alone."""
        at, to = Position.from_json(start), Position.from_json(found)
        table, history = self._known(now=False)
        if _place(at) == end:
            return start
        with self._source.catalog.errors("planning a batch"):
            behind = [p for p, _ in history.files(at, table.metadata.current_snapshot_id)]
            places = [_place(p) for p in behind]
            if end in places:
                return found if to in behind[: places.index(end)] else behind[places.index(end)].to_json()
            return None if history.knows(end["snapshot"]) else found

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._source.parsed[_MAX_FILES] or _UNLIMITED)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        table, history = self._known(now=False)
        at = end = Position.from_json(start)
        most_files, most_rows = (_UNLIMITED, None) if isinstance(limit, ReadAllAvailable) else self._limits(limit)
        files = rows = 0
        with self._source.catalog.errors("planning a batch"):
            for position, task in history.files(at, table.metadata.current_snapshot_id):
                if task is not None:
                    rows += task.file.record_count
                    if files and (files == most_files or (most_rows is not None and rows > most_rows)):
                        break
                    files += 1
                end = position
        return end.to_json()

    def _limits(self, limit: ReadLimit) -> tuple[int, int | None]:
        return getattr(limit, "max_files", _UNLIMITED), self._source.parsed[_MAX_ROWS]

    def behind(self, offset: dict[str, Any]) -> int | None:
        """Snapshots that are not read, or not to their end."""
        if self._table is None or self._history is None:
            return None
        return self._history.left(Position.from_json(offset), self._table.metadata.current_snapshot_id)

    def prepareForTriggerAvailableNow(self) -> None:
        self._known(now=True)
        self._is_pinned = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = Position.from_json(start), Position.from_json(end)
        _, history = self._known(now=False, needs=last.snapshot)
        with self._source.catalog.errors("planning a batch"):
            return [IcebergSplit(task) for task in history.between(first, last)]

    def _known(self, now: bool, needs: int | None = None) -> tuple[Table, History]:
        """The table, loaded again if it may have grown, or if it has no snapshot ``needs``."""
        clock = time.monotonic()
        table = self._table
        lacks = table is None or (needs is not None and table.metadata.snapshot_by_id(needs) is None)
        if lacks or (not self._is_pinned and (now or clock >= self._next_look)):
            with self._source.catalog.errors("looking for new snapshots"):
                found = self._source.catalog.load_patiently()
            self._check_columns(found)
            if table is None or found.metadata_location != table.metadata_location:
                self._table, self._history = found, self._source.history(found)
            self._next_look = clock + self._source.parsed["discoveryInterval"]
        assert self._table is not None
        assert self._history is not None
        return self._table, self._history

    def _check_columns(self, found: Table) -> None:
        """Columns are read by the ids and types that they had at start: of others' files they would be null."""
        if self._table is not None and self._table.metadata.table_uuid != found.metadata.table_uuid:
            raise InvalidInputError(
                f"{self._source.catalog} was dropped and made anew while the query read it; start anew, with an empty "
                "job folder, to read the new one"
            )
        there, problems = index_by_id(found.schema()), []
        for number, field in index_by_id(self._columns).items():
            name, kind = self._columns.find_column_name(number), field.field_type
            if number not in there:
                problems.append(f"column '{name}' ({kind}) is gone")
            elif kind.is_primitive and there[number].field_type != kind:
                problems.append(f"column '{name}' was {kind} and is {there[number].field_type}")
        if problems:
            raise InvalidInputError(
                f"{self._source.catalog} was altered while the query read it: {'; '.join(problems)}. Start the query "
                "again, from load() on: it then reads the columns as they are"
            )

    # --- executor ---------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyiceberg.table import FileScanTask

        assert isinstance(partition, IcebergSplit)
        with self._source.catalog.errors(f"reading {partition.file.file_path}"):
            table = self._source.catalog.load_recent()
            yield from rows_of(table, self._columns, FileScanTask(partition.file, partition.delete_files))


def _place(position: Position) -> dict[str, Any]:
    return {"snapshot": position.snapshot, "files": position.files}
