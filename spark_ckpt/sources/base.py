"""Inner sources: any Python streaming data source behind one interface.

The checkpointed stream reader (:mod:`spark_ckpt.runtime.source`) adds lanes, barriers and control columns around an
inner source. What it needs from one is small, and :class:`InnerReader` gives it for every flavour that PySpark allows:
readers with and without read limits, ``latestOffset`` with and without arguments, simple readers, rows and Arrow.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.clock import now_ms
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources._convert import arrow_schema, records_to_batches
from spark_ckpt.sources._ends import time_ms
from spark_ckpt.sources._simple import SimpleAdapter
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, SupportsTriggerAvailableNow

KNOWN_SOURCES: Mapping[str, str] = {
    "delta": "spark_ckpt.sources.delta.source:DeltaSource",
    "files": "spark_ckpt.sources.files:FilesSource",
    "iceberg": "spark_ckpt.sources.iceberg.source:IcebergSource",
    "kafka": "spark_ckpt.sources.kafka.source:KafkaSource",
    "rate": "spark_ckpt.sources.rate:RateSource",
    "rate-micro-batch": "spark_ckpt.sources.rate_micro_batch:RateMicroBatchSource",
    "sql": "spark_ckpt.sources.sql.source:SqlSource",
}

Offset = dict[str, Any]


class UsesMetadata:
    """Mixin for a ``DataSource`` that keeps files of its own; both attributes are set before anything is called.

    ``metadata_url`` is its folder, opened with the fsspec ``storage_options``. It belongs to this source of this job
    alone and survives restarts. What an offset cannot do without there must be named by the reader's
    ``savepoint_files``.
    """

    metadata_url: str = ""
    storage_options: Mapping[str, Any] = {}


class OwnSchema:
    """Mixin for a ``DataSource`` that knows its columns: ``.schema(...)`` is refused for it."""


class InnerReader:
    """One source's stream reader, made uniform. Driver, except :meth:`read`, which runs on executors.

    Pickled to executors by Spark right after it was made; whatever the driver learns later stays there.
    """

    def __init__(self, source: DataSource, schema: StructType) -> None:
        self.schema = schema
        self.arrow_schema: pa.Schema = arrow_schema(schema)
        self._source = source
        self._reader = _stream_reader(source, schema)
        self._zero_arguments = not inspect.signature(self._reader.latestOffset).parameters
        self._pin_next = False
        self._pinned: Offset | None = None
        self._end: Offset | None = None

    def initial(self) -> Offset:
        """Where a fresh job begins. Not called when the job goes on or is restored."""
        return _offset(self._user_reader.initialOffset(), "initialOffset")

    def starting_from(self, asked: str | Offset) -> Offset:
        """The offset that ``asked`` stands for: itself, or of ``"earliest"``, ``"latest"`` (behind what is there now)
        or ``"none"`` (where the options say). By a reader for nothing else: at a start that asks, and for a savepoint
        that is written.

        Optional ``starting_from(asked)`` of the user's reader, which returns None for what it leaves to this method.
        Raises ``ConfigError`` for what is no offset of the source.
        """
        own = getattr(self._user_reader, "starting_from", None)
        try:
            found = own(asked) if callable(own) else None
            return _offset(self._offset_of(asked) if found is None else found, "starting_from")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"startingFrom: expected an offset of source '{self._name}', such as `spark-ckpt describe` shows, or "
                f"earliest, latest or none, found {json.dumps(asked)}"
            ) from error

    def _offset_of(self, asked: str | Offset) -> Offset:
        if isinstance(asked, str):
            begin = self.initial()
            return self.latest(begin, True) if asked == "latest" else begin
        self.latest(asked, False)  # raises for what is none
        return asked

    def ending_at(self, asked: str | Offset) -> Offset:
        """What an offset has that stands at ``asked``, an offset or a time of ISO 8601 with a zone. Driver, at a start
        that asks.

        Optional ``ending_at(asked)`` of the user's reader, which returns None for what it leaves to this method, beside
        ``clipped``. Raises ``ConfigError`` for a source without ``clipped``, and for what is no place in it.
        """
        if not callable(getattr(self._user_reader, "clipped", None)):
            raise ConfigError(
                f"endingAt: source '{self._name}' cannot end at a position, as its reader has no method clipped(start, "
                "found, end); see docs/writing-a-source.md"
            )
        own, time = getattr(self._user_reader, "ending_at", None), time_ms(asked)
        if time is not None and time > now_ms():
            raise ConfigError(
                f"endingAt: expected a time that is over, as records of it may still come, found {asked}; start "
                "the query when it is over"
            )
        try:
            found = own(asked) if callable(own) else None
            if found is None and isinstance(asked, str):
                raise ValueError(asked)
            end = _offset(asked if found is None else found, "ending_at")
            self._user_reader.clipped(end, end, end)  # raises for what is none
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"endingAt: expected an offset of source '{self._name}', such as `spark-ckpt describe` shows, or a "
                f"time, if the source knows its records' times; found {json.dumps(asked)}"
            ) from error
        return end

    def end_at(self, end: Offset) -> None:
        """:meth:`latest` never passes ``end``, which :meth:`ending_at` found."""
        self._end = end

    def latest(self, start: Offset, limit_all: bool) -> Offset:
        """The end of the next batch that begins at ``start``; ``start`` itself when nothing is new.

        Called often (every 10 ms while idle) and never for a batch that is replayed. Respects the source's own read
        limit unless ``limit_all``. After :meth:`prepare_available_now` it never passes what was there at that time.
        """
        if self._pinned is not None:
            return self._pinned
        offset = self._latest(start, limit_all or self._pin_next)
        if self._pin_next:
            self._pinned = offset
        found = start if offset is None else offset
        return found if self._end is None else self._clipped(start, found, self._end)

    def _clipped(self, start: Offset, found: Offset, end: Offset) -> Offset:
        """The earlier of ``found`` and ``end``. ``clipped`` of the user's reader; an error where the source, at
        ``start``, is behind the end already."""
        clipped = self._user_reader.clipped(start, found, end)
        if clipped is None:
            raise InvalidInputError(
                f"source '{self._name}' has read up to {json.dumps(start)}, beyond {json.dumps(end)}, where "
                "spark.ckpt.endingAt says to end: restore an earlier checkpoint or savepoint at an empty location, or "
                "name a later end"
            )
        return _offset(clipped, "clipped")

    def splits(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The splits of the batch from ``start`` to ``end``, in the source's order; none for an empty range.

        May be called again for the same range, after a restart without :meth:`latest` before it.
        """
        if start == end:
            return []
        found = list(self._reader.partitions(start, end))
        for split in found:
            if not isinstance(split, InputPartition):
                raise InvalidInputError(
                    f"source '{self._name}': expected partitions() to return InputPartition objects, "
                    f"found {type(split).__name__}"
                )
        return found

    def read(self, split: InputPartition) -> Iterator[pa.RecordBatch]:
        """Executor: the rows of ``split`` as batches of exactly :attr:`arrow_schema`, without control columns."""
        return records_to_batches(iter(self._reader.read(split)), self.schema, self._source)

    def commit(self, end: Offset) -> None:
        """Nothing before ``end`` will be asked for again: a checkpoint that covers it has completed."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Release what the reader holds. The query has ended."""
        self._reader.stop()

    def prepare_available_now(self) -> None:
        """Take what is there now as the end of the stream. Called before the first :meth:`latest`, if at all.

        A reader that does not support it is read to its end in one batch, as Spark does; its end is pinned here if
        it can tell it without a start, and else by the first :meth:`latest`.
        """
        reader = self._user_reader
        if isinstance(reader, SupportsTriggerAvailableNow):
            reader.prepareForTriggerAvailableNow()
        elif self._zero_arguments:
            self._pinned = self._latest({}, True)
        else:
            self._pin_next = True

    def finished(self, offset: Offset) -> bool:
        """Whether nothing will ever come behind ``offset``. Optional ``finished(offset)`` of the user's reader."""
        finished = getattr(self._user_reader, "finished", None)
        return bool(finished(offset)) if callable(finished) else False

    def behind_files(self, files: Collection[str]) -> Offset:
        """Where the source stands when it has read these files and no others. Raises ``InvalidInputError`` for a source
        that is none of files."""
        behind = getattr(self._user_reader, "behind_files", None)
        if not callable(behind):
            raise InvalidInputError(f"source '{self._name}' reads no files: give its offset, or options that name one")
        return _offset(behind(files), "behind_files")

    def savepoint_files(self, offset: Offset) -> list[str]:
        """Files, relative to the metadata folder, without which ``offset`` means nothing elsewhere.

        Optional ``savepoint_files(offset)`` of the user's reader; none otherwise.
        """
        files = getattr(self._user_reader, "savepoint_files", None)
        return list(files(offset)) if callable(files) else []

    def behind(self, offset: Offset) -> int | None:
        """Driver: how much there was behind ``offset`` when the source last looked, in what it counts: rows, or files.

        Optional ``behind(offset)`` of the user's reader; None where it is not known. Asks nobody.
        """
        behind = getattr(self._user_reader, "behind", None)
        found = behind(offset) if callable(behind) else None
        return None if found is None else max(0, int(found))

    def batch_ended(self) -> None:
        """Driver: Spark plans the next batch. Optional ``batch_ended()`` of the user's reader."""
        ended = getattr(self._user_reader, "batch_ended", None)
        if callable(ended):
            ended()

    def recorded(self, offset: Offset) -> Offset:
        """Driver: what a checkpoint remembers whose barrier is at ``offset``, when its batch is planned.

        Optional ``recorded(offset)`` of the user's reader; ``offset`` itself otherwise.
        """
        recorded = getattr(self._user_reader, "recorded", None)
        return _offset(recorded(offset), "recorded") if callable(recorded) else offset

    def there_now(self, start: Offset) -> Callable[[], Offset | None]:
        """Where the source, which read up to ``start``, is when it has read all that is there now: a function that says
        so, or None for as long as that is not known. By a reader for nothing else, which changes nothing.

        Optional ``there_now()`` of the user's reader; :meth:`latest` otherwise.
        """
        own = getattr(self._user_reader, "there_now", None)
        if callable(own):
            found: Callable[[], Offset | None] = own()
            return found
        end = self.latest(start, True)
        return lambda: end

    def injected(self) -> int:
        """Driver: the newest checkpoint whose barrier all other sources of the query have sent.

        Only asked of :class:`~spark_ckpt.sources.spark_stream.SparkStream`, whose reader knows.
        """
        found: int = self._user_reader.injected()
        return found

    @property
    def _user_reader(self) -> Any:
        return self._reader.simple if isinstance(self._reader, SimpleAdapter) else self._reader

    @property
    def _name(self) -> str:
        return str(type(self._source).name())

    def _latest(self, start: Offset, limit_all: bool) -> Offset | None:
        reader: Any = self._reader
        if self._zero_arguments:
            found = reader.latestOffset()
        else:
            found = reader.latestOffset(start, ReadAllAvailable() if limit_all else reader.getDefaultReadLimit())
        return None if found is None else _offset(found, "latestOffset")


