"""What a state table holds at a checkpoint, and how it follows from what was flushed. No I/O.

Content names every storage file that a run names. A file whose rows are all dead (tombstones, or all keys overridden)
stays in the content, because lookups still read it, but is not in the Delta table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyroaring import BitMap

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.events import Flushed, GroupManifest
from spark_ckpt.storage.deletion_vectors import DvRef, decode_rows, unstored


@dataclass(frozen=True)
class FileEntry:
    """A state file: its rows, how many of them are dead, and which.

    ``dv`` is None if no row is dead, and also if all are.
    """

    rows: int
    size_bytes: int
    dead: int = 0
    dv: DvRef | None = None

    @property
    def in_table(self) -> bool:
        """Whether the Delta table names the file."""
        return self.dead < self.rows


codec.as_row(FileEntry)
codec.as_row(DvRef)

TableContent = Mapping[str, FileEntry]


def content_to_json(content: TableContent) -> dict[str, Any]:
    """``content`` as plain JSON values."""
    return {
        file: [e.rows, e.size_bytes, e.dead, list(asdict(e.dv).values()) if e.dv else None]
        for file, e in sorted(content.items())
    }


def content_from_json(value: Any, where: str) -> dict[str, FileEntry]:
    """Inverse of :func:`content_to_json`. ``where`` names the record. Raises ``CorruptStorageError``."""
    found: dict[str, FileEntry] = codec.read_as(dict[str, FileEntry], value, where)
    return found


def named_files(content: TableContent) -> set[str]:
    """Every file in the table folder that ``content`` needs: state files and deletion vector files."""
    return set(content) | {entry.dv.file for entry in content.values() if entry.dv}


def run_files(groups: Mapping[int, GroupManifest]) -> set[str]:
    """Every state file that a run of ``groups`` names."""
    return {run.file for group in groups.values() for run in group.runs}


@dataclass(frozen=True)
class Plan:
    """The content a checkpoint needs, with newly dead rows by file that the deletion vectors do not say yet."""

    entries: dict[str, FileEntry]
    newly_dead: dict[str, BitMap]


def plan_content(base: TableContent | None, flushed: Iterable[Flushed], groups: Mapping[int, GroupManifest]) -> Plan:
    """``base`` and what was flushed since, minus files that no run names. Entries still have the base's vectors."""
    named = run_files(groups)
    entries = {file: entry for file, entry in (base or {}).items() if file in named}
    dead: dict[str, BitMap] = {}
    for event in flushed:
        for file in event.files:
            if file.file in named:
                entries.setdefault(file.file, FileEntry(file.rows, file.size_bytes))
        for name, rows in event.dead.items():
            if name in named:
                dead[name] = dead.get(name, BitMap()) | decode_rows(rows)
    missing = sorted(named - set(entries))
    if missing:
        raise ProtocolBugError(
            f"Runs name {len(missing)} state files that no flush announced: expected each in the content,"
            f" missing {missing[:3]}. The checkpoint is not committed. If Spark's location holds the state of an"
            f" attempt that did not count, start with an empty checkpointLocation: the query goes on from its newest"
            f" checkpoint."
        )
    return Plan(entries, {file: rows for file, rows in dead.items() if rows and file in entries})


def with_dead(file: str, entry: FileEntry, dead: BitMap, payload: bytes) -> FileEntry:
    """``entry`` with exactly the rows ``dead``; its vector (``payload``) is in no file yet."""
    if dead and dead.max() >= entry.rows:
        raise ProtocolBugError(
            f"Row {dead.max()} of state file {file} is said to be dead: expected a row below {entry.rows}."
        )
    partly = 0 < len(dead) < entry.rows
    return replace(entry, dead=len(dead), dv=unstored(payload, len(dead)) if partly else None)


def check_live_rows(entries: TableContent, groups: Mapping[int, GroupManifest]) -> None:
    """Raise ``ProtocolBugError`` unless the live rows are as many as the key groups' keys."""
    live = sum(entry.rows - entry.dead for entry in entries.values())
    keys = sum(group.keys for group in groups.values())
    if live != keys:
        raise ProtocolBugError(
            f"The state table would have {live} live rows: expected {keys}, the number of live keys the key groups"
            f" acknowledged. The checkpoint is not committed."
        )


def same_rows(a: FileEntry | None, b: FileEntry | None) -> bool:
    """Whether both entries of one file show a reader the same rows."""
    if a is None or b is None or (a.rows, a.dead) != (b.rows, b.dead):
        return a is b
    return (a.dv is None and b.dv is None) or (a.dv is not None and a.dv.same_rows(b.dv))


def keep_vectors(entries: TableContent, head: TableContent) -> dict[str, FileEntry]:
    """``entries``, with the head's vectors where they say the same: nothing needs to be written for those."""
    return {file: head[file] if same_rows(entry, head.get(file)) else entry for file, entry in entries.items()}


def changed_files(head: TableContent, desired: TableContent) -> tuple[Sequence[str], Sequence[str]]:
    """Files whose entry the table must lose and gain to turn ``head`` into ``desired``; a changed one is in both."""
    before = {f: e for f, e in head.items() if e.in_table}
    after = {f: e for f, e in desired.items() if e.in_table}
    lost = [f for f, e in before.items() if after.get(f) != e]
    gained = [f for f, e in after.items() if before.get(f) != e]
    return sorted(lost), sorted(gained)
