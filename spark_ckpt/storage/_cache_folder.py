"""A private local folder of files with checksums, for what can be made again: a file that is damaged is absent.

State is the users' data, and what is read here is believed, so nobody else may look into the folder or put files there.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import stat
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import xxhash

from spark_ckpt.storage._pieces import PieceWriter

_logger = logging.getLogger(__name__)

# A file is its content, the content's checksum (XXH3, 64 bits, little-endian) and this.
_END = b"ckptrun1"
_TRAILER = 8 + len(_END)
_MAX_CHECKED = 16384


class CacheFolder:
    """Folder ``name`` in ``parent``, made when first written to. One thread; any number of processes.

    A folder of that name that belongs to somebody else, is open to others or is a link is left alone, and one with
    another name is used. It is held open, so that nobody who may write ``parent`` can put another one in its place.
    """

    def __init__(self, parent: str, name: str) -> None:
        self._parent, self._name = parent, name
        self._folder: int | None = None
        self._checked: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def read(self, name: str) -> pa.Buffer | None:
        """The content of ``name``, mapped into memory, or None. The checksum is looked at the first time."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._opened())
        except OSError:
            return None
        try:
            content = self._content(file, name)
            with contextlib.suppress(OSError):
                os.utime(file)  # it was used now, see CacheBudget
        except (OSError, ValueError):
            content = None
        finally:
            os.close(file)
        if content is None:
            self.drop(name)
        return content

    def write(self, name: str, write: Callable[[Any], None]) -> int:
        """Put what ``write`` writes into the stream it is given; returns the file's size. Raises ``OSError``."""
        try:
            return self._write(name, write)
        except FileNotFoundError:  # somebody tidied the temporary folder up, with ours in it
            self._close()
            return self._write(name, write)

    def names(self) -> list[tuple[str, float]]:
        """The files in it, each with when it was last used, in seconds since the epoch. Makes no folder."""
        if self._folder is None and not os.path.isdir(os.path.join(self._parent, self._name)):
            return []
        found = []
        with contextlib.suppress(OSError):
            folder = self._opened()
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    found.append((name, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime))
        return found

    def drop(self, name: str) -> None:
        self._checked.pop(name, None)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._opened())

    def _content(self, file: int, name: str) -> pa.Buffer | None:
        status = os.fstat(file)
        mapped = pa.py_buffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
        length = mapped.size - _TRAILER
        content = mapped.slice(0, max(0, length))
        if self._checked.get(name) != (status.st_ino, status.st_size):
            if length < 0 or mapped.slice(length).to_pybytes() != _checksum(content) + _END:
                return None
            self._is_checked(name, status)
        return content

    def _is_checked(self, name: str, status: os.stat_result) -> None:
        self._checked[name] = (status.st_ino, status.st_size)
        if len(self._checked) > _MAX_CHECKED:
            self._checked.popitem(last=False)

    def _write(self, name: str, write: Callable[[Any], None]) -> int:
        folder = self._opened()
        temporary = f"{name}.{uuid.uuid4().hex}.tmp"
        made = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, made, 0o600, dir_fd=folder), "r+b") as file:
            try:
                write(PieceWriter(file))
                file.flush()
                # Summed from the page cache: what was written, without holding it in memory a second time.
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as written:
                    checksum = _checksum(written)
                file.seek(0, os.SEEK_END)
                file.write(checksum + _END)
                file.flush()
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                status = os.fstat(file.fileno())
                self._is_checked(name, status)
                return status.st_size
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _opened(self) -> int:
        if self._folder is None:
            self._folder = _open_private(self._parent, self._name)
        return self._folder

    def _close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._close()


def open_own(path: str) -> int | None:
    """A descriptor of folder ``path`` if it is a folder of this user that nobody else can use; else None."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(folder)
    if status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077:
        return folder
    os.close(folder)
    return None


def _open_private(parent: str, name: str) -> int:
    os.makedirs(parent, mode=0o700, exist_ok=True)
    for candidate in (name, f"{name}-{os.geteuid()}", f"{name}-{uuid.uuid4().hex}"):
        path = os.path.join(parent, candidate)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        folder = open_own(path)
        if folder is not None:
            return folder
        _logger.warning(
            "Cache folder %s is not used: expected a folder of this user alone (mode 0700). Remove what is there.",
            path,
        )
    raise PermissionError(f"no private folder can be made in {parent}")


def _checksum(data: Any) -> bytes:
    return xxhash.xxh3_64_intdigest(data).to_bytes(8, "little")