class InnerSource:
    """A data source with its options: knows its schema and makes readers. Picklable; driver and executors alike."""

    def __init__(self, source: DataSource, schema: StructType | None) -> None:
        self._source = source
        self._schema = schema

    def schema(self) -> StructType:
        """The user's schema, or else the source's own. Raises ``ConfigError`` if there is neither, or one too many."""
        if self._schema is not None and isinstance(self._source, OwnSchema):
            raise ConfigError(
                f"source '{type(self._source).name()}' knows its columns: expected no schema, found "
                f"{self._schema.simpleString()}; leave .schema(...) out, and cast or select behind load()"
            )
        if self._schema is None:
            try:
                found = self._source.schema()
            except (PySparkNotImplementedError, NotImplementedError):
                name = type(self._source).name()
                raise ConfigError(f"source '{name}' has no schema of its own; give one with .schema(...)") from None
            self._schema = parse_ddl(found) if isinstance(found, str) else found
        return self._schema

    def settled_options(self, options: dict[str, str], setting: Callable[[str], str]) -> dict[str, str]:
        """``options`` as they are kept with the stream: what depends on where they were given is made plain.

        Optional ``settled(options, setting)`` of the data source, where ``setting(key)`` is the session's. Driver,
        once, when the DataFrame is built.
        """
        settled = getattr(self._source, "settled", None)
        return dict(settled(options, setting)) if callable(settled) else options

    def missing_path(self, as_in_spark: bool) -> str | None:
        """Of a source whose path has to be there when the stream is made, and is not: the path.

        Optional ``missing_path(as_in_spark)`` of the data source, where the format is one of Spark's or not. Driver,
        once, when the DataFrame is built.
        """
        missing = getattr(self._source, "missing_path", None)
        found = missing(as_in_spark) if callable(missing) else None
        return None if found is None else str(found)

    def reader(self, schema: StructType) -> InnerReader:
        """A reader that yields ``schema``, which is :meth:`schema` as Spark handed it back."""
        return InnerReader(self._source, schema)


