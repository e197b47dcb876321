"""What a job stands on and what goes wrong with it: disks that are full, a clock that jumps."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SIZE = "192m"
_BLOCK = 1 << 20


class Disk:
    """A small file system of its own at ``path``. Mounting needs root."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Disk]:
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", self.path], check=True)
        try:
            yield self
        finally:
            subprocess.run(["umount", "--lazy", self.path], check=True)

    def fill(self, besides: int) -> None:
        """Leave ``besides`` bytes of room, so that something may still be written in part."""
        with (self.path / "full").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * _BLOCK)
        with (self.path / "full").open("ab") as file:
            file.truncate(max(0, file.tell() - besides))

    def make_room(self) -> None:
        (self.path / "full").unlink()


class Clock:
    """The clock of Python processes that are started with :meth:`environment`, apart from the machine's.

    The JVM's stays: libfaketime, which would reach it, breaks ``time.sleep`` of the Python we run.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.step("+0")

    def step(self, offset: str) -> None:
        """``offset`` from the true time, in seconds; seen within a second."""
        fresh = self._file.with_name("clock-new")
        fresh.write_text(offset)
        fresh.rename(self._file)

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        path = f"{Path(__file__).with_name('stepped_clock')}{os.pathsep}{env['PYTHONPATH']}"
        return {**env, "SOAK_CLOCK": str(self._file), "PYTHONPATH": path}


def can_mount() -> bool:
    return os.geteuid() == 0
