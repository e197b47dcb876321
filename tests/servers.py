"""What the tests' servers have in common: they end with the process that started them, however that ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

_WATCH = 'cat > /dev/null; kill -9 "$0"; for i in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" && break; sleep 0.5; done'
"""Reads a pipe that nobody writes to: it ends when the only process that holds its other end does. What the server
started may live a moment longer and write into the folder."""


class Guard:
    """Of one server process: SIGKILL for it, and its ``folder`` removed, when this process is gone, also by SIGKILL.

    Not ``PR_SET_PDEATHSIG``, which goes by the thread that started the server and not by the process.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, str(pid), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def release(self) -> None:
        """The server has ended: its number may be another process's soon."""
        self._watch.kill()
        self._watch.communicate()
