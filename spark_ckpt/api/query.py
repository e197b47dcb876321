"""The running query: Spark's ``StreamingQuery`` plus checkpoints and savepoints. Any process that holds it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from spark_ckpt import shown
from spark_ckpt.errors import CheckpointFailedError, CkptError, InvalidInputError
from spark_ckpt.execution.batch_functions import delivery_error
from spark_ckpt.execution.progress import with_reports
from spark_ckpt.hints import missing
from spark_ckpt.jobs.batch_reports import reported
from spark_ckpt.jobs.checkpoints import Checkpoints
from spark_ckpt.jobs.ending import note_end
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.pausing import note_pause, pause_stands
from spark_ckpt.jobs.requests import ask
from spark_ckpt.jobs.visible import await_visible, check_targets, topology_of
from spark_ckpt.monitoring.live import watch
from spark_ckpt.protocol.records import CHECKPOINT, FINAL, SAVEPOINT

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from spark_ckpt.execution.start import Running

_SAVEPOINT_TIMEOUT_S = 600.0
_LONG_S = 10.0
"""Nobody wants ``processAllAvailable`` to wait longer for the next look at a folder."""


class CkptQuery:
    """A started query: all of Spark's ``StreamingQuery``, and checkpoints, savepoints and the job's folder."""

    def __init__(self, running: Running) -> None:
        self._query = running.query
        self._run = running.run
        self._sinks = running.sinks
        self._deliverer = running.deliverer
        self._finds_within_s = running.finds_within_s
        self._open_reader = running.open_reader
        self._counted: dict[tuple[int, str], Any] = {}

    if not TYPE_CHECKING:  # a type checker and an editor are to know the methods that there are

        def __getattr__(self, name: str) -> Any:
            """What a newer Spark's query has besides."""
            if name.startswith("_"):
                raise missing(self, name, {})
            if hasattr(self._query, name):
                return getattr(self._query, name)
            raise missing(self, name, {}, dir(self._query))

    def _repr_html_(self) -> str | None:
        return shown.html("job", self.job)

    # -- what Spark's query has ----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """As PySpark's: that of the Spark checkpoint location, the same for every start there."""
        return str(self._query.id)

    @property
    def runId(self) -> str:
        """As PySpark's: another one for every start."""
        return str(self._query.runId)

    @property
    def name(self) -> str:
        """As PySpark's: ``queryName``, which is the job's name if ``spark.ckpt.job`` does not give it another."""
        return str(self._query.name)

    @property
    def isActive(self) -> bool:
        """As PySpark's: false once the query has ended, by itself, by :meth:`stop` or with an error.

        That is when functions of ``foreachBatch`` and ``foreach`` have what was committed.
        """
        return bool(self._query.isActive) or (self._deliverer is not None and self._deliverer.is_active)

    @property
    def status(self) -> dict[str, Any]:
        """As PySpark's: ``message``, ``isDataAvailable``, ``isTriggerActive``."""
        return dict(self._query.status)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end of the query, at most ``timeout`` seconds; as PySpark's.

        Returns None without ``timeout``, and with it whether the query has ended. Raises Spark's
        ``StreamingQueryException`` if it ended with an error: its message has ours, with what to do. Waits until
        functions of ``foreachBatch`` and ``foreach`` have what was committed; what they raise ends the query, too.
        """
        if self._deliverer is None:
            ended = self._awaited(timeout)
            if ended is not False:
                self._note_end(None)
            return ended
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            ended = self._awaited(timeout) is not False
        finally:  # what was committed before an error is delivered all the same
            done = self._deliverer.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        if ended and done:
            self._note_end(self._error_of_functions())
        self._raise_of_functions()
        return None if timeout is None else ended and done

    def _awaited(self, timeout: float | None) -> bool | None:
        try:
            ended = self._query.awaitTermination() if timeout is None else bool(self._query.awaitTermination(timeout))
        except Exception as error:
            self._note_end(error)  # at once: with it most programs end
            raise
        return ended

    def _note_end(self, error: Exception | None) -> None:
        note_end(self.job.records, self._run.generation, error)

    def exception(self) -> StreamingQueryException | None:
        """As PySpark's: the error that the query ended with, None if there was none."""
        return self._query.exception() or self._error_of_functions()

    def _error_of_functions(self) -> StreamingQueryException | None:
        """What ``foreachBatch`` or ``foreach`` ended the query with; Spark's own does not know of it."""
        return None if self._deliverer is None else delivery_error(self._deliverer)

    def _raise_of_functions(self) -> None:
        failed = self._error_of_functions()
        if failed is not None:
            raise failed from failed.__cause__

    def processAllAvailable(self) -> None:
        """As PySpark's, for tests: wait until all that is there now is processed and, by a checkpoint, committed.

        Sources such as ``files`` look for what is new every ``discoveryInterval`` (a second) only, so it waits for that
        first, unless that is more than ten seconds. Raises Spark's ``StreamingQueryException`` if the query or a
        function of ``foreachBatch`` or ``foreach`` fails, and else what :meth:`checkpoint` raises.
        """
        self._query.processAllAvailable()
        if self._finds_within_s <= _LONG_S and self._query.isActive:
            time.sleep(self._finds_within_s)
            self._query.processAllAvailable()
        try:
            if self._query.isActive:
                self.checkpoint()
                # The sinks have it when its batch is about to end: who stops the query now would interrupt Spark.
                self._query.processAllAvailable()
        except CkptError:
            self._raise_of_functions()
            if self.isActive or self.exception() is not None:
                raise  # else it has come to its end by itself, and all of it is committed

    def explain(self, extended: bool = False) -> None:
        """As PySpark's: print the plan of the newest batch; ``extended``: the logical plans, too."""
        self._query.explain(extended)

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """As PySpark's; ``numInputRows`` and the rates count rows of the sources."""
        progress = self._query.lastProgress
        return progress and with_reports(progress, self._run, reported(self._run))

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """As PySpark's; ``numInputRows`` and the rates count rows of the sources, in the newest 100 batches."""
        found, told = self._query.recentProgress, reported(self._run)
        # Who waits for something asks ten times a second, and most of what he gets he got before.
        known, self._counted = self._counted, {}
        for i, progress in enumerate(found):
            key = progress.batchId, progress.timestamp
            found[i] = known.get(key) or with_reports(progress, self._run, told)
            if progress.batchId in told.rows or not progress.numInputRows:  # else its rows may be known later
                self._counted[key] = found[i]
        return found

    # -- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """The job's folder: history, state, clean-up."""
        return Job(self._run.config, self._run.job, self._sinks)

    @property
    def generation(self) -> int:
        """The number of this start of the job; the newest alone may commit."""
        return self._run.generation

    def checkpoints(self) -> Checkpoints:
        """The checkpoint history, oldest first, a dict for each; see :meth:`spark_ckpt.Job.checkpoints`. ``.pandas()``
        makes a DataFrame of it, and a notebook shows it with plots."""
        return self.job.checkpoints()

    def watch(self, every_s: float = 2.0) -> None:
        """Show how the job is, anew every ``every_s`` seconds, until the query ends: in a notebook its graph, findings
        and checkpoints in one place, elsewhere a line for each change. Interrupting it does not stop the query."""
        watch(self.job, lambda: self.isActive, every_s)

    def statistics(self) -> dict[str, Any]:
        """Counts and distributions of the job's checkpoints since it began; see :meth:`spark_ckpt.Job.statistics`."""
        return self.job.statistics()

    def checkpoint(self, timeout_s: float = _SAVEPOINT_TIMEOUT_S) -> int:
        """Take a checkpoint now; returns its id once every sink has committed it, and functions have its rows.

        Raises ``CheckpointFailedError`` if it fails, or is not complete within ``timeout_s`` seconds: then it is
        withdrawn.
        """
        return self._ask(CHECKPOINT, None, False, timeout_s)

    def savepoint(self, path: str, timeout_s: float = _SAVEPOINT_TIMEOUT_S) -> int:
        """Take a savepoint into the empty folder ``path`` (or URL); returns its id once it is complete.

        It is self-contained: it outlives the job's retention and the job's folder. Another job, or this one, begins
        from it with ``spark.ckpt.restore`` set to ``path``. Raises ``CheckpointFailedError`` if it was aborted or is
        not complete within ``timeout_s`` seconds: then it is withdrawn; ``InvalidInputError`` if ``path`` cannot be
        written::

            query.savepoint("s3://lake/savepoints/before-v2")
        """
        return self._ask(SAVEPOINT, path, False, timeout_s)

    def await_visible(self, timeout_s: float = _SAVEPOINT_TIMEOUT_S) -> int:
        """Wait until every sink shows all rows that the sources have now; returns the id of the checkpoint it is in.

        Unlike :meth:`processAllAvailable` it returns though new rows never stop. Rows of a database table take
        ``settleDelay`` longer. Raises ``ConfigError`` for sources whose offsets cannot be compared, those that Spark
        reads among them; ``CheckpointFailedError`` after ``timeout_s`` seconds, or if checkpoints fail; and
        ``InvalidInputError`` if the query does not run, or is paused::

            query.await_visible(60)  # what was written to the sources before this line
            assert spark.read.format("delta").load("/lake/orders").count() == 3
        """
        self._require_running("only a query that runs shows what its sources have now")
        records, job, open_reader = self.job.records, self._run.job, self._open_reader
        deadline = time.monotonic() + timeout_s
        topology = topology_of(records, job)
        check_targets(topology, dict.fromkeys(topology.sources))
        if not records.completions():
            self.checkpoint(timeout_s)  # which tells where sources began that begin with what comes now
        at = records.completions()[-1].sources
        readers = {uid: open_reader(uid) for uid in topology.sources}
        try:
            # A source that took no part in the checkpoint begins where its options say.
            asks = {uid: r.there_now(at.get(uid, {}).get("inner") or r.initial()) for uid, r in readers.items()}

            def targets() -> dict[str, Any] | None:
                found = {uid: ask() for uid, ask in asks.items()}
                return None if None in found.values() else found

            left_s = max(deadline - time.monotonic(), 0.0)
            return await_visible(records, job, targets, self.checkpoint, left_s)
        finally:
            for reader in readers.values():
                reader.stop()

    def pause(self, reason: str, timeout_s: float = _SAVEPOINT_TIMEOUT_S) -> int:
        """Let the sources stand still behind a checkpoint, until :meth:`resume`; returns its id once sinks show it.

        The query goes on, with checkpoints of what it has, and ``processAllAvailable`` returns though rows wait. It
        holds for later starts, too, which show ``reason``; see :meth:`spark_ckpt.Job.pause`, which says what it raises,
        also if the checkpoint is not complete within ``timeout_s`` seconds. Raises ``InvalidInputError`` if the query
        is not running::

            query.pause("the warehouse is migrated until noon")
        """
        self._require_running("a job that is stopped is paused by Job.pause")
        note_pause(self.job.records, self._run.job, reason)
        with pause_stands(self._run.job):
            return self._ask(CHECKPOINT, None, False, timeout_s)

    def resume(self) -> None:
        """End a pause: sources read on within ``spark.ckpt.triggerPollInterval``. Nothing happens if there is none."""
        self.job.resume()

    def stop(
        self, savepoint: str | None = None, timeout_s: float = _SAVEPOINT_TIMEOUT_S, drain: bool = False
    ) -> int | None:
        """Stop the query. With ``savepoint``, a folder, take one first: nothing behind its barrier is processed.

        If the savepoint fails, is not complete within ``timeout_s`` seconds or cannot be written, the query goes on and
        the error is raised, as :meth:`savepoint` does. Returns the id of the savepoint, or of the final checkpoint if
        ``drain`` is given without one, else None. Without either, what came since the last checkpoint is not committed
        yet: the next start does that. Functions of ``foreachBatch`` and ``foreach`` get what is committed first.

        ``drain``: for a job that is to end for good, as ``flink stop --drain``. Nothing more is read, the event time
        goes to its end (the last millisecond of the year 9999), every event-time time-out before that fires, one keyed
        operator after the other, and all of it is committed with the savepoint or final checkpoint. Time-outs of the
        processing time do not fire. From its barrier on a drain is not taken back: if its checkpoint is given up, the
        error is raised, and the query takes another one and ends by itself. So does the next start after a crash.

        A drained Spark location stays drained: starts there end at once. A start at an empty location goes on behind
        the last row, with the watermark that the rows made; but keys that were told of the end had their results
        already, and rows that come later begin them anew. To go on later, stop without ``drain``.
        """
        done: int | None = None
        if drain or savepoint is not None:
            done = self._ask(FINAL if savepoint is None else SAVEPOINT, savepoint, True, timeout_s, drain)
        self._query.stop()
        if self._deliverer is not None:
            self._deliverer.wait()
        self._note_end(self.exception())
        if self._run.config.retention == "delete" and self.exception() is None:
            self.job.delete_checkpoints(besides=self._run.generation)
        return done

    def _require_running(self, instead: str) -> None:
        if not self._query.isActive:
            raise InvalidInputError(f"the query is not running; {instead}")

    def _ask(self, kind: str, target: str | None, terminal: bool, timeout_s: float, drain: bool = False) -> int:
        self._require_running("a savepoint of a stopped job is Job.savepoint's work")

        def alive() -> None:
            if not self._query.isActive:
                raise CheckpointFailedError(f"the query ended before the {kind} was complete: {self.exception()}")

        deadline = time.monotonic() + timeout_s
        done = ask(self.job.records, kind, target, terminal, timeout_s, alive, drain)
        if self._deliverer is not None:
            self._deliverer.settle(deadline - time.monotonic())
        return done
