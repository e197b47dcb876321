"""Keeps a folder that many processes write to within a number of bytes, by removing what was used longest ago."""

from __future__ import annotations

import contextlib
import os
import time

_LOOKS_PER_BUDGET = 16
_ABANDONED_S = 3600.0


class CacheBudget:
    """One process's share in keeping ``folder`` (two levels deep) near ``max_bytes``.

    The folder is listed when this process has written a sixteenth of the budget since the last look, so with *n*
    processes it may exceed the budget by *n* sixteenths.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._unseen_bytes = max_bytes  # look at the first write: others may have filled it before

    def touch(self, path: str) -> None:
        """``path`` was used now."""
        with contextlib.suppress(OSError):
            os.utime(path)

    def added(self, size_bytes: int) -> None:
        """This process wrote ``size_bytes``; removes old files if it is time to look."""
        self._unseen_bytes += size_bytes
        if self._unseen_bytes * _LOOKS_PER_BUDGET >= self._max_bytes:
            self._unseen_bytes = 0
            self._shrink()

    def _shrink(self) -> None:
        found = sorted(_files(self._folder))
        total = sum(size for _, size, _ in found)
        abandoned = time.time() - _ABANDONED_S
        for used_s, size, path in found:
            stale_temporary = path.endswith(".tmp") and used_s < abandoned
            if total <= self._max_bytes and not stale_temporary:
                continue
            if path.endswith(".tmp") and not stale_temporary:
                continue  # somebody is writing it
            with contextlib.suppress(OSError):  # another process was faster
                os.unlink(path)
            total -= size


def _files(folder: str) -> list[tuple[float, int, str]]:
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as tables:
        for table in tables:
            with contextlib.suppress(OSError), os.scandir(table.path) as files:
                for file in files:
                    with contextlib.suppress(OSError):
                        status = file.stat()
                        found.append((status.st_mtime, status.st_size, file.path))
    return found
