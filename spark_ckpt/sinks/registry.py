"""Finding sinks by name, and the options every sink has: ``columns`` and ``where``."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks._options import parse_names
from spark_ckpt.sinks.base import JobPlace, Part, PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

# Imported on first use: nobody should need SQLAlchemy to write files.
_BUILT_IN = {
    "delta": "spark_ckpt.sinks.delta.sink:DeltaSink",
    "foreachbatch": "spark_ckpt.sinks.deliveries:DeliverySink",
    "foreach": "spark_ckpt.sinks.deliveries:DeliverySink",
    "console": "spark_ckpt.sinks.deliveries:DeliverySink",
    "kafka": "spark_ckpt.sinks.kafka.sink:KafkaSink",
    "files": "spark_ckpt.sinks.files:FilesSink",
    "iceberg": "spark_ckpt.sinks.iceberg.sink:IcebergSink",
    "memory": "spark_ckpt.sinks.memory:MemorySink",
    "noop": "spark_ckpt.sinks.noop:NoopSink",
    "sql": "spark_ckpt.sinks.sql.sink:SqlSink",
}
_EXTRAS = {"kafka": "kafka"}
_OF_FUNCTIONS = ("foreachbatch", "foreach", "console")
"""What no user names: a function stands behind it."""
_REGISTERED: dict[str, type[TwoPhaseSink]] = {}


def register_sink(name: str, cls: type[TwoPhaseSink]) -> None:
    """Make ``cls`` available as ``format(name)`` in this process; ``name`` ignores case.

    Registering the same name again replaces the class. ``format(cls)`` needs no registration. Executors import the
    module of the class, so they must have it, unless that is ``__main__``. Raises ``ConfigError`` if ``cls`` is not a
    concrete ``TwoPhaseSink``, or the name is empty or a built-in's.
    """
    key = name.strip().lower()
    if not isinstance(cls, type) or not issubclass(cls, TwoPhaseSink):
        raise ConfigError(f"sink '{name}': expected a subclass of TwoPhaseSink, found {cls!r}")
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise ConfigError(f"sink '{name}': {cls.__name__} does not implement {', '.join(missing)}")
    if not key or key in _BUILT_IN:
        raise ConfigError(f"sink name {name!r} is {'a built-in' if key else 'empty'}; choose another")
    _REGISTERED[key] = cls


def sink_names() -> list[str]:
    """The names :func:`sink_class` knows, sorted."""
    return sorted({*_BUILT_IN, *_REGISTERED} - {*_OF_FUNCTIONS})


def sink_class(name: str) -> type[TwoPhaseSink]:
    """The class registered as ``name``.

    Raises:
        ConfigError: no such sink, or a package it needs is not installed.
    """
    key = name.strip().lower()
    if key in _REGISTERED:
        return _REGISTERED[key]
    if key not in _BUILT_IN:
        raise ConfigError(
            f"unknown sink {name!r}; known sinks are {', '.join(sink_names())}; writeStream takes console, csv, json, "
            "parquet and text, too. In another of Spark's formats, a function writes a folder for each checkpoint: "
            f"foreachBatch(lambda rows, id: rows.write.format({name!r}).mode('overwrite').save(f'{{path}}/{{id}}'))"
        )
    module, attribute = _BUILT_IN[key].split(":")
    try:
        cls: type[TwoPhaseSink] = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(key)
        how = f": pip install 'spark-ckpt[{extra}]'" if extra else ""
        raise ConfigError(f"sink '{key}' needs the Python package '{error.name}'; install it{how}") from error
    return cls


def sink_format(cls: type[TwoPhaseSink]) -> str | None:
    """The name under which this process knows ``cls``; None if it is neither built in nor registered."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    names = [n for n, built_in in _BUILT_IN.items() if built_in == path]
    return next(iter([*names, *(n for n, own in _REGISTERED.items() if own is cls)]), None)


