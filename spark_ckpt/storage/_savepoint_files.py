"""State tables of savepoints: a self-contained, compacted copy of a checkpoint's state, and the way back.

A savepoint's table is plain Delta without deletion vectors, which every reader opens.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from spark_ckpt import clock
from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.storage import _delta_log as delta_log
from spark_ckpt.storage import at_once
from spark_ckpt.storage.content import FileEntry, TableContent, check_live_rows
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder, make_folder, sync_folder
from spark_ckpt.storage.run_files import checked_bytes, open_run_file, read_row_group, run_file_writer

_PREFIX = "savepoint-"
_TRIES = 10


def export_files(
    source: Folder, content: TableContent, groups: Mapping[int, GroupManifest], target: Folder, schema: pa.Schema
) -> tuple[dict[str, FileEntry], dict[int, GroupManifest]]:
    """Copy the live rows of ``content`` into a plain Delta table at ``target``, file by file: as it is, or written anew
    if some of its rows are dead. Driver.

    Returns content and groups of the copy: no dead rows and no tombstone runs. A run's ``due_ms`` may be earlier than
    its rows' earliest. A file's name tells its content, so that calls for the same state write the same files: one
    after a crash goes on, and two at the same time do not harm each other. Memory: one row group and one compressed
    file, of as many files at once as there are cores, up to four.

    Raises ``CorruptStorageError`` if a state file is missing or damaged.
    """
    copied: dict[str, FileEntry] = {}
    moved: dict[str, tuple[str, BitMap]] = {}

    def copy(numbered: tuple[int, tuple[str, FileEntry]]) -> tuple[str, BitMap, str, FileEntry]:
        number, (file, entry) = numbered
        dead = read_vector(source, entry.dv) if entry.dv else BitMap()
        return file, dead, *_copy_live(source, file, dead, target, number)

    wanted = [(n, (file, entry)) for n, (file, entry) in enumerate(sorted(content.items())) if entry.in_table]
    for file, dead, name, copied_entry in at_once.made(copy, wanted):
        copied[name] = copied_entry
        moved[file] = (name, dead)
    new_groups = {number: _move_group(group, moved) for number, group in groups.items()}
    check_live_rows(copied, new_groups)
    publish(target, copied, schema)
    return copied, new_groups


def import_files(source: Folder, names: Iterable[str], target: Folder) -> None:
    """Make files ``names`` of ``source`` available in ``target``. Driver, when a job is restored. Idempotent.

    On one local file system it costs a hard link a file and no copying; on one object store, copies inside it.
    Raises ``CorruptStorageError`` if a file is missing.
    """
    missing = sorted(set(names) - set(target.names()))
    for name in missing:
        try:
            _import_one(source, name, target)
        except FileNotFoundError:
            raise CorruptStorageError(
                f"{source.shown(name)} is missing: expected it because the manifest to restore names it;"
                f" {RESTORE_ANOTHER}."
            ) from None
    if missing and target.local:
        sync_folder(target.root)


def _copy_live(source: Folder, file: str, dead: BitMap, target: Folder, number: int) -> tuple[str, FileEntry]:
    data, rows = _live(source, file, dead) if dead else checked_bytes(source, file)
    name = f"{_PREFIX}{hashlib.blake2b(data, digest_size=16).hexdigest()}-{number:05d}.parquet"
    if not target.create(name, memoryview(data)) and target.local:
        sync_folder(target.root)  # whoever wrote it may have died before the name was on stable storage
    return name, FileEntry(rows, len(data))


def _live(source: Folder, file: str, dead: BitMap) -> tuple[pa.Buffer, int]:
    """A state file of the rows of ``file`` that are not ``dead``, and their number."""
    sink, first, rows = pa.BufferOutputStream(), 0, 0
    with open_run_file(source, file) as reader, run_file_writer(sink, reader.schema_arrow) as writer:
        for index in range(reader.num_row_groups):
            table = read_row_group(source, file, reader, index)
            live = _live_rows(table, first, dead)
            first += table.num_rows
            rows += live.num_rows
            if live.num_rows:
                writer.write_table(live, row_group_size=live.num_rows)
    return sink.getvalue(), rows


def _live_rows(table: pa.Table, first: int, dead: BitMap) -> pa.Table:
    here = dead & BitMap(range(first, first + table.num_rows))
    if not here:
        return table
    mask = np.ones(table.num_rows, bool)
    mask[np.array(here, dtype=np.int64) - first] = False
    return table.filter(pa.array(mask))


def _move_group(group: GroupManifest, moved: Mapping[str, tuple[str, BitMap]]) -> GroupManifest:
    runs = [_move_run(run, *moved[run.file]) for run in group.runs if not run.tombstones and run.file in moved]
    return replace(group, runs=tuple(run for run in runs if run.count))


def _move_run(run: Run, name: str, dead: BitMap) -> Run:
    before = dead.rank(run.start - 1) if run.start else 0
    within = dead.rank(run.start + run.count - 1) - before
    return replace(run, file=name, start=run.start - before, count=run.count - within)


def publish(target: Folder, content: TableContent, schema: pa.Schema) -> None:
    """One version that holds ``content``, whatever an earlier, interrupted export left there."""
    log, now_ms = delta_log.DeltaLog(target), clock.now_ms()
    for _ in range(_TRIES):
        versions = log.versions()
        before = log.files(versions)
        if versions and before.keys() == content.keys():
            return
        actions = [
            delta_log.commit_info_action("SAVEPOINT", {}, now_ms),
            delta_log.protocol_action(schema, deletion_vectors=False),
            delta_log.metadata_action(schema, "State at a savepoint", {}, now_ms),
            *(delta_log.remove_action(f, entry, now_ms) for f, entry in before.items() if f not in content),
            *(delta_log.add_action(f, entry, now_ms) for f, entry in content.items() if f not in before),
        ]
        if log.put(versions[-1] + 1 if versions else 0, actions):
            return
        # An older driver of the job that finishes the same savepoint was quicker: with the same files.
    raise CorruptStorageError(
        f"Savepoint table {target.shown('')} is written by others again and again: expected one job to write it."
        f" Use a new path for the savepoint."
    )


def _import_one(source: Folder, name: str, target: Folder) -> None:
    if source.local and target.local:
        make_folder(target.root)
        with contextlib.suppress(FileExistsError):
            if _linked(source.path(name), target.path(name)):
                return
    elif source.fs == target.fs:
        source.fs.cp_file(source.path(name), target.path(name))
        return
    data = source.read(name)
    if data is None:
        raise FileNotFoundError(name)
    target.create(name, data)


def _linked(source: str, target: str) -> bool:
    """Whether ``target`` is a hard link now; not so across file systems, and on those without links."""
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:
        return False
    return True