def open_source(
    name_or_class: str | type[DataSource],
    options: Mapping[str, str],
    schema: StructType | None,
    metadata_url: str,
    storage_options: Mapping[str, Any] | None = None,
) -> InnerSource:
    """The inner source ``name_or_class``: a known name, a ``DataSource`` class, or its import path "module:Class".

    ``options`` are the source's own; ``metadata_url`` is the folder (any fsspec URL) where it may keep files,
    opened with ``storage_options``.
    Raises ``ConfigError`` for an unknown source, an unknown or malformed option of a built-in one.
    """
    cls = _load(name_or_class) if isinstance(name_or_class, str) else name_or_class
    if not (isinstance(cls, type) and issubclass(cls, DataSource)):
        raise ConfigError(f"expected a class derived from pyspark.sql.datasource.DataSource, found {cls!r}")
    given = CaseInsensitiveDict()
    given.update(dict(options))
    source = cls(options=given)  # as Spark makes it
    if isinstance(source, UsesMetadata):
        source.metadata_url = metadata_url
        source.storage_options = dict(storage_options or {})
    return InnerSource(source, schema)


def _stream_reader(source: DataSource, schema: StructType) -> DataSourceStreamReader:
    try:
        return source.streamReader(schema=schema)
    except PySparkNotImplementedError:
        pass
    try:
        return SimpleAdapter(source.simpleStreamReader(schema=schema), schema, source)
    except PySparkNotImplementedError:
        name = type(source).name()
        raise ConfigError(
            f"source '{name}' cannot be read as a stream: expected it to implement streamReader or simpleStreamReader"
        ) from None


