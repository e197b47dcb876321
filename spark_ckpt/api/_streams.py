"""``ckpt.streams``: Spark's, whose listeners are told rows. The user's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener

from spark_ckpt.execution.progress import with_reports
from spark_ckpt.jobs.batch_reports import reported, run_of

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


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
            event = QueryProgressEvent(with_reports(progress, run, reported(run)))
        self._inner.onQueryProgress(event)

    def onQueryIdle(self, event: Any) -> None:
        self._inner.onQueryIdle(event)

    def onQueryTerminated(self, event: Any) -> None:
        self._inner.onQueryTerminated(event)
