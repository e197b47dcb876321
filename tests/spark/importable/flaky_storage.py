"""A file system whose writes fail now and then, found by fsspec in every process through its entry point.

Local files behind ``flaky:///path``. Of the writes whose path has one of ``only`` (divided by ``|``), a third fails
with ``error`` (a name of errno), ``row`` of them in a row, counted over all processes by ``count``, a file.
"""

from __future__ import annotations

import errno
import os
import uuid
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FlakyFileSystem(LocalFileSystem):
    protocol = ("flaky",)
    cachable = False

    def __init__(self, row: str = "0", only: str = "/", error: str = "EIO", count: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._row, self._only, self._error, self._count = int(row), only.split("|"), error, count

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("flaky://"))

    def _may_fail(self, path: str) -> None:
        if not self._row or not any(part in path for part in self._only):
            return
        descriptor = os.open(self._count, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, b".")
            number = os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)
        if (number - 1) // self._row % 3 == 2:
            raise OSError(getattr(errno, self._error), os.strerror(getattr(errno, self._error)))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._may_fail(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{os.path.dirname(path)}/.{uuid.uuid4().hex}"
        with open(temporary, "xb") as file:
            file.write(value)
        try:
            (os.link if mode == "create" else os.replace)(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
