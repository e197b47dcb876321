"""A Delta table's log, read: what each version did, and what the table was at a version. Driver.

Commits are files ``_delta_log/<version>.json``, and appear whole. A table at a version is its newest checkpoint up to
there, classic, in several parts, or of v2 with sidecars, and the commits behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.sources.delta._actions import Commit, DataFile, Metadata, Protocol

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.\d{10}\.(?P<parts>\d{10})|\.(?P<v2>[0-9a-fA-F-]{36}))?\.(?:parquet|json)"
)
_FILE_FIELDS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
_KEPT_COMMITS = 2000


@dataclass(frozen=True)
class Listing:
    """What is in the log: times of the commits, and the files of each checkpoint that is whole."""

    commits: Mapping[int, int]
    checkpoints: Mapping[int, Sequence[str]]

    @property
    def newest(self) -> int:
        return max(self.commits)

    @property
    def earliest(self) -> int:
        return min(self.commits)


@dataclass
class TableState:
    """The table at a version."""

    version: int
    metadata: Metadata
    protocol: Protocol
    files: list[DataFile] = field(default_factory=list)


class TableLog:
    """``files`` is rooted at the table; ``shown`` names it in messages."""

    def __init__(self, files: pafs.FileSystem, shown: str) -> None:
        self.files = files
        self.shown = shown
        self.commit = lru_cache(_KEPT_COMMITS)(self._commit)

    def afresh(self) -> TableLog:
        """The same, and nothing of it known."""
        return TableLog(self.files, self.shown)

    def listing(self) -> Listing:
        """All that the log has now. Raises ``InvalidInputError`` if there is no table."""
        commits: dict[int, int] = {}
        checkpoints: dict[tuple[int, str], list[str]] = {}
        expected: dict[tuple[int, str], int] = {}
        for info in self.files.get_file_info(pafs.FileSelector(LOG, allow_not_found=True)):
            if match := _COMMIT.fullmatch(info.base_name):
                commits[int(match[1])] = _milliseconds(info)
            elif match := _CHECKPOINT.fullmatch(info.base_name):
                key = (int(match[1]), match["parts"] or match["v2"] or "")
                checkpoints.setdefault(key, []).append(info.base_name)
                expected[key] = int(match["parts"] or 1)
        if not commits:
            raise InvalidInputError(f"{self.shown} is no Delta table: expected a folder {LOG} with commits, found none")
        return Listing(commits, {k[0]: sorted(v) for k, v in checkpoints.items() if len(v) == expected[k]})

    def times(self, versions: Sequence[int]) -> list[int | None]:
        """When these versions were committed, in milliseconds; None for one that is not there."""
        infos = self.files.get_file_info([_name(version) for version in versions])
        return [_milliseconds(info) if info.type == pafs.FileType.File else None for info in infos]

    def state(self, version: int, listing: Listing, *, with_files: bool = False) -> TableState:
        """The table at ``version``. Raises ``CorruptStorageError`` if the log does not reach back so far any more."""
        base = max((v for v in listing.checkpoints if v <= version), default=-1)
        missing = [v for v in range(base + 1, version + 1) if v not in listing.commits]
        if missing:
            raise CorruptStorageError(
                f"{self.shown} cannot be rebuilt at version {version}: expected commits {base + 1} to {version} in "
                f"{LOG}, found none of version {missing[0]}: the log was cleaned up "
                "(delta.logRetentionDuration). Begin anew: another queryName and a new, empty checkpointLocation"
            )
        metadata: Metadata | None = None
        protocol: Protocol | None = None
        files: dict[Any, DataFile] = {}
        for commit in (*self._checkpoint(base, listing, with_files), *map(self.commit, range(base + 1, version + 1))):
            metadata, protocol = commit.metadata or metadata, commit.protocol or protocol
            if with_files:
                for file in commit.removes:
                    files.pop(file.identity, None)
                files.update((file.identity, file) for file in commit.adds)
        if metadata is None or protocol is None:
            raise CorruptStorageError(
                f"{self.shown}: expected metaData and protocol up to version {version}, found none"
            )
        return TableState(version, metadata, protocol, list(files.values()))

    def _commit(self, version: int) -> Commit:
        """Raises ``FileNotFoundError``, ``CorruptStorageError``."""
        with self.files.open_input_stream(_name(version)) as stream:
            data = stream.read()
        try:
            return Commit.of(version, [json.loads(line) for line in data.splitlines() if line.strip()])
        except ValueError:
            raise CorruptStorageError(
                f"{self.shown}: {_name(version)} is damaged: expected JSON lines, found {len(data)} bytes of something "
                "else; put back a good copy"
            ) from None

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def _checkpoint(self, version: int, listing: Listing, with_files: bool) -> Iterator[Commit]:
        if version < 0:
            return
        names = [f"{LOG}/{name}" for name in listing.checkpoints[version]]
        kinds = ["metaData", "protocol", "sidecar", *([f"add.{name}" for name in _FILE_FIELDS] if with_files else [])]
        for name in names:
            actions = self._lines(name) if name.endswith(".json") else self._rows(name, kinds)
            found = list(actions)
            yield Commit.of(version, found)
            sidecars = [a["sidecar"]["path"] for a in found if "sidecar" in a] if with_files else []
            for path in sidecars:
                yield Commit.of(version, self._rows(f"{LOG}/_sidecars/{path.rsplit('/', 1)[-1]}", kinds))

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        with self.files.open_input_stream(name) as stream:
            yield from (json.loads(line) for line in stream.read().splitlines() if line.strip())

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with self.files.open_input_file(name) as stream:
            table = pq.ParquetFile(stream).read(columns=list(columns))
        for kind in table.column_names:
            there = table.column(kind).filter(pc.is_valid(table.column(kind)))
            for chunk in there.chunks:
                yield from ({kind: _plain(body)} for body in chunk.to_pylist())


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Arrow's maps as dicts."""
    return {k: dict(v) if k in ("partitionValues", "configuration") and v is not None else v for k, v in body.items()}


def _name(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _milliseconds(info: pafs.FileInfo) -> int:
    return int(info.mtime_ns) // 1_000_000 if info.mtime_ns is not None else 0


def table_files(path: str, storage: Mapping[str, str]) -> pafs.FileSystem:
    """The files of the table at ``path``, a local folder or a URL that delta-rs knows. Driver and executors."""
    if "://" not in path:
        return pafs.SubTreeFileSystem(path, pafs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pafs.PyFileSystem(DeltaStorageHandler(path, dict(storage)))


def read_vector_bytes(files: pafs.FileSystem, name: str, offset: int, size: int) -> bytes:
    """Executor. Raises ``FileNotFoundError``."""
    with files.open_input_file(name) as stream:
        stream.seek(offset)
        data: bytes = stream.read(size)
    return data
