"""Spark's progress with the rows that were read. The user's process.

Where a source is chained to what follows, Spark sees record batches and counts those, and it counts control rows
everywhere. So each task says in-band how many rows it read, the sink's commit writes it into the batch's record, and
here Spark's numbers are replaced by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener, StreamingQueryProgress

from spark_ckpt.jobs.rows_read import Rows, rows_read, run_of
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.plan.lineage import SPARK_STREAMS
from spark_ckpt.sources.spark_stream import is_control, is_ours

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_RATES = ("inputRowsPerSecond", "processedRowsPerSecond")
_UNKNOWN = -1
"""What Spark says of sinks that do not tell, such as foreachBatch."""


def with_rows(progress: Any, run: RunSpec, rows: Rows) -> Any:
    """``progress`` with the rows of its batch, if it read any and they are known. How many were written is not: Spark
    counts what reaches its sink, control rows and rows that wait for a checkpoint among them."""
    known = rows.get(progress.batchId) if progress.numInputRows else None
    if known is None and progress.sink.numOutputRows == _UNKNOWN:
        return progress
    body = json.loads(progress.json)
    body["sink"]["numOutputRows"] = _UNKNOWN
    if known is not None and _counted(body["sources"], run.topology.sources, known):
        body["numInputRows"] = sum(s["numInputRows"] for s in body["sources"])
        body.update({rate: sum(s.get(rate) or 0.0 for s in body["sources"]) for rate in _RATES})
    counted = StreamingQueryProgress.fromJson(body)
    counted["observedMetrics"] = progress.observedMetrics
    return counted


def _counted(sources: list[dict[str, Any]], uids: Sequence[str], known: Mapping[str, int]) -> bool:
    """Whether the rows of each are known now. Of the streams that Spark reads it is Spark that knows them."""
    ends = [_parsed(source.get("endOffset")) for source in sources]
    control = [source for source, end in zip(sources, ends, strict=True) if is_control(end)]
    own = sources
    if control:
        own = [s for s, end in zip(sources, ends, strict=True) if is_ours(end) and not is_control(end)]
        uids = [uid for uid in uids if uid != SPARK_STREAMS.uid]
    if len(own) != len(uids):
        return False
    # Spark's order is that of the plan, from left to right; ours is that in which the streams were put together.
    for source, uid in zip(own, uids, strict=True):
        _count(source, known.get(uid, 0))
    for source in control:
        _count(source, 0)
    return True


def _parsed(offset: Any) -> Any:
    """Spark has an offset as JSON inside of its own, or, in what was read back, as a text."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _count(source: dict[str, Any], rows: int) -> None:
    """The times are Spark's: what it divided by is what it is divided by."""
    spark_rows = source["numInputRows"]
    source["numInputRows"] = rows
    for rate in _RATES:
        source[rate] = (source.get(rate) or 0.0) * rows / spark_rows if spark_rows else 0.0


class CkptStreams:
    """``spark.streams`` whose listeners are told rows; all else is Spark's."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams
        self._listeners: dict[Any, Any] = {}

    if not TYPE_CHECKING:  # a type checker and an editor are to know the methods that there are

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(self._streams, name)

    @property
    def active(self) -> list[StreamingQuery]:
        """As PySpark's: Spark's own queries, those of checkpointed streams among them."""
        return self._streams.active

    def get(self, id: str) -> StreamingQuery | None:
        """As PySpark's: the active query with this ``id``."""
        return self._streams.get(id)

    def awaitAnyTermination(self, timeout: float | None = None) -> bool | None:
        """As PySpark's: wait until one of the queries ends, at most ``timeout`` seconds."""
        return self._streams.awaitAnyTermination() if timeout is None else self._streams.awaitAnyTermination(timeout)

    def resetTerminated(self) -> None:
        """As PySpark's: forget ended queries, so that :meth:`awaitAnyTermination` waits for another one."""
        self._streams.resetTerminated()

    def addListener(self, listener: StreamingQueryListener) -> None:
        """As PySpark's. What it is told of queries of this process has ``numInputRows`` and rates of rows."""
        self._listeners[listener] = counting = _CountingListener(listener)
        self._streams.addListener(counting)

    def removeListener(self, listener: StreamingQueryListener) -> None:
        """As PySpark's."""
        self._streams.removeListener(self._listeners.pop(listener, listener))


class _CountingListener(StreamingQueryListener):
    def __init__(self, inner: StreamingQueryListener) -> None:
        self._inner = inner

    def _set_spark_session(self, session: Any) -> None:
        super()._set_spark_session(session)
        self._inner._set_spark_session(session)

    def onQueryStarted(self, event: Any) -> None:
        self._inner.onQueryStarted(event)

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        run = run_of(progress.name, str(progress.runId))
        if run is not None:
            rows = rows_read(run) if progress.numInputRows else {}
            event = QueryProgressEvent(with_rows(progress, run, rows))
        self._inner.onQueryProgress(event)

    def onQueryIdle(self, event: Any) -> None:
        self._inner.onQueryIdle(event)

    def onQueryTerminated(self, event: Any) -> None:
        self._inner.onQueryTerminated(event)
