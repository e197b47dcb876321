"""The log of Spark's file sink, ``_spark_metadata``: which files of its folder count. Driver.

A failed attempt of Spark's sink leaves whole files behind. Only a file that the log names was committed. A record of
the log is a batch's: ``7`` has what that batch added, ``9.compact`` all that is there up to then, and removes what
``delete`` names.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.redaction import redact_url

FOLDER = "_spark_metadata"
_RECORD = re.compile(r"(\d+)(\.compact)?")
_VERSION = "v1"
_TRIES = 3
_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class Named:
    """What the log says of a file. ``path`` is where it was when Spark wrote it, without a scheme."""

    path: str
    size: int
    mtime_us: int


@dataclass
class _Known:
    """Records up to number ``upto`` are read; ``files`` are by the paths that the log has."""

    upto: int = -1
    files: dict[str, Named] = field(default_factory=dict)


class SinkLogs:
    """Of one file system. Remembers what it has read: a record never changes."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self._known: dict[str, _Known] = {}
        self._told: set[str] = set()
        self._gone: set[str] = set()

    def __reduce__(self) -> Any:
        return SinkLogs, (self._fs,)

    def of(self, folder: str) -> SinkLog | None:
        """None if nothing in ``folder`` was written by Spark's file sink. Raises ``InvalidInputError``."""
        for attempt in range(_TRIES):
            names = self._names(folder)
            if names is None:
                return None
            try:
                return SinkLog(folder, self._read(folder, names))
            except FileNotFoundError:  # compacted and removed since it was listed
                if attempt == _TRIES - 1:
                    raise _incomplete(folder, "a record that is listed", "none") from None
        raise AssertionError

    def tell_others(self, folder: str, count: int) -> None:
        """A warning, once for each folder: files that the log does not name are not read."""
        if count and folder not in self._told:
            self._told.add(folder)
            _log.warning(
                "%s was written by Spark's file sink, and %d file(s) in it are not in its log (%s): they are left over "
                "from attempts that failed, or still being written, or something else wrote them. They are not read. "
                "Option sinkLog=ignore reads them, too",
                redact_url(folder), count, FOLDER,
            )  # fmt: skip

    def info(self, path: str, named: Named, look: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Of a file that the log names and a listing did not show. One that is gone is told as the log tells it, so
        that reading it says that it has vanished."""
        if path not in self._gone:
            try:
                return look(path)
            except FileNotFoundError:
                self._gone.add(path)
        return {"name": path, "size": named.size, "mtime": named.mtime_us / 1e6, "type": "file", "gone": True}

    def _names(self, folder: str) -> list[str] | None:
        try:
            found = self._fs.ls(f"{folder}/{FOLDER}", detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in found]

    def _read(self, folder: str, names: list[str]) -> Mapping[str, Named]:
        there = {int(m[1]): m[0] for m in map(_RECORD.fullmatch, sorted(names)) if m is not None}  # .compact last
        known = self._known.setdefault(folder, _Known())
        whole = max((number for number, name in there.items() if name.endswith(".compact")), default=-1)
        newest = max(there, default=-1)
        if known.upto < whole or known.upto > newest:
            known = _Known(whole - 1 if whole >= 0 else -1)
        for number in range(known.upto + 1, newest + 1):
            if number not in there:
                raise _incomplete(folder, f"record {number}", f"none, and record {newest}")
            self._apply(known, folder, there[number])
            known.upto = number
        self._known[folder] = known
        return known.files

    def _apply(self, known: _Known, folder: str, name: str) -> None:
        path = f"{folder}/{FOLDER}/{name}"
        version, *lines = self._fs.cat_file(path).decode().splitlines() or [""]
        if version != _VERSION:
            raise InvalidInputError(
                f"{redact_url(path)}: expected a record of version {_VERSION}, as Spark's file sink writes it, found "
                f"{version[:20]!r}. {_WAY_OUT}"
            )
        try:
            files = [json.loads(line) for line in lines]
            added = {
                f["path"]: Named(_plain(f["path"]), f["size"], f["modificationTime"] * 1000)
                for f in files
                if not f["isDir"]
            }
            removed = [f["path"] for f in files if f["action"] == "delete"]
        except (ValueError, KeyError, TypeError):
            raise _incomplete(folder, f"record {name}", "one that is damaged") from None
        known.files.update(added)
        for removed_path in removed:
            known.files.pop(removed_path, None)


def _plain(url: str) -> str:
    parts = urlsplit(url)
    return unquote(f"{parts.netloc}{parts.path}")


_WAY_OUT = (
    "Put it back as Spark's query wrote it, or set option sinkLog=ignore to read every file of the folder, also those "
    "that failed attempts left behind"
)


def _incomplete(folder: str, expected: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        f"the log of Spark's file sink in {redact_url(folder)}/{FOLDER} is not whole: expected {expected}, found "
        f"{found}. {_WAY_OUT}"
    )


class SinkLog:
    """What the log of ``folder`` named at one time."""

    def __init__(self, folder: str, files: Mapping[str, Named]) -> None:
        self._folder = folder
        self._files = files

    def split(self, found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int, Iterator[tuple[str, Named]]]:
        """Of the files that were ``found`` in the folder: those that the log names, how many others there are, and
        what it names besides."""
        by_place = {info["name"][len(self._folder) + 1 :]: info for info in found}
        counted: dict[str, dict[str, Any]] = {}
        missing = []
        for named in self._files.values():
            place = self._place(named.path, by_place)
            if place in by_place:
                counted[place] = by_place[place]
            else:
                missing.append((f"{self._folder}/{place}", named))
        return list(counted.values()), len(by_place) - len(counted), iter(missing)

    def _place(self, path: str, by_place: Mapping[str, Any]) -> str:
        """Within the folder, which may have been moved or copied since Spark wrote it."""
        if path.startswith(f"{self._folder}/"):
            return path[len(self._folder) + 1 :]
        names = path.split("/")
        ends = ("/".join(names[at:]) for at in range(len(names)))
        return next((end for end in ends if end in by_place), names[-1])
