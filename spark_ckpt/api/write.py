"""``writeStream`` of a checkpointed stream: sinks, job name, start. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from spark_ckpt.api.query import CkptQuery
from spark_ckpt.config import is_job_option
from spark_ckpt.config_values import option_text
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.start import StartRequest, start_query


class CkptDataStreamWriter(Hinting):
    """``df.writeStream``. Options that are ``spark.ckpt.*`` keys configure the job, all others the sink."""

    _ways: ClassVar[Mapping[str, str]] = {
        "toTable": 'write format("delta").option("path", ...).start(); a Delta table is found by its path',
        "foreach": "write a TwoPhaseSink and register it with spark_ckpt.register_sink: its rows are committed once",
        "partitionBy": "no sink partitions by columns yet",
        "clusterBy": "no sink clusters by columns yet",
    }

    def __init__(self, df: Any) -> None:
        self._df = df
        self._format: Any = None
        self._options: dict[str, str] = {}
        self._more: list[tuple[Any, dict[str, str]]] = []
        self._query_name: str | None = None
        self._trigger: dict[str, Any] = {}

    def format(self, sink: Any) -> CkptDataStreamWriter:
        """``"delta"``, ``"files"``, ``"sql"``, ``"memory"``, or a sink of yours: its registered name or its class."""
        self._format = sink
        return self

    def option(self, key: str, value: Any) -> CkptDataStreamWriter:
        """One option of the sink, ``checkpointLocation``, or a setting of the job (``spark.ckpt.*``)."""
        self._options[key] = option_text(value)
        return self

    def options(self, **options: Any) -> CkptDataStreamWriter:
        """Several options; those whose names have dots go to :meth:`option`."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def alsoTo(self, sink: Any, **options: Any) -> CkptDataStreamWriter:
        """A further sink for the same rows, completed under the same checkpoints: all sinks or none.

        ``columns="a,b"`` gives it some of the columns; ``uid`` names it (default: the format and its number).
        """
        self._more.append((sink, {k: option_text(v) for k, v in options.items()}))
        return self

    def outputMode(self, mode: str) -> CkptDataStreamWriter:
        """``append`` or ``update``; it must be what the query's operators put out, as in Spark. Need not be given."""
        if mode.lower() not in ("append", "update"):
            raise InvalidInputError(f"outputMode must be append or update, found {mode!r}; complete is not supported")
        for operator in self._df._lineage.operators:
            if operator.output_mode not in (None, mode.lower()):
                raise InvalidInputError(
                    f"outputMode is {mode.lower()!r}, but operator {operator.uid!r} puts out rows of mode "
                    f"{operator.output_mode!r}: use outputMode({operator.output_mode!r}). For rows that are never "
                    'updated, aggregate(..., emit="rows") or a function with outputMode "append".'
                )
        return self

    def queryName(self, name: str) -> CkptDataStreamWriter:
        """Spark's name of the query, and the job's: checkpoints go on from those of the same name."""
        self._query_name = name
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
        realTime: str | None = None,
    ) -> CkptDataStreamWriter:
        """``processingTime`` or ``availableNow``. ``once``, which Spark deprecated, is ``availableNow`` here.

        All there is cannot be one batch: the final checkpoint's barrier comes behind the last row.
        """
        if continuous is not None or realTime is not None:
            raise InvalidInputError(
                "barriers travel in micro-batches: use trigger(processingTime=...) or availableNow=True"
            )
        given = {"processingTime": processingTime, "once": once, "availableNow": availableNow}
        found = {name: value for name, value in given.items() if value is not None}
        if len(found) != 1 or False in found.values():
            raise InvalidInputError(
                f"trigger takes one of processingTime='10 seconds' and availableNow=True, found {found}"
            )
        self._trigger = found if processingTime is not None else {"availableNow": True}
        return self

    def foreachBatch(self, func: Any) -> CkptDataStreamWriter:
        """Raises ``InvalidInputError``: a batch is no checkpoint, and what it writes cannot be committed with one."""
        raise InvalidInputError(
            "foreachBatch is at-least-once and sees every batch, not every checkpoint; write a TwoPhaseSink and "
            "register it with spark_ckpt.register_sink"
        )

    def start(self, path: str | None = None) -> CkptQuery:
        """Validate everything, decide where to go on from, and start the query. See :mod:`spark_ckpt.plan.start`.

        Raises ``ConfigError`` for settings and options, ``TopologyError`` if the query does not fit its checkpoints,
        ``CorruptStorageError`` if what it needs of them is damaged; each says what to do::

            query = rows.writeStream.format("delta").option("path", "/lake/orders").queryName("orders").start()
        """
        options = dict(self._options)
        if path is not None:
            options["path"] = path
        if self._format is None:
            raise ConfigError("writeStream needs format(...): the name of a two-phase sink")
        location = options.pop("checkpointLocation", None)
        job_options = {k: options.pop(k) for k in list(options) if is_job_option(k)}
        sinks = [(self._format, options), *self._more]
        request = StartRequest(self._df, sinks, job_options, self._query_name, location, self._trigger)
        return CkptQuery(*start_query(request))
