"""What a job under test finds around it: a disk in memory, a clock, and steps at which its processes may die."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext

from spark_ckpt.runtime.operator import spec as operator_spec
from spark_ckpt.runtime.source import reader as source_reader
from spark_ckpt.storage import tally
from spark_ckpt.storage.run_cache import RunCache
from spark_ckpt.testing.simulation.disk import Disk
from spark_ckpt.testing.simulation.processes import Crash, Process
from spark_ckpt.testing.simulation.short_ways import replaced
from spark_ckpt.testing.simulation.surroundings import surrounded_by

START_MS = 1_700_000_000_000
"""When time begins: November 14, 2023."""


class World:
    """Everything that outlives the job's processes, and where they die.

    ``kill_at``: the number of the step to die at, of those that this start comes to, or a part of the step's name.
    """

    def __init__(self) -> None:
        self.disk = Disk()
        self.now_ms = START_MS
        self.kill_at: int | str | None = None
        self.steps: list[str] = []
        """Of this start."""
        self.killed: str = ""
        """The step at which the last start died, or halted; empty: it did not."""
        self.starting: Process | None = None
        """The driver that halts where it would die."""
        self.halted: Process | None = None
        """A driver that was believed dead, and goes on when the next one comes to the step ``wakes_at``."""
        self.wakes_at = 0
        self._ids, self._others_move = 0, False

    def reached(self, place: str) -> None:
        """The job's code, or the loop around it, comes to a step: the job may die there."""
        if self._others_move:  # what a halted driver does is no step of the one that runs
            return
        number = len(self.steps)
        self.steps.append(place)
        if self.halted is not None and number == self.wakes_at:
            self.wake()
        at = self.kill_at
        if at is None or (number != at if isinstance(at, int) else at not in place):
            return
        self.kill_at, self.killed = None, place
        # One without a generation would be the newest when it goes on, and the other one would be told to end.
        if self.starting is None or not any(step.startswith("after writing generations/") for step in self.steps):
            raise Crash
        halting, self.starting = self.starting, None
        halting.halt()

    def halts(self, work: Callable[[], Any], wakes_at: int) -> bool:
        """``work`` is a driver that halts where it would die, if another can take its place there.

        Whether it came to its end before that.
        """
        self.starting = self.halted = None
        driver = self.starting = Process(work)
        with _others():
            driver.go()
        self.starting = None
        self.halted, self.wakes_at = (None if driver.done else driver), wakes_at
        if driver.error is not None and not isinstance(driver.error, Crash):
            raise driver.error
        return driver.done and driver.error is None

    def wake(self) -> None:
        """The halted driver does all that is left of its work. It may fail at anything: another took its place."""
        driver, self.halted, self._others_move = self.halted, None, True
        try:
            if driver is not None:
                with _others():
                    driver.go()
        finally:
            self._others_move = False

    def ends(self) -> None:
        """No driver of it is left behind."""
        driver, self.halted, self._others_move = self.halted, None, True
        if driver is not None:
            with _others():
                driver.kill()

    def starts(self, kill_at: int | str | None) -> None:
        """New processes: nothing is left of what the ones before had in memory."""
        self.kill_at, self.steps, self.killed = kill_at, [], ""
        operator_spec._caches.clear()
        tally.forget()

    def before(self, path: str, data: bytes | None) -> None:
        self.reached(f"before {'writing' if data is not None else 'removing'} {_shown(path)}")

    def after(self, path: str, data: bytes | None) -> None:
        self.reached(f"after {'writing' if data is not None else 'removing'} {_shown(path)}")

    def unique(self) -> int:
        self._ids += 1
        return self._ids


@contextlib.contextmanager
def _others() -> Iterator[None]:
    """Within, another driver moves, in what is of one process: its caches, and the task that it is in."""
    caches = dict(operator_spec._caches)
    operator_spec._caches.clear()
    try:
        with in_no_task():
            yield
    finally:
        operator_spec._caches.clear()
        operator_spec._caches.update(caches)


@contextlib.contextmanager
def in_no_task() -> Iterator[None]:
    """Within, the process is in no task; behind it, in the one that it was in. A ``TaskContext()`` made within becomes
    the process's own, and not the one that is there."""
    before = TaskContext.get()
    TaskContext._taskContext = None
    try:
        yield
    finally:
        TaskContext._taskContext = before


def _shown(path: str) -> str:
    return path.partition("/")[2].partition("/")[2]


class _RunsInMemory(RunCache):
    """State files as one process has read them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: dict[str, Any] = {}

    def _mapped(self, name: str, least_rows: int) -> Any:
        return self._kept.get(name)

    def _store(self, name: str, batch: Any) -> None:
        self._kept[name] = batch

    def _tidy(self, now_s: float) -> None:
        """It goes with the process."""


@contextlib.contextmanager
def living_in(world: World) -> Iterator[None]:
    """Within, the code of this process lives in ``world``. Not for several threads."""
    known = dict(operator_spec._caches)
    with (
        surrounded_by(world),
        replaced(operator_spec, "RunCache", _RunsInMemory),
        replaced(source_reader, "end_in_order", lambda: None),
        replaced(source_reader, "stopping", lambda: None),
    ):
        try:
            yield
        finally:
            operator_spec._caches.clear()
            operator_spec._caches.update(known)


__all__ = ["START_MS", "Crash", "World", "living_in"]
