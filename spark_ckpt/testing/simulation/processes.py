"""Drivers of the simulated job: each runs the real code in a thread of its own, and only one moves at a time.

A thread can be halted wherever it reaches a point of the world, and can go on later: a driver that was believed dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process stops here. Not an ``Exception``: nothing in it may catch it."""


class Process:
    """One driver. ``rate``: how often it moves once it was halted, of all points that others pass."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._may_go, self._stands = threading.Lock(), threading.Lock()
        self._may_go.acquire()
        self._stands.acquire()
        self._is_killed = False
        self.starts = True
        """It has not decided yet where the job goes on from."""
        self.at: Any = ""
        """Where it stands."""
        self.done = False
        self.rate = 0.0
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="simulated driver", daemon=True)
        self._thread.start()

    def go(self) -> None:
        """Let it run until it halts or ends. Called by whoever moves now."""
        self._may_go.release()
        self._stands.acquire()

    def halt(self) -> None:
        """Called by the process itself: others move, until somebody lets it go on."""
        self._stands.release()
        self._may_go.acquire()
        if self._is_killed:
            raise Crash

    def kill(self) -> None:
        """It does nothing more."""
        self._is_killed = True
        while not self.done:
            self.go()
        self._thread.join()

    def _run(self) -> None:
        self._may_go.acquire()
        try:
            if not self._is_killed:
                self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the process is looked after
            self.error = error
        finally:
            self.done = True
            self._stands.release()
