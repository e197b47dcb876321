"""The ``memory`` sink, for tests: results as files in a folder of this machine, shared by all its processes.

A commit writes one small record naming the staged files, created by linking a finished temporary file: readers see
a checkpoint whole or not at all. Nothing is synced to disk: what survives a power loss is not for tests to need.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.change_rows import is_removal
from spark_ckpt.errors import ConfigError, CorruptStorageError, InvalidInputError
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions, option_names, with_absolute_path
from spark_ckpt.sinks.base import PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_STAGED, _COMMITTED = "staged", "committed"
FOLDER = "spark-ckpt-memory"
"""Of what has a name, in the machine's temporary folder."""


def _folder(name_or_path: str) -> Path:
    """A bare name lives in the machine's temporary folder; anything with a separator is a path."""
    if os.sep in name_or_path:
        return Path(name_or_path)
    return Path(tempfile.gettempdir()) / FOLDER / name_or_path


class MemorySink(TwoPhaseSink):
    """Options: ``name`` (in the machine's temporary folder) or ``path`` (any local folder), ``mode``, ``mergeKeys``,
    ``changeColumn``. As the writer's own format it needs neither ``name`` nor ``path``.

    Read what is committed as the table of the query's name, or with :func:`read`.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("name", "a name without separators", "A folder in the machine's temporary folder; or give `path`."),
        SinkOption("path", "a local folder", "Where the rows go. Without `name` and `path`: with the job."),
        SinkOption(
            "mode", "append or merge", "With `mergeKeys` it is `merge`, without `append`.", choices=("append", "merge")
        ),
        SinkOption("mergeKeys", "columns, comma separated", "A reader sees the last row of each key."),
        changes.CHANGE_OPTION,
    )
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions("memory", options, self.DECLARED)
        name, path = parsed.text("name"), parsed.text("path")
        if (name is None) == (path is None):
            raise ConfigError(
                "sink 'memory': give exactly one of the options 'name' and 'path'; neither is needed where it is the "
                "format of writeStream"
            )
        if name is not None and os.sep in name:
            raise parsed.malformed("name", name, "a name without separators (use 'path' for a folder)")
        self.root = _folder(name) if name is not None else Path(path or "").absolute()
        self._keys = parsed.merge_keys()
        self.change_column = changes.change_column("memory", parsed, self._keys)

    def __repr__(self) -> str:
        return f"MemorySink({self.root})"

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return with_absolute_path(options)

    def validate(self, schema: pa.Schema) -> None:
        staging.require_columns("mergeKeys", self._keys, schema)
        staging.refuse_unhashed("mergeKeys", self._keys, schema)
        changes.check_column(self.change_column, schema)
        found = _read_schema(self.root)
        if found is not None and not found.equals(schema):
            raise InvalidInputError(f"memory sink at {self.root} holds\n{found}\nbut the query writes\n{schema}")
        for name in (_STAGED, _COMMITTED):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        _replace(self.root / "schema.arrow", schema.serialize().to_pybytes())

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _MemoryWriter(self.root / _STAGED, ctx, self.change_column)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        files = [staging.decode("memory", c)["file"] for c in committables]
        record = self.root / _COMMITTED / f"{permit.checkpoint:010d}-{staging.tag(f'{permit.job}/{sink}')}.json"
        found = staging.digest(committables)
        missing = [f for f in files if not (self.root / _STAGED / f).exists()]
        if missing:
            raise CorruptStorageError(f"staged file(s) {', '.join(missing)} are missing from {self.root / _STAGED}")
        self._step("before record")  # a crash here: nothing is visible, the next commit starts over
        how = {"merge_keys": list(self._keys), "change_column": self.change_column, "replacing": self.replacing}
        body = {"files": files, **how, "digest": found}
        if not _create(record, json.dumps(body).encode()):
            staging.check_same_life(str(record), permit, sink, json.loads(record.read_text())["digest"], found)
        self._step("after record")  # a crash here: the record says all, the next commit finds it

    def newest_checkpoint(self, job: str, sink: str) -> int:
        found = (self.root / _COMMITTED).glob(f"*{_ending(job, sink)}")
        return max((int(p.name[:10]) for p in found), default=0)

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        self._refuse_others(job, sink)
        return PastRows(f"checkpoint {checkpoint}", lambda: read(str(self.root), checkpoint).to_reader())

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        self._refuse_others(job, sink)
        behind = self._behind(job, sink, checkpoint)
        return f"rows of {len(behind)} checkpoint(s)" if behind else ""

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        self._refuse_others(job, sink)
        for record in reversed(self._behind(job, sink, checkpoint)):
            files = json.loads(record.read_text())["files"]
            record.unlink()  # a crash behind it: gc removes the files
            for file in files:
                (self.root / _STAGED / file).unlink(missing_ok=True)

    def _refuse_others(self, job: str, sink: str) -> None:
        """Rows of several writers are told apart by no one."""
        others = [p for p in (self.root / _COMMITTED).glob("*.json") if not p.name.endswith(_ending(job, sink))]
        if others:
            raise InvalidInputError(f"{self!r} has rows of other jobs or sinks, too: {others[0].name}")

    def _behind(self, job: str, sink: str, checkpoint: CheckpointId) -> list[Path]:
        found = sorted((self.root / _COMMITTED).glob(f"*{_ending(job, sink)}"))
        return [p for p in found if int(p.name[:10]) > checkpoint]

    def abort(self, committables: Sequence[Committable]) -> None:
        committed = self._committed_files()
        for c in committables:
            file = staging.decode("memory", c)["file"]
            if file not in committed:
                (self.root / _STAGED / file).unlink(missing_ok=True)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        return self._remove(staging.tag(job), {staging.decode_any(c).get("file") for c in keep})

    def staged_by(self) -> dict[str, int]:
        committed = self._committed_files()
        return staging.count_stagers(p.name for p in (self.root / _STAGED).glob("*") if p.name not in committed)

    def discard(self, who: str) -> list[str]:
        return self._remove(who, set())

    def _remove(self, who: str, keep: set[str | None]) -> list[str]:
        named = self._committed_files() | keep
        staged = sorted((self.root / _STAGED).glob(f"{staging.prefix_of(who)}*"))
        lost = [p for p in staged if p.name not in named]
        for path in lost:
            path.unlink(missing_ok=True)
        return [p.name for p in lost]

    def _committed_files(self) -> set[str | None]:
        return {f for record in _records(self.root) for f in record["files"]}


class _MemoryWriter(SinkWriter):
    def __init__(self, folder: Path, ctx: WriterContext, change: str | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{staging.staged_name(ctx)}.arrow"
        self._rows, self._change = 0, change
        self._writer = pa.ipc.new_file(str(self._path), ctx.schema)
        self._schema = ctx.schema
        self._kept = ctx.replacing

    def write(self, batch: pa.RecordBatch) -> None:
        changes.check_rows(self._change, batch)
        self._writer.write_batch(batch.cast(self._schema))
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[bytes]:
        self._writer.close()
        if not (self._rows or self._kept):
            self._path.unlink()
            return []
        return [staging.encode("memory", file=self._path.name, rows=self._rows)]

    def close(self) -> None:
        with suppress(Exception):
            self._writer.close()


def _ending(job: str, sink: str) -> str:
    """Of the names of its records."""
    return f"-{staging.tag(f'{job}/{sink}')}.json"


def read(name_or_path: str, checkpoint: int | None = None) -> pa.Table:
    """Everything committed to the sink of that name or path, by checkpoint (up to ``checkpoint``); the last row per
    merge key only, and of change rows those that are there."""
    root = _folder(name_or_path)
    schema, keys, change = _read_schema(root), [], None
    tables: list[pa.Table] = []
    for record in _records(root, checkpoint):
        keys, change = record["merge_keys"], record.get("change_column")
        if record.get("replacing"):
            tables = []
        for file in record["files"]:
            with pa.memory_map(str(root / _STAGED / file)) as source:
                tables.append(pa.ipc.open_file(source).read_all())
    if not tables:
        return pa.schema([]).empty_table() if schema is None else schema.empty_table()
    table = pa.concat_tables(tables).combine_chunks()
    table = staging.last_by_key(table, keys) if keys else table
    if change is None:
        return table
    return table.filter(pc.invert(is_removal(table[change]))).drop_columns([change])


def _read_schema(root: Path) -> pa.Schema | None:
    path = root / "schema.arrow"
    return pa.ipc.read_schema(pa.py_buffer(path.read_bytes())) if path.exists() else None


def _records(root: Path, up_to: int | None = None) -> list[dict[str, Any]]:
    found = sorted((root / _COMMITTED).glob("*.json"))
    return [json.loads(p.read_text()) for p in found if up_to is None or int(p.name[:10]) <= up_to]


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    temporary.write_bytes(data)
    temporary.replace(path)


def _create(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data``, whole or not at all; False if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    temporary.write_bytes(data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True
