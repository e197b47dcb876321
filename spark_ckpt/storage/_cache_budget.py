"""Keeps a folder that many processes write to within a number of bytes, by removing what was used longest ago."""

from __future__ import annotations

import contextlib
import os
import time

from spark_ckpt.storage._cache_folder import open_own

_LOOKS_PER_BUDGET = 16
_ABANDONED_S = 3600.0
_UNUSED_S = 7 * 86_400.0
"""What nobody opened for so long goes at the next look, whoever's it is: of a job, perhaps, that is no more."""


class CacheBudget:
    """One process's share in keeping ``folder`` (two levels deep) near ``max_bytes``.

    The folder is listed when this process has written a sixteenth of the budget since the last look, so with *n*
    processes it may exceed the budget by *n* sixteenths.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._unseen_bytes = max_bytes  # look at the first write: others may have filled it before

    def added(self, size_bytes: int) -> None:
        """This process wrote ``size_bytes``; removes old files if it is time to look."""
        self._unseen_bytes += size_bytes
        if self._unseen_bytes * _LOOKS_PER_BUDGET >= self._max_bytes:
            self._unseen_bytes = 0
            self._shrink()

    def _shrink(self) -> None:
        with contextlib.ExitStack() as stack:
            found = sorted(_files(self._folder, stack))
            total = sum(size for _, size, _, _ in found)
            now = time.time()
            for used_s, size, name, table in found:
                stale = used_s < now - (_ABANDONED_S if name.endswith(".tmp") else _UNUSED_S)
                if total <= self._max_bytes and not stale:
                    continue
                if name.endswith(".tmp") and not stale:
                    continue  # somebody is writing it
                with contextlib.suppress(OSError):  # another process was faster
                    os.unlink(name, dir_fd=table)
                total -= size


def _files(folder: str, stack: contextlib.ExitStack) -> list[tuple[float, int, str, int]]:
    """(last use, size, name, descriptor of its folder) of what is in this user's folders; links are not followed."""
    found = []
    for table in _names(folder):
        opened = open_own(os.path.join(folder, table))
        if opened is None:
            continue
        stack.callback(os.close, opened)
        for name in _names(opened):
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, name, opened))
    return found


def _names(folder: str | int) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
