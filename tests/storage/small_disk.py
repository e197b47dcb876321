"""A disk that runs full, for real: a small file system of its own, or, where none may be mounted, a process that may
write nothing any more (then every folder is full, and the error is EFBIG)."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

PAGE = 4096


class MountedDisk:
    """A tmpfs at ``path``."""

    ERROR, NUMBER = "No space left on device", "os error 28"

    def __init__(self, path: Path) -> None:
        self._filler = path / ".filler"

    def fill(self, but_pages: int = 0) -> None:
        """Until ``but_pages`` are left."""
        self.free()
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * PAGE):
                pass
        with self._filler.open("r+b") as file:
            file.truncate(max(0, self._filler.stat().st_size - but_pages * PAGE))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class ForbiddenDisk:
    """No file of this process may grow."""

    ERROR, NUMBER = "File too large", "os error 27"

    def fill(self, but_pages: int = 0) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (but_pages * 64, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextlib.contextmanager
def small_disk(path: Path, size: str = "2m") -> Iterator[MountedDisk | ForbiddenDisk]:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    disk = MountedDisk(path) if mounted else ForbiddenDisk()
    try:
        yield disk
    finally:
        disk.free()
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
