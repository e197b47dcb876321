"""Folders on any fsspec file system, with the two guarantees the protocol needs: create-if-absent and atomic replace.

Local folders use hard links and renames and are synced to disk; object stores use conditional and whole-object puts.
Errors never show storage options or passwords in URLs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fsspec

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage._pieces import write_pieces
from spark_ckpt.storage._s3_requests import is_object, listed
from spark_ckpt.storage.object_options import OBJECT_STORES, fsspec_options, scheme_of
from spark_ckpt.storage.refusals import reading, writing
from spark_ckpt.storage.retry import Retry, http_status
from spark_ckpt.storage.tally import count_requests

_TEMPORARY = ".tmp"
_CONFLICTS = 3
_PRECONDITION_FAILED = 412
_MEMORY_LOCK = threading.Lock()


def normalize_url(url: str) -> str:
    """One spelling for every place: absolute local path, or ``scheme://...`` without a trailing slash.

    Accepts what Spark accepts: ``s3a://`` and ``s3n://`` mean ``s3://``; ``file:/x``, ``file:///x`` and
    ``file://localhost/x`` mean ``/x``; a relative path is relative to the working directory.
    """
    if not url or not url.strip():
        raise InvalidInputError("Expected a folder's path or URL, found an empty value. Set it, e.g. s3://bucket/dir.")
    url = re.sub(r"^s3[an]://", "s3://", url)
    if url.startswith("file:"):
        url = re.sub(r"^file:(//(localhost)?(?=/))?", "", url)
    if "://" not in url:
        return os.path.abspath(os.path.expanduser(url))
    return url.rstrip("/")


def open_filesystem(
    url: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system behind ``url`` and the folder's path on it. Driver and executors; opens no connection by itself.

    ``storage_options`` have fsspec's names or delta-rs's. Raises ``InvalidInputError`` if the scheme is unknown or its
    package is not installed, and ``ConfigError`` as :func:`spark_ckpt.storage.object_options.fsspec_options`.
    """
    normal = normalize_url(url)
    options, scheme = fsspec_options(normal, storage_options), scheme_of(normal)
    if scheme in OBJECT_STORES:
        options.setdefault("use_listings_cache", False)
    try:
        fs, path = fsspec.core.url_to_fs(normal, **({} if scheme == "file" else options))
    except (ImportError, ValueError) as error:
        reason = type(error).__name__ if options else str(error)
        raise InvalidInputError(
            f"Cannot open {redact_url(url)!r}: expected a path or a URL that fsspec knows, found scheme {scheme!r}"
            f" ({reason}). Install its package (spark-ckpt[s3], [gcs] or [azure] brings one) or use another URL."
        ) from None
    if scheme == "s3":
        count_requests(fs)
    return fs, str(path).rstrip("/") or "/"


def make_on(fs: fsspec.AbstractFileSystem, path: str) -> None:
    """Folder ``path`` of ``fs`` and those above it. Object stores have none, and s3fs would make a bucket."""
    schemes = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if not schemes & OBJECT_STORES:
        fs.makedirs(path, exist_ok=True)


def file_of_option(option: str, url: str, storage_options: Mapping[str, Any]) -> bytes:
    """All of the file that ``option`` names. Any process. Raises ``ConfigError`` if it cannot be read."""
    try:
        with fsspec.open(normalize_url(url), "rb", **storage_options) as file:
            return bytes(file.read())
    except OSError as error:
        raise ConfigError(f"option '{option}': expected a readable file, found {error}") from None


