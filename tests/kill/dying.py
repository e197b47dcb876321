"""A process that dies by SIGKILL ahead of the n-th change that it makes to files, whatever code makes it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

_CHANGES = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.symlink")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def die_ahead_of(nth: int, below: str, victim: int = 0) -> None:
    """From here on this process counts its changes to what is ``below`` a folder. ``victim``: what dies, as for
    kill(2); 0: this process. Python's own calls are heard; a library in another language may make several in one."""
    left = [nth]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if not _changes(event, arguments) or not _is_below(arguments[0], below):
            return
        left[0] -= 1
        if left[0] == 0:
            os.kill(victim or os.getpid(), signal.SIGKILL)
            signal.pause()

    sys.addaudithook(heard)


def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool((arguments[2] or 0) & _WRITING)
    return event in _CHANGES


def _is_below(path: Any, below: str) -> bool:
    if isinstance(path, int):
        return False
    return os.fsdecode(path).startswith(below)