def create_sink(
    name: str | type[TwoPhaseSink],
    options: Mapping[str, str],
    replacing: bool = False,
    place: JobPlace | None = None,
) -> TwoPhaseSink:
    """The sink ``name`` made from its options, taking only the columns of option ``columns`` if that is given, and rows
    for which the boolean column of option ``where`` is true. ``replacing`` and ``place``: as in
    :class:`TwoPhaseSink`.

    Called on the driver and on executors, with the same options. ``options`` are the sink's own (none of the
    reader's, Spark's or ``spark.ckpt.*``).

    Raises:
        ConfigError: unknown sink, unknown or malformed option.
        InvalidInputError: ``replacing``, and the sink cannot.
    """
    label = name if isinstance(name, str) else name.__name__
    cls = sink_class(name) if isinstance(name, str) else name
    own = {k: v for k, v in options.items() if k.lower() not in ("columns", "where")}
    chosen = [v for k, v in options.items() if k.lower() == "columns" and v.strip()]
    where = next((v for k, v in options.items() if k.lower() == "where"), None)
    if where is not None and not chosen:
        raise ConfigError(
            f"sink {label}: option where ({where!r}) names a column that says which rows are written; give the columns "
            "that are written, too, by option columns"
        )
    if replacing and not cls.CAN_REPLACE:
        raise InvalidInputError(
            f"sink {label} does not support output mode complete, which replaces all its rows at each checkpoint; "
            'use outputMode("update"), or a sink such as delta, sql, memory or foreachBatch'
        )
    sink = cls(own)
    sink.replacing, sink.place = replacing, place
    return ProjectedSink(sink, parse_names(label, "columns", chosen[0]), where) if chosen else sink


def bare(sink: TwoPhaseSink) -> TwoPhaseSink:
    """``sink`` without what chooses its rows."""
    return sink.inner if isinstance(sink, ProjectedSink) else sink


def written_columns(sink: TwoPhaseSink, schema: pa.Schema) -> pa.Schema:
    """What ``sink`` writes of rows of ``schema``."""
    return sink.project(schema) if isinstance(sink, ProjectedSink) else schema


class ProjectedSink(TwoPhaseSink):
    """``inner`` sees only ``columns``, in that order, of rows whose column ``where`` is true. Everything else is the
    inner sink's."""

    def __init__(self, inner: TwoPhaseSink, columns: Sequence[str], where: str | None = None) -> None:
        super().__init__(inner.options)
        self.inner, self.where = inner, where
        self.columns = tuple(columns)
        self.replacing, self.place = inner.replacing, inner.place

    def __repr__(self) -> str:
        return f"ProjectedSink({self.inner!r}, columns={','.join(self.columns)})"

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "on_step":
            self.inner.on_step = value

    def validate(self, schema: pa.Schema) -> None:
        if self.where is not None and (self.where not in schema.names or schema.field(self.where).type != pa.bool_()):
            raise InvalidInputError(
                f"option where ({self.where!r}): expected the name of a boolean column, which says which rows are "
                f"written; the query's columns are {', '.join(schema.names)}"
            )
        self.inner.validate(self.project(schema))

    def writer(self, ctx: WriterContext) -> SinkWriter:
        schema = self.project(ctx.schema)
        return _ProjectedWriter(self.inner.writer(dataclasses.replace(ctx, schema=schema)), self.columns, self.where)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        self.inner.commit(permit, committables)

    @property
    def shares(self) -> str | None:
        return self.inner.shares

    def try_commit(self, parts: Sequence[Part]) -> Sequence[int] | None:
        return self.inner.try_commit(parts)

    def abort(self, committables: Sequence[Committable]) -> None:
        self.inner.abort(committables)

    def newest_checkpoint(self, job: str, sink: str) -> int | None:
        return self.inner.newest_checkpoint(job, sink)

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        return self.inner.as_of(job, sink, checkpoint)

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        return self.inner.to_undo(job, sink, checkpoint)

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        self.inner.roll_back(job, sink, checkpoint)

    @property
    def target(self) -> str:
        return self.inner.target

    def end_open(self, job: str, generation: int, keep: Sequence[Committable]) -> None:
        self.inner.end_open(job, generation, keep)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        return self.inner.gc(job, keep)

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        return self.inner.forget(job, oldest)

    def staged_by(self) -> dict[str, int]:
        return self.inner.staged_by()

    def discard(self, who: str) -> list[str]:
        return self.inner.discard(who)

    def project(self, schema: pa.Schema) -> pa.Schema:
        missing = [c for c in self.columns if c not in schema.names]
        if missing:
            raise InvalidInputError(
                f"option 'columns' names {', '.join(missing)}; the query's columns are {', '.join(schema.names)}"
            )
        return pa.schema([schema.field(c) for c in self.columns])


class _ProjectedWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, columns: Sequence[str], where: str | None) -> None:
        self._inner, self._where = inner, where
        self._columns = list(columns)

    def write(self, batch: pa.RecordBatch) -> None:
        # A filter takes null for false, as SQL does.
        rows = batch if self._where is None else batch.filter(batch.column(self._where))
        self._inner.write(rows.select(self._columns))

    def prepare_commit(self) -> Sequence[bytes]:
        return self._inner.prepare_commit()

    def close(self) -> None:
        self._inner.close()
