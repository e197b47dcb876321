"""Gives committed checkpoints to functions of the user's process, in order: ``foreachBatch`` and ``foreach``.

A thread beside the query looks for what is ready whenever Spark reports another batch, calls the function, and records
that it is done. Stopped anywhere in here, the next start calls the function again with the same id and the same rows:

1. before the function, or in it: nothing says that it was called;
2. after it, before the record: as above; what the function did must bear to be done again under the same id;
3. after the record: the rows are removed by the next start, or by ``gc``.

A function that raises ends the query. Its checkpoint waits for the next start.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.sinks.deliveries import Deliveries

_log = logging.getLogger("spark_ckpt")
_LOOK_S = 0.25
_OURS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Function:
    """``call`` is told a checkpoint and hands its rows to the user's function; ``name`` is the sink's uid,
    ``condition`` what Spark calls a failure of such a function."""

    name: str
    deliveries: Deliveries
    call: Callable[[int], None]
    condition: str


class Deliverer:
    """The functions of one started query. ``is_fenced``: whether a newer start delivers now."""

    def __init__(self, functions: Sequence[Function], is_fenced: Callable[[], bool]) -> None:
        self._functions, self._is_fenced = functions, is_fenced
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._ended = False
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """What the function raised, or what went wrong with its rows."""
        self.failed: str | None = None
        """Which function that was, of which checkpoint, and where in the user's code."""
        self.condition = ""
        """What Spark calls that; none if it was no function."""

    def start(self, query: Any, thread: Callable[..., threading.Thread] = threading.Thread) -> None:
        """Deliver what waits, and what ``query`` commits until it ends."""
        self._thread = thread(target=self._run, args=(query,), name="spark-ckpt-deliveries", daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        return not self._ended

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the query has ended and what it committed is delivered; whether that is so. At once where a function
        itself asks: it would wait for its own end."""
        if threading.current_thread() is not self._thread:
            with self._changed:
                self._changed.wait_for(lambda: self._ended, timeout_s)
        return self._ended

    def settle(self, timeout_s: float) -> None:
        """Until what is committed by now is delivered. Raises ``CheckpointFailedError`` if it is not."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._wake.set()
            in_time = self._changed.wait_for(lambda: self._ended or self._answered >= mine, max(timeout_s, 0.0))
        if self.failed is not None:
            raise CheckpointFailedError(
                f"the checkpoint is committed, but not delivered: {self.failed}"
            ) from self.error
        if not in_time:
            raise CheckpointFailedError(
                "the checkpoint is committed, but the function of foreachBatch or foreach was not done with it in "
                "time; it is still at work"
            )

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self, query: Any) -> None:
        try:
            self._follow(query)
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises ends the query
            self.error = error
            self.failed = self.failed or f"{type(error).__name__}: {error}"
            _log.error("The query ends, as %s", self.failed)
            _stop(query)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _follow(self, query: Any) -> None:
        seen: Any = object()  # what waits since an earlier start comes first
        while True:
            # In this order: what a query that has ended committed is there by now.
            asked = self._asked
            state = _state(query)
            if state is None:
                return
            active, batch = state
            if batch != seen or asked > self._answered or not active:
                if not self._deliver():
                    return
                seen = batch
                with self._changed:
                    self._answered = asked
                    self._changed.notify_all()
            if not active:
                return
            self._wake.wait(_LOOK_S)
            self._wake.clear()

    def _deliver(self) -> bool:
        """All that waits; False if a newer start does it from now on."""
        for function in self._functions:
            for checkpoint in function.deliveries.waiting():
                # Stopped here or in the function: the next start calls it, again, with the same id and rows.
                if self._is_fenced():
                    _log.warning("A newer start of the job delivers checkpoint %d and those behind it.", checkpoint)
                    return False
                self._call(function, checkpoint)
                function.deliveries.delivered(checkpoint)
        return True

    def _call(self, function: Function, checkpoint: int) -> None:
        began = time.monotonic()
        try:
            function.call(checkpoint)
        except BaseException as error:
            what = f"the function of {function.name!r} failed with checkpoint {checkpoint}{_place(error)}"
            self.condition = function.condition
            self.failed = f"{what}: {type(error).__name__}: {error}. The next start calls it again, with the same rows"
            raise
        _log.debug("%s: checkpoint %d took %.3f s", function.name, checkpoint, time.monotonic() - began)


def _state(query: Any) -> tuple[bool, Any] | None:
    """Whether it runs, and its newest batch, by Spark's own report: that costs no look at storage. None if there is
    nobody to ask, and no session for a function to work with."""
    try:
        active, progress = bool(query.isActive), query.lastProgress
    except Exception as error:  # noqa: BLE001 - the session was stopped: Spark and Spark Connect raise many kinds
        _log.debug("nothing is delivered any more: %s", error)
        return None
    return active, None if progress is None else progress["batchId"]


def _place(error: BaseException) -> str:
    """Where in the user's code: the last line that is neither ours, nor PySpark's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_a_librarys(f.filename)]
    return f" ({frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def _is_a_librarys(file: str) -> bool:
    return Path(file).is_relative_to(_OURS) or bool({"pyspark", "py4j"} & set(Path(file).parts))


def _stop(query: Any) -> None:
    try:
        query.stop()
    except Exception as error:  # noqa: BLE001 - Spark and Spark Connect raise errors of many kinds when they end
        _log.debug("the query could not be stopped: %s", error)
