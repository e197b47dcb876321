"""What survives a crash in the simulation: records, Spark's checkpoint locations, state files and tables, staged and
visible rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spark_ckpt.errors import (
    CorruptStorageError,
    InvalidInputError,
)
from spark_ckpt.protocol.checkpoint_state import Name, Recorded
from spark_ckpt.protocol.events import GroupManifest, groups_from_json, groups_to_json
from spark_ckpt.protocol.records import (
    LOST,
    AbandonedRecord,
    AbortedRecord,
    AcceptedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    TriggerRecord,
    checkpoint_from_json,
)
from spark_ckpt.types import Committable

Row = tuple[int, int, int]
"""(label, key, value)"""
Visible = tuple[str, int, int]
"""(node that made it, key, value)"""


class SimulationError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Location:
    """A Spark checkpoint location: offset log, commit log, and the state store's versions."""

    path: str
    offsets: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    committed: int = -1
    state: dict[int, dict[tuple[str, int], Any]] = field(default_factory=dict)


class Records:
    """The job's folder: JSON by name. Parsed values are kept as long as the text stays the same."""

    _READ: ClassVar[dict[str, Callable[..., Any]]] = {
        "generations": GenerationRecord.from_json,
        "triggers": TriggerRecord.from_json,
        "batches": BatchRecord.from_json,
        "checkpoints": checkpoint_from_json,
        "committed": CommittedRecord.from_json,
        "aborted": AbortedRecord.from_json,
        "abandoned": AbandonedRecord.from_json,
        "accepted": AcceptedRecord.from_json,
    }

    def __init__(self) -> None:
        self.text: dict[str, dict[Any, str]] = {folder: {} for folder in self._READ}
        self._parsed: dict[str, Any] = {}

    def put(self, folder: str, name: Any, record: Any) -> None:
        self.text[folder][name] = json.dumps(record.to_json())

    def create(self, folder: str, name: Any, record: Any) -> bool:
        if name in self.text[folder]:
            if folder == "checkpoints":
                self.needed(folder, name)
            return False
        self.put(folder, name, record)
        return True

    def get(self, folder: str, name: Any) -> Any:
        """None if it is not there, or torn: what its name says is known even so, see :meth:`is_torn`."""
        text = self.text[folder].get(name)
        if text is None:
            return None
        if text not in self._parsed:
            self._parsed[text] = self._parse(folder, name, text)
        return self._parsed[text]

    def _parse(self, folder: str, name: Any, text: str) -> Any:
        try:
            return self._READ[folder](json.loads(text), f"{folder}/{name}")
        except ValueError:
            return AbortedRecord(name, LOST, "the record of why is damaged", 0, 0) if folder == "aborted" else None

    def tear(self, folder: str, name: Any, record: Any) -> None:
        """The machine stopped while this was written: half of it is there."""
        text = json.dumps(record.to_json())
        self.text[folder][name] = text[: len(text) // 2]

    def is_torn(self, folder: str, name: Any) -> bool:
        text = self.text[folder].get(name)
        return text is not None and not text.endswith("}")

    def torn(self, folder: str) -> list[Any]:
        return sorted(name for name in self.text[folder] if self.is_torn(folder, name))

    def needed(self, folder: str, name: Any) -> Any:
        """Raises ``CorruptStorageError`` if it is torn."""
        if self.is_torn(folder, name):
            raise CorruptStorageError(f"{folder}/{name} is damaged: expected a JSON record, found half of one")
        return self.get(folder, name)

    def delete(self, folder: str, name: Any) -> None:
        self.text[folder].pop(name, None)

    def all(self, folder: str) -> list[Any]:
        """All that can be read."""
        found = (self.get(folder, name) for name in sorted(self.text[folder]))
        return [record for record in found if record is not None]

    def completions(self) -> dict[int, CompletionRecord]:
        found = ((k, self.get("checkpoints", k)) for k in sorted(self.text["checkpoints"]))
        return {k: r for k, r in found if isinstance(r, CompletionRecord)}

    def abandoned(self) -> frozenset[tuple[int, str]]:
        return frozenset((a.checkpoint, a.sink) for a in self.all("abandoned"))

    def voids(self) -> frozenset[int]:
        return self.recorded().named(Name.VOID, Name.DAMAGED)

    def name_of(self, checkpoint: int) -> Name:
        torn = self.is_torn("checkpoints", checkpoint)
        return Name.DAMAGED if torn else Name.of(self.get("checkpoints", checkpoint))

    def recorded(self) -> Recorded:
        """What there is of all checkpoints."""
        names = {k: self.name_of(k) for k in self.text["checkpoints"]}
        return Recorded(names, self.text["triggers"].keys(), self.text["committed"].keys(), self.text["aborted"].keys())

    def confirmed(self) -> frozenset[int]:
        """Those that are surely committed."""
        return frozenset(k for k in self.text["committed"] if not self.is_torn("committed", k))

    def newest_id(self) -> int:
        return max([0, *self.text["triggers"], *self.text["checkpoints"], *self.text["aborted"]])


@dataclass
class StateTables:
    """State files by (uid, name): rows of (key, count or None); table versions; manifests by name."""

    files: dict[tuple[str, str], list[tuple[int, int | None]]] = field(default_factory=dict)
    versions: dict[str, list[dict[str, frozenset[int]]]] = field(default_factory=dict)
    manifests: dict[str, str] = field(default_factory=dict)

    def manifest(self, name: str) -> dict[int, GroupManifest]:
        if name not in self.manifests:
            raise SimulationError(f"manifest {name} is named and missing")
        return groups_from_json(json.loads(self.manifests[name]))

    def write_manifest(self, name: str, groups: dict[int, GroupManifest]) -> None:
        self.manifests[name] = json.dumps(groups_to_json(groups))

    def rows(self, uid: str, name: str) -> list[tuple[int, int | None]]:
        if (uid, name) not in self.files:
            raise SimulationError(f"state file {uid}/{name} is named and missing")
        return self.files[uid, name]


@dataclass
class ToySink:
    """Staged rows by id, and what readers see: appended rows, and the newest value by key.

    ``job`` is what a sink knows the job by, its identity; each has its rows in a place of its own here."""

    staged: dict[bytes, list[Visible]] = field(default_factory=dict)
    ledger: dict[tuple[str, str, int], tuple[Committable, ...]] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    appended: dict[str, Counter[Visible]] = field(default_factory=lambda: defaultdict(Counter))
    merged: dict[str, dict[tuple[str, int], int]] = field(default_factory=lambda: defaultdict(dict))
    refused: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Commits that fail for ever, by job, sink and checkpoint: how often they did."""
    forgotten: dict[tuple[str, str], int] = field(default_factory=dict)
    """By job and sink: the checkpoint before which nobody asks again, which is as far as a sink may forget."""
    given_up: dict[str, Counter[Visible]] = field(default_factory=lambda: defaultdict(Counter))
    """Rows of the appending sink that somebody gave up by hand."""

    def commit(self, job: str, sink: str, checkpoint: int, committables: tuple[Committable, ...]) -> None:
        if (job, sink, checkpoint) in self.refused:
            self.refused[job, sink, checkpoint] += 1
            raise InvalidInputError("a row breaks a constraint")
        if (job, sink, checkpoint) in self.ledger:
            if self.ledger[job, sink, checkpoint] != committables:
                raise SimulationError(f"checkpoint {checkpoint} was committed with different committables in {sink}")
            return
        for c in committables:
            if c.data not in self.staged:
                raise SimulationError(f"checkpoint {checkpoint} names {c}, which was aborted or committed before")
            self._publish(job, sink, self.staged.pop(c.data))
            self.committed.add(c.data)
        self.ledger[job, sink, checkpoint] = committables

    def give_up(self, job: str, sink: str, committables: tuple[Committable, ...]) -> None:
        """A person did. gc removes what is staged."""
        rows = [row for c in committables for row in self.staged.pop(c.data)]
        if sink == "append":
            self.given_up[job].update(rows)

    def abort(self, committables: tuple[Committable, ...]) -> None:
        for c in committables:
            if c.data in self.committed:
                raise SimulationError(f"{c} is aborted, but a checkpoint committed it")
            self.staged.pop(c.data, None)

    def _publish(self, job: str, sink: str, rows: list[Visible]) -> None:
        for node, key, value in rows:
            if sink == "append":
                self.appended[job][node, key, value] += 1
            else:
                self.merged[job][node, key] = value


@dataclass(frozen=True)
class Savepoint:
    """A self-contained copy of a checkpoint: what the job's own folder loses later does not matter."""

    record: CompletionRecord
    files: dict[tuple[str, str], list[tuple[int, int | None]]]
    contents: dict[str, dict[str, frozenset[int]]]
    groups: dict[str, dict[int, GroupManifest]]


@dataclass(frozen=True)
class Answer:
    """The last word on a request: a checkpoint, or why there is none, or both if its savepoint was not written."""

    checkpoint: int | None
    error: str | None = None