def finds_within_s(source: Any, options: Mapping[str, str]) -> float:
    """How long it takes ``source`` with ``options`` at most to find what is there now, but for transactions that are
    open; 0: it looks whenever it is asked. ``source`` as for :func:`open_source`; of others than the built-in ones 0.
    """
    known = KNOWN_SOURCES.get(source.lower()) if isinstance(source, str) else None
    declared = {} if known is None else getattr(importlib.import_module(known.partition(":")[0]), "OPTIONS", {})
    given = {name.lower(): value for name, value in options.items()}

    def seconds(name: str) -> float:
        option = declared.get(name)
        text = given.get(name.lower())
        return 0.0 if option is None else float(option.default if text is None else option.parse(text))

    interval, settles = seconds("discoveryInterval"), seconds("settleDelay")
    return interval + (settles + interval if settles else 0.0)


def _load(name: str) -> Any:
    known = KNOWN_SOURCES.get(name.lower())
    if known is None and ":" not in name:
        raise ConfigError(
            f"unknown source '{name}': expected one of {', '.join(sorted(KNOWN_SOURCES))}, or a Python DataSource "
            "class, given as the class itself or as its import path 'module:Class'. What only Spark reads: "
            f"ckpt.readStream.spark(spark.readStream.format('{name}').load())"
        )
    module, _, attribute = (known or name).partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"cannot load the source '{name}': {error}; expected an importable 'module:Class' (ship the module to the "
            "driver and the executors with spark.submit.pyFiles or an installed package)"
        ) from error


def _offset(value: Any, method: str) -> Offset:
    """``value`` as Spark would hand it back, after a trip through JSON."""
    try:
        found = json.loads(json.dumps(value))
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInputError(f"expected {method} to return a dict that JSON can hold, found {value!r}")
    return found
