"""The one place where a simulated job keeps anything: files in memory, behind fsspec as any store is.

The real record store, state tables and savepoints read and write them by URLs ``simulated://...``. Whoever watches the
disk hears of each write and removal, before and after it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import fsspec
from fsspec import AbstractFileSystem

SCHEME = "simulated"


class Watcher(Protocol):
    """Told of a change before and after it. Either may raise; ``before`` may leave half of the file behind."""

    def before(self, path: str, data: bytes | None) -> None: ...

    def after(self, path: str, data: bytes | None) -> None: ...


class Disk:
    """Files by path, without the scheme; ``data`` None stands for a removal."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: dict[str, dict[str, bool]] = {}
        """What each folder holds, by name: whether it is a file."""

    def put(self, path: str, data: bytes) -> None:
        if path not in self.files:
            self._enter(path)
        self.files[path] = data

    def _enter(self, path: str) -> None:
        is_file = True
        while "/" in path:
            path, _, name = path.rpartition("/")
            known = self.folders.setdefault(path, {})
            if name in known:
                return
            known[name] = is_file
            is_file = False

    def drop(self, path: str) -> None:
        """A file, or a folder with all that it holds."""
        for name in list(self.folders.pop(path, ())):
            self.drop(f"{path}/{name}")
        self.files.pop(path, None)
        folder, _, name = path.rpartition("/")
        known = self.folders.get(folder, {})
        known.pop(name, None)
        if folder and not known and folder in self.folders:
            self.drop(folder)

    def names(self, folder: str) -> list[str]:
        """Of the files in it."""
        return sorted(n for n, is_file in self.folders.get(folder, {}).items() if is_file)


class SimulatedFiles(AbstractFileSystem):  # type: ignore[misc]
    """The disk and the watcher of the running simulation."""

    protocol: ClassVar[str] = SCHEME
    disk: ClassVar[Disk] = Disk()
    watcher: ClassVar[Watcher | None] = None

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and path in self.disk.files:
            raise FileExistsError(path)
        self._change(path, bytes(value), lambda: self._put(path, bytes(value), mode))

    def _put(self, path: str, value: bytes, mode: str) -> None:
        # Once more: another process may have moved since.
        if mode == "create" and path in self.disk.files:
            raise FileExistsError(path)
        self.disk.put(path, value)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        found = self.disk.files.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return found[start:end]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found = self.disk.files.get(path)
        if found is not None:
            return {"name": path, "type": "file", "size": len(found)}
        if path in self.disk.folders:
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def exists(self, path: str, **_: Any) -> bool:
        return path in self.disk.files or path in self.disk.folders

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        if path not in self.disk.folders:
            raise FileNotFoundError(path)
        found = self.disk.folders[path].items()
        return [{"name": f"{path}/{n}", "type": "file" if is_file else "directory"} for n, is_file in found]

    def rm_file(self, path: str) -> None:
        if path not in self.disk.files:
            raise FileNotFoundError(path)
        self._change(path, None, lambda: self.disk.drop(path))

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        if not self.exists(path):
            raise FileNotFoundError(path)
        self._change(path, None, lambda: self.disk.drop(path))

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        data = self.cat_file(path1)
        self._change(path2, data, lambda: self.disk.put(path2, data))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Folders are there as long as something is in them."""

    def invalidate_cache(self, path: str | None = None) -> None:
        """Nothing is cached."""

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        return io.BytesIO(self.cat_file(path))

    def _change(self, path: str, data: bytes | None, change: Callable[[], None]) -> None:
        watcher = self.watcher
        if watcher is None:
            change()
            return
        watcher.before(path, data)
        change()
        watcher.after(path, data)


fsspec.register_implementation(SCHEME, SimulatedFiles, clobber=True)
