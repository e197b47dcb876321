"""Short ways through the real code, for what a simulation does a thousand times a second.

Reads neither fail nor stop the process here, so they go straight to the disk; and the same bytes are the same record,
so its checksum and its fields are looked at once. What is read is what it would be without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from spark_ckpt.protocol import codec
from spark_ckpt.storage import filesystem, record_store
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.testing.simulation.disk import SCHEME, Disk, SimulatedFiles


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within, ``value`` stands for what ``owner`` calls ``name``."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def short_ways(disk: Disk) -> Iterator[None]:
    with _straight_to(disk), _known_records():
        yield


@contextlib.contextmanager
def _straight_to(disk: Disk) -> Iterator[None]:
    read, names, exists = Folder.read, Folder.names, Folder.exists

    def is_here(folder: Folder) -> bool:
        return isinstance(folder.fs, SimulatedFiles)

    def read_here(folder: Folder, name: str) -> bytes | None:
        return disk.files.get(folder.path(name)) if is_here(folder) else read(folder, name)

    def names_here(folder: Folder, name: str = "") -> list[str]:
        if not is_here(folder):
            return names(folder, name)
        return [n for n in disk.names(folder.path(name)) if not n.startswith(".")]

    def exists_here(folder: Folder, name: str) -> bool:
        return folder.path(name) in disk.files if is_here(folder) else exists(folder, name)

    with (
        replaced(filesystem, "open_filesystem", _opened),
        replaced(Folder, "read", read_here),
        replaced(Folder, "names", names_here),
        replaced(Folder, "exists", exists_here),
    ):
        yield


def _opened(url: str, storage_options: Any = None) -> Any:
    return _simulated(url) if url.startswith(f"{SCHEME}://") else _open(url, storage_options)


_open = filesystem.open_filesystem
_simulated = lru_cache(maxsize=1000)(_open)


@contextlib.contextmanager
def _known_records() -> Iterator[None]:
    decode, parse = record_store._decode, codec.read
    bodies: dict[tuple[bytes, str], dict[str, Any]] = {}
    values: dict[tuple[Any, int], tuple[Any, Any]] = {}

    def decoded(data: bytes, kind: str, shown: Callable[[], str]) -> dict[str, Any]:
        found = bodies.get((data, kind))
        if found is None:
            found = bodies[data, kind] = decode(data, kind, shown)
        return found

    def body(store: record_store.RecordStore, path: str, kind: str) -> Any:
        found = store._load(path, kind)
        return None if found is None else found["body"]

    def parsed(cls: Any, value: Any, where: str = "record") -> Any:
        found = values.get((cls, id(value)))
        if found is None:
            found = values[cls, id(value)] = parse(cls, value, where), value
        return found[0]

    read = record_store.RecordStore
    with replaced(record_store, "_decode", decoded), replaced(read, "read", body), replaced(codec, "read", parsed):
        yield
