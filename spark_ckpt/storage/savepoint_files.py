"""State tables of savepoints: a self-contained, compacted copy of a checkpoint's state, and the way back.

A savepoint's table is plain Delta without deletion vectors, which every reader opens.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError
from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.storage import delta_log
from spark_ckpt.storage.content import FileEntry, TableContent
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder, sync_folder
from spark_ckpt.storage.run_files import WRITE_OPTIONS, open_run_file, read_row_group

_PREFIX = "savepoint-"
_COPY_BYTES = 16 * 1024 * 1024


def export(
    source: Folder, content: TableContent, groups: Mapping[int, GroupManifest], target: Folder, schema: pa.Schema
) -> tuple[dict[str, FileEntry], dict[int, GroupManifest]]:
    """Copy the live rows of ``content`` into a plain Delta table at ``target``, file by file. Driver.

    Returns content and groups of the copy: no dead rows, no tombstone runs, new file names that occur nowhere else.
    Called again after a crash it replaces what the earlier call wrote. Memory: one row group.
    """
    new_content: dict[str, FileEntry] = {}
    moved: dict[str, tuple[str, BitMap64]] = {}
    token = uuid.uuid4().hex
    for number, (file, entry) in enumerate(sorted(content.items())):
        if not entry.in_table:
            continue
        dead = read_vector(source, entry.dv) if entry.dv else BitMap64()
        name = f"{_PREFIX}{token}-{number:05d}.parquet"
        new_content[name] = _copy_live(source, file, dead, target, name)
        moved[file] = (name, dead)
        if new_content[name].rows != entry.rows - len(dead):
            raise ProtocolBugError(f"{name} has {new_content[name].rows} rows: expected {entry.rows - len(dead)} of {file}.")
    _publish(target, new_content, schema)
    return new_content, {g: _move_group(group, moved) for g, group in groups.items()}


def _copy_live(source: Folder, file: str, dead: BitMap64, target: Folder, name: str) -> FileEntry:
    sink, first, rows = pa.BufferOutputStream(), 0, 0
    with open_run_file(source, file) as reader, pq.ParquetWriter(sink, reader.schema_arrow, **WRITE_OPTIONS) as writer:
        for index in range(reader.num_row_groups):
            table = read_row_group(source, file, reader, index)
            live = _live_rows(table, first, dead)
            first += table.num_rows
            rows += live.num_rows
            if live.num_rows:
                writer.write_table(live, row_group_size=live.num_rows)
    data = sink.getvalue().to_pybytes()
    target.create(name, data)
    return FileEntry(rows, len(data))


def _live_rows(table: pa.Table, first: int, dead: BitMap64) -> pa.Table:
    here = BitMap64(range(first, first + table.num_rows)) & dead
    if not here:
        return table
    mask = np.ones(table.num_rows, bool)
    mask[np.fromiter(here, np.int64, len(here)) - first] = False
    return table.filter(pa.array(mask))


def _move_group(group: GroupManifest, moved: Mapping[str, tuple[str, BitMap64]]) -> GroupManifest:
    runs = [_move_run(run, *moved[run.file]) for run in group.runs if not run.tombstones and run.file in moved]
    return replace(group, runs=tuple(run for run in runs if run.count))


def _move_run(run: Run, name: str, dead: BitMap64) -> Run:
    before = dead.rank(run.start - 1) if run.start else 0
    within = dead.rank(run.start + run.count - 1) - before if run.count else 0
    return replace(run, file=name, start=run.start - before, count=run.count - within)


def _publish(target: Folder, content: TableContent, schema: pa.Schema) -> None:
    """One version that holds ``content``, whatever an earlier, interrupted export left there."""
    log, now_ms = delta_log.DeltaLog(target), int(time.time() * 1000)
    version, before = -1, {}
    for version in log.versions():
        for action in (log.read(version) or delta_log.LogCommit(version, ())).actions:
            if "add" in action:
                before[action["add"]["path"]] = FileEntry(0, action["add"]["size"])
            if "remove" in action:
                before.pop(action["remove"]["path"], None)
    actions = [
        delta_log.commit_info_action("SAVEPOINT", {}, now_ms),
        delta_log.protocol_action(schema, deletion_vectors=False),
        delta_log.metadata_action(schema, "savepoint", {}, now_ms),
        *(delta_log.remove_action(file, entry, now_ms) for file, entry in before.items()),
        *(delta_log.add_action(file, entry, now_ms) for file, entry in content.items()),
    ]
    if not log.put(version + 1, actions):
        raise CorruptStorageError(
            f"Savepoint table {target.shown('')} was written by someone else at the same time: expected to own version"
            f" {version + 1}. Use a new path for the savepoint."
        )
    for name in target.names():
        if name.startswith(_PREFIX) and name not in content:
            target.remove(name)


def bring(source: Folder, names: Iterable[str], target: Folder) -> None:
    """Make files ``names`` of ``source`` available in ``target``. Driver, when a job is restored. Idempotent.

    On one local file system it costs a hard link a file and no copying; on one object store, a copy inside it.
    Raises ``CorruptStorageError`` if a file is missing.
    """
    present = set(target.names())
    for name in sorted(set(names) - present):
        try:
            _bring_one(source, name, target)
        except FileNotFoundError:
            raise CorruptStorageError(
                f"{source.shown(name)} is missing: expected it because the manifest to restore names it."
                f" Put it back, or restore another checkpoint."
            ) from None
    if target.local and os.path.isdir(target.root):
        sync_folder(target.root)


def _bring_one(source: Folder, name: str, target: Folder) -> None:
    if source.local and target.local:
        os.makedirs(target.root, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(source.path(name), target.path(name))
                return
            except FileExistsError:
                return
            except OSError:
                if not os.path.exists(source.path(name)):
                    raise FileNotFoundError(name) from None
    if source.fs == target.fs and not target.local:
        source.fs.cp_file(source.path(name), target.path(name))
        return
    data = source.read(name)
    if data is None:
        raise FileNotFoundError(name)
    target.create(name, data)


__all__ = ["bring", "export", "shutil"]