class Folder:
    """One folder. Names are relative to it, with ``/`` between parts. Cheap to make; safe in threads and after fork.

    ``url`` is normalised; ``local`` says that ``path`` gives paths the operating system understands. What fails in a
    way that may pass is tried again as ``retry`` says, before it is raised.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None, retry: Retry | None = None) -> None:
        self.url = normalize_url(url)
        self.retry = retry or Retry()
        self.storage_options = dict(storage_options or {})
        self.fs, self.root = open_filesystem(url, storage_options)
        self.local = "://" not in self.url
        self._memory = self.url.startswith("memory://")
        self._s3 = scheme_of(self.url) == "s3"
        self._in_one: dict[str, Any] = {"max_concurrency": 1} if self._s3 else {}  # s3fs else asks for the size first

    def __repr__(self) -> str:
        return f"Folder({redact_url(self.url)!r})"

    def child(self, name: str) -> Folder:
        return Folder(f"{self.url}/{name}", self.storage_options, self.retry)

    def path(self, name: str) -> str:
        """Path of ``name`` on ``fs``."""
        return f"{self.root}/{name}" if name else self.root

    def shown(self, name: str) -> str:
        """``name`` as messages show it."""
        return redact_url(f"{self.url}/{name}")

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Write ``name`` if nobody has; returns whether this call did. Readers see all of it or nothing.

        ``durable`` syncs file and folder to disk on a local file system (object stores always do). Raises
        ``StorageNotWritableError``, as everything here that writes.
        """
        tries = 0

        def create() -> bool:
            nonlocal tries
            tries += 1
            if self.local:
                return self._create_local(name, data, durable)
            with _MEMORY_LOCK if self._memory else contextlib.nullcontext():
                return self._create_remote(name, bytes(data))

        with self._writing(name):
            created = self.retry.call(create)
        # A try that failed may have got as far as the name, also one that a store's client repeated by itself: aiohttp
        # sends a PUT again where a connection that it kept breaks, botocore where the server has an error.
        return created or ((tries > 1 or not self.local) and self._is_ours(name, data, durable))

    def replace(self, name: str, data: bytes | memoryview, durable: bool = True) -> None:
        """Write ``name`` whatever was there. Readers see the old or the new content, never a mixture."""
        with self._writing(name):
            self.retry.call(lambda: self._replace(name, data, durable))

    def _replace(self, name: str, data: bytes | memoryview, durable: bool) -> None:
        if self.local:
            with self._temporary(data, durable) as temporary:
                target = self._parent_made(name, durable)
                os.replace(temporary, target)
            if durable:
                sync_folder(os.path.dirname(target))
            return
        with _MEMORY_LOCK if self._memory else contextlib.nullcontext():
            self.fs.pipe_file(self.path(name), bytes(data))

    def read(self, name: str) -> bytes | None:
        """All of ``name``, or None if there is no such file."""
        try:
            with self._reading(name):
                return bytes(self.retry.call(lambda: self.fs.cat_file(self.path(name), **self._in_one)))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # a name from a damaged record
                raise
            return None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``, fewer at the end. Raises ``FileNotFoundError``."""
        return bytes(self.retry.call(lambda: self.fs.cat_file(self.path(name), start=start, end=start + length)))

    def modified_s(self, name: str) -> float:
        """When ``name`` was last written, in seconds since the epoch. Raises ``FileNotFoundError``."""
        return float(self.retry.call(lambda: self.fs.modified(self.path(name))).timestamp())

    def exists(self, name: str) -> bool:
        with self._reading(name):
            return self.retry.call(lambda: self._is_file(self.path(name)))

    def _is_file(self, path: str) -> bool:
        """Not by ``fs.isfile``, which takes every error for a no."""
        try:
            if self._s3:
                return is_object(self.fs, path)
            return os.path.isfile(path) if self.local else bool(self.fs.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def names(self, folder: str = "") -> list[str]:
        """Names of the files in ``folder`` itself, sorted; hidden ones and folders left out. Empty if it is absent."""
        return sorted(n for n, is_file in self._entries(folder) if is_file and not n.startswith("."))

    def folders(self, folder: str = "") -> list[str]:
        """Names of the folders in ``folder``, sorted, hidden ones left out."""
        return sorted(n for n, is_file in self._entries(folder) if not is_file and not n.startswith("."))

    def remove(self, name: str) -> None:
        """Remove file ``name``. Nothing happens if it is not there."""
        remove: Callable[[str], Any] = os.unlink if self.local else self.fs.rm_file
        with self._writing(name), contextlib.suppress(FileNotFoundError):
            self.retry.call(lambda: remove(self.path(name)))

    def remove_all(self, name: str) -> None:
        """Remove file or folder ``name`` with all that is in it. Nothing happens if it is not there."""
        with self._writing(name), contextlib.suppress(FileNotFoundError):
            self.retry.call(lambda: self.fs.rm(self.path(name), recursive=True))

    def remove_if_empty(self) -> bool:
        """Remove the folder itself, where the file system has folders, unless something is in it; whether it did."""
        with contextlib.suppress(OSError):
            if self.local:
                os.rmdir(self.root)
                return True
        return False

    def remove_temporaries(self) -> None:
        """Remove what interrupted writes left behind. Only while nobody writes."""
        for name in self._list_names(_TEMPORARY):
            self.remove(f"{_TEMPORARY}/{name}")
        if self.local:
            with contextlib.suppress(OSError):
                os.rmdir(self.path(_TEMPORARY))

    def _writing(self, name: str) -> contextlib.AbstractContextManager[None]:
        return writing(lambda: self.shown(name))

    def _reading(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.local else reading(lambda: self.shown(name))

    def _list_names(self, folder: str) -> list[str]:
        return [n for n, is_file in self._entries(folder) if is_file]

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        with self._reading(folder):
            return self.retry.call(lambda: list(self._scan(folder)))

    def _scan(self, folder: str) -> Iterator[tuple[str, bool]]:
        path = self.path(folder)
        try:
            if self.local:
                with os.scandir(path) as found:
                    yield from [(e.name, e.is_file()) for e in found]
                return
            if self._s3:
                return (yield from listed(self.fs, path))
            self.fs.invalidate_cache(path)
            for entry in self.fs.ls(path, detail=True):
                name = entry["name"].rstrip("/").rsplit("/", 1)[-1]
                if name and entry["name"].rstrip("/") != path:
                    yield name, entry["type"] == "file"
        except FileNotFoundError:
            return

    def _create_local(self, name: str, data: bytes | memoryview, durable: bool) -> bool:
        target = self._parent_made(name, durable)
        if os.path.exists(target):
            return False
        with self._temporary(data, durable) as temporary:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
        if durable:
            sync_folder(os.path.dirname(target))
        return True

    def _create_remote(self, name: str, data: bytes) -> bool:
        for last in (False,) * _CONFLICTS + (True,):
            try:
                self.fs.pipe_file(self.path(name), data, mode="create")
                return True
            except FileExistsError:
                return False
            except PermissionError:
                raise
            except OSError as error:
                # Object stores say "precondition failed" and "conflict, try again" by errors of many types.
                if http_status(error) == _PRECONDITION_FAILED or self.fs.exists(self.path(name)):
                    return False
                if last:
                    raise
        raise AssertionError("unreachable")

    def _is_ours(self, name: str, data: bytes | memoryview, durable: bool) -> bool:
        """Whether ``name`` is what this call, and no other, wrote: whoever creates puts something of its own into it,
        or does not mind."""
        if self.read(name) != bytes(data):
            return False
        if self.local and durable:
            self.retry.call(lambda: sync_folder(os.path.dirname(self.path(name))))
        return True

    def _parent_made(self, name: str, durable: bool) -> str:
        target = self.path(name)
        make_folder(os.path.dirname(target), durable)
        return target

    @contextlib.contextmanager
    def _temporary(self, data: bytes | memoryview, durable: bool) -> Iterator[str]:
        make_folder(self.path(_TEMPORARY), durable=False)
        temporary = self.path(f"{_TEMPORARY}/{uuid.uuid4().hex}")
        try:
            with open(temporary, "xb") as file:
                write_pieces(file, data)
                if durable:
                    sync_file(file.fileno())
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def make_folder(path: str, durable: bool = True) -> None:
    """Make local folder ``path`` and those above it; ``durable`` makes their names survive a power loss."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_folder(parent, durable)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if durable:
        sync_folder(parent)


def sync_file(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_folder(path: str) -> None:
    """Make the names in local folder ``path`` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
