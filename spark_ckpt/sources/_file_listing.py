"""What the ``files`` source sees in its folder: listing, identity of a file, opening it unchanged."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import InvalidInputError, writable
from spark_ckpt.redaction import redact_url
from spark_ckpt.sources._globs import NameGlob, PathGlob, is_glob
from spark_ckpt.sources._local_folders import is_hidden, local_info, passed_over, scan
from spark_ckpt.sources._sink_log import FOLDER, SinkLogs
from spark_ckpt.storage.filesystem import normalize_url, open_filesystem
from spark_ckpt.storage.object_options import OBJECT_STORES, scheme_of
from spark_ckpt.storage.refusals import reading

_TIME_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_PARTITION = re.compile(r"[^=]+=.*")


@dataclass(frozen=True)
class FileEntry:
    """One discovered file: its path on the file system and what tells whether it is still the same."""

    path: str
    size: int
    mtime_us: int
    etag: str = ""

    def same_as(self, other: FileEntry) -> bool:
        """Object stores give times of differing precision; where there is an etag it says more than the time."""
        if self.etag and other.etag:
            return self.size == other.size and self.etag == other.etag
        return self.size == other.size and self.mtime_us == other.mtime_us

    def __str__(self) -> str:
        time = dt.datetime.fromtimestamp(self.mtime_us / 1e6, dt.timezone.utc).isoformat(timespec="microseconds")
        return f"{self.size} bytes of {time}" + (f", etag {self.etag}" if self.etag else "")


@dataclass(frozen=True)
class ChangePolicy:
    """What to do about a file that is no longer what was discovered."""

    accept_changed: bool = False
    ignore_missing: bool = False


class InputFolder:
    """The files below a folder, matching a glob, or one file. Driver and executors; picklable.

    Raises ``GlobError`` for globs that are none.
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any],
        recursive: bool = False,
        name_filter: str | None = None,
        changes: ChangePolicy | None = None,
        sink_logs: bool = True,
    ) -> None:
        self.url = normalize_url(url)
        self.fs, self.root = open_filesystem(url, storage_options)
        self.local = "://" not in self.url
        self._recursive = recursive
        self._glob = PathGlob(self.root) if is_glob(self.root) else None
        self._name_filter = None if name_filter is None else NameGlob(name_filter)
        self._changes = changes or ChangePolicy()
        self._logs = SinkLogs(self.fs) if sink_logs else None
        self.gone: set[str] = set()
        """Of the files that were listed last, those that only the log of Spark's file sink knows."""

    def files(self) -> list[FileEntry]:
        """Every input file, oldest first, then by path. Hidden (``_``, ``.``) and empty files are left out.

        A file without bytes is one that somebody has only begun to write: it is listed once it has content.
        Raises ``InvalidInputError`` if a local path does not exist.
        """
        self.fs.invalidate_cache()
        with contextlib.nullcontext() if self.local else reading(lambda: redact_url(self.url)):
            infos = list(self._infos())
        self.gone = {info["name"] for info in infos if "gone" in info}
        entries = [self._entry(info) for info in infos]
        return sorted((e for e in entries if e.size > 0), key=lambda e: (e.mtime_us, e.path))

    def may_hold(self, path: str) -> bool:
        """Whether a file of that path is below the folder, or below what is in front of the first wildcard."""
        parts = self.root.split("/")
        fixed = list(takewhile(lambda part: not is_glob(part), parts))
        below = path.split("/")[: len(fixed)] == fixed
        return below if len(fixed) < len(parts) else below and (path == self.root or len(path) > len(self.root))

    def is_there(self) -> bool:
        """Whether there is something at the path, or may be later, as it is a glob. Lists nothing; of an object store,
        a folder is there if something is in it."""
        if self._glob is not None:
            return True
        if self.local:
            return os.path.exists(self.root)
        with reading(lambda: redact_url(self.url)), contextlib.suppress(PermissionError):  # of the bucket, perhaps
            return bool(self.fs.exists(self.root))
        return True

    def check(self, entry: FileEntry) -> bool:
        """Whether the file may be read: it is there and still what was discovered; False only if it may be missing.

        Raises ``InvalidInputError`` if it has changed or vanished and the options do not allow for that.
        """
        try:
            found = self._entry(self._info(entry.path))
        except FileNotFoundError:
            if self._changes.ignore_missing:
                return False
            raise self._vanished(entry) from None
        except OSError as error:
            if not self.local:
                raise
            raise InvalidInputError(
                f"{self.shown(entry.path)}: expected {entry}, found that it cannot be looked at ({error.strerror}); "
                "make it readable and start again"
            ) from None
        self.require_same(entry, found)
        return True

    def require_same(self, entry: FileEntry, found: FileEntry) -> None:
        if self._changes.accept_changed or entry.same_as(found):
            return
        raise InvalidInputError(
            f"{self.shown(entry.path)} changed after it was discovered: expected {entry}, found {found}. Input files "
            "must be complete when they appear and stay as they are: write them under a name that starts with '_' or "
            "'.' and rename them. Put the old content back, or start once with the option changedFiles=accept to go "
            "on with the file as it is now (what was already read of it is not read again)"
        )

    def open(self, path: str) -> AbstractContextManager[Any]:
        """For Arrow. Its own file reads without the interpreter, but only paths that are UTF-8."""
        return pa.OSFile(path) if self.local and writable(path) == path else self.fs.open(path, "rb")

    def shown(self, path: str) -> str:
        return redact_url(path if self.local else self.fs.unstrip_protocol(path))

    def _vanished(self, entry: FileEntry) -> InvalidInputError:
        return InvalidInputError(
            f"{self.shown(entry.path)} has vanished: expected {entry}, found no such file. It was discovered and not "
            "all of it was read (or it must be read again after a restart). Put it back, or set the option "
            "ignoreMissingFiles=true to go on without it. Keep input files until a completed checkpoint covers them"
        )

    def _infos(self) -> Iterator[dict[str, Any]]:
        single: dict[str, list[dict[str, Any]]] = {}
        for path in self._roots():
            try:
                info = self._info(path)
            except FileNotFoundError:
                self._require_bucket()
                continue
            except OSError as error:
                if not self.local:
                    raise
                passed_over(path, error)
                continue
            folder = path.rsplit("/", 1)[0]
            if info["type"] == "directory":
                if path == self.root or not path.endswith(f"/{FOLDER}"):  # a glob found the log itself
                    yield from self._in_folder(path)
            elif self._is_input(info, folder):
                single.setdefault(folder, []).append(info)
        for folder, found in single.items():
            named = folder if path != self.root and self._has_log(folder) else None
            yield from self._named(named, found, whole=False)

    def _in_folder(self, folder: str) -> Iterator[dict[str, Any]]:
        """Of Spark's file sinks' folders, the one that is named or, without a log in it, those below: what their logs
        name. Spark itself does so in a folder that is named, and reads all in those below and behind globs."""
        listing = list(self._below(folder))
        for found in listing:
            self._refuse_partition(found)
        logged = {info["name"].split(f"/{FOLDER}/")[0] for info in listing if f"/{FOLDER}/" in info["name"]}
        governing: dict[str, str | None] = {}
        by_log: dict[str | None, list[dict[str, Any]]] = {}
        if self._has_log(folder):
            governing[folder], by_log[folder] = folder, []
        for info in listing:
            if self._is_input(info, folder):
                inner = info["name"].rsplit("/", 1)[0]
                by_log.setdefault(self._governing(inner, folder, governing, logged), []).append(info)
        for log, infos in by_log.items():
            yield from self._named(log, infos)

    def _governing(self, inner: str, folder: str, known: dict[str, str | None], logged: set[str]) -> str | None:
        """The outermost folder with a log that ``inner`` is, or is below, from ``folder`` on."""
        if inner not in known:
            above = None if inner == folder else self._governing(inner.rsplit("/", 1)[0], folder, known, logged)
            own = inner != folder and (inner in logged or (self.local and self._has_log(inner)))
            known[inner] = above or (inner if own else None)
        return known[inner]

    def _has_log(self, folder: str) -> bool:
        if self._logs is None:
            return False
        return os.path.isdir(f"{folder}/{FOLDER}") if self.local else self._logs.of(folder) is not None

    def _named(self, folder: str | None, found: list[dict[str, Any]], whole: bool = True) -> Iterator[dict[str, Any]]:
        """Of what was ``found`` below ``folder``, what its log names; of the ``whole``, what it names besides."""
        log = self._logs.of(folder) if self._logs is not None and folder is not None else None
        if self._logs is None or folder is None or log is None:
            yield from found
            return
        counted, others, missing = log.split(found)
        self._logs.tell_others(folder, others)
        yield from counted
        for path, named in missing if whole else ():
            info = self._logs.info(path, named, self._info)
            if self._is_input(info, folder):
                yield info

    def _roots(self) -> list[str]:
        if self._glob is not None:
            return self._glob.paths(self.fs, self.local)
        if self.local and not os.path.exists(self.root):
            raise InvalidInputError(
                f"expected a folder, a file or a glob of files, found nothing at {redact_url(self.url)}; "
                "check the option 'path'"
            )
        return [self.root]

    def _require_bucket(self) -> None:
        """A folder of an object store is there as soon as something is in it; a bucket has to be."""
        if scheme_of(self.url) not in OBJECT_STORES:
            return
        try:
            self.fs.info(self.root.split("/", 1)[0])
        except PermissionError:
            pass  # of a part of the bucket only
        except FileNotFoundError:
            raise InvalidInputError(
                f"expected a bucket (or container) that is there, found none at {redact_url(self.url)}; check the "
                "option 'path'"
            ) from None

    def _below(self, folder: str) -> Iterator[dict[str, Any]]:
        if self.local:
            yield from self._scanned(folder)
        elif self._recursive:
            yield from self.fs.find(folder, detail=True).values()
        else:
            yield from self.fs.ls(folder, detail=True)

    def _scanned(self, folder: str) -> Iterator[dict[str, Any]]:
        try:
            yield from scan(folder, self._recursive)
        except OSError as error:
            raise InvalidInputError(
                f"expected a folder that this process may list, found {redact_url(folder)} ({error.strerror}); check "
                "its permissions and the option 'path'"
            ) from None

    def _refuse_partition(self, info: dict[str, Any]) -> None:
        """Spark would read what is in there, and make a column of the folder's name."""
        name = info["name"].rstrip("/").rsplit("/", 1)[-1]
        if self._recursive or info["type"] != "directory" or is_hidden(name) or not _PARTITION.fullmatch(name):
            return
        raise InvalidInputError(
            f"expected files in {redact_url(self.url)}, found the folder {name!r}, as a partitioned table has; this "
            "source does not make columns of folders. Let Spark read them, "
            "ckpt.readStream.spark(spark.readStream.schema(...).parquet(path)), or read the files below without these "
            "columns with option recursive=true"
        )

    def _is_input(self, info: dict[str, Any], folder: str) -> bool:
        name = info["name"].rsplit("/", 1)[-1]
        if info["type"] != "file" or any(is_hidden(part) for part in info["name"][len(folder) :].split("/")):
            return False
        return self._name_filter is None or self._name_filter.matches(name)

    def _info(self, path: str) -> dict[str, Any]:
        return local_info(path, os.stat(path)) if self.local else dict(self.fs.info(path))

    def _entry(self, info: dict[str, Any]) -> FileEntry:
        time = next((info[key] for key in _TIME_KEYS if info.get(key) is not None), 0)
        etag = str(info.get("ETag") or info.get("etag") or "").strip('"')
        return FileEntry(info["name"], int(info["size"] or 0), _micros(time), etag)


def _micros(time: Any) -> int:
    if isinstance(time, dt.datetime):
        time = time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)
        return (time - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(microseconds=1)
    if isinstance(time, str):
        return _micros(dt.datetime.fromisoformat(time.replace("Z", "+00:00")))
    return int(time * 1_000_000)
