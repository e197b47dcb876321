"""What survives a crash in the simulation, and the point where the process stops.

Records, Spark's checkpoint locations, state files and tables, staged and visible rows. Every change goes through
:meth:`World.point`, before and after, where the seed may stop the process, and where drivers that were believed dead
take a step.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spark_ckpt.errors import (
    CkptError,
    CorruptStorageError,
    InvalidInputError,
    ProtocolBugError,
    StorageNotWritableError,
)
from spark_ckpt.protocol.checkpoint_state import Name, Recorded
from spark_ckpt.protocol.events import GroupManifest, groups_from_json, groups_to_json
from spark_ckpt.protocol.records import (
    LOST,
    REFUSED,
    AbandonedRecord,
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    TriggerRecord,
    checkpoint_from_json,
)
from spark_ckpt.protocol.source_steps import CreateTrigger, ManualRequest
from spark_ckpt.protocol.steps import CHECKPOINT_STEPS, CLEAN_UP_STEPS, StorageFailed, WriteGeneration
from spark_ckpt.testing.simulation._tears import tear
from spark_ckpt.types import Committable

_MAY_FAIL = (*CHECKPOINT_STEPS, *CLEAN_UP_STEPS, CreateTrigger)
"""As the real shell: a checkpoint fails, or something is cleaned up later."""

Row = tuple[int, int, int]
"""(label, key, value)"""
Visible = tuple[str, int, int]
"""(node that made it, key, value)"""


class Crash(BaseException):
    """The process stops here. Not an ``Exception``: nothing in it may catch it."""


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


@dataclass
class Zombie:
    """A driver believed dead, stopped at ``step`` of its coroutine; it moves on at ``rate`` of all points."""

    steps: Generator[Any, Any, Any]
    step: Any
    execute: Callable[[Any], Any]
    rate: float


class World:
    """Everything durable, the clock, and the seed's decisions about where to stop."""

    def __init__(self, rng: random.Random, trace: list[str] | None = None) -> None:
        self.rng = rng
        self.trace = trace
        self.now_ms = 1_000_000
        self.records = Records()
        self.tables = StateTables()
        self.sink = ToySink()
        self.savepoints: dict[str, Savepoint] = {}
        self.locations: dict[str, Location] = {}
        self.history: list[Any] = []
        self.requests: dict[str, ManualRequest] = {}
        self.answers: dict[str, Answer] = {}
        self.torn_answers: set[str] = set()
        self.drained: set[tuple[int, str]] = set()
        self.drains: list[dict[str, Any]] = []
        """Where the sources stood at each checkpoint that drained the job."""
        self.faults_left = 0
        self.slow_left = 0
        self.fault_rate = 0.0
        self.zombies: list[Zombie] = []
        self.zombie_moves = False
        self.zombies_moved = 0
        self.stop_at: int | str | None = None
        """After so many points, at some point that concerns a step of this name, or at ``before <step>``."""
        self.points = 0
        self.sabotage = ""
        self.tears_left = 0
        self.lives = 0
        self.seen: Counter[str] = Counter()
        """How often what a schedule is there for really happened."""
        self._ids = 0

    def point(self, what: str, subject: Any = "") -> None:
        """The process may stop here, and a zombie may move."""
        self.points += 1
        self.log(what, subject)
        for zombie in list(self.zombies):
            if self.rng.random() < zombie.rate:
                self._move(zombie)
        if self._stops(what, type(subject).__name__):
            self.stop_at = None
            self.log("== the process stops", "")
            raise Crash

    def _stops(self, what: str, name: str) -> bool:
        if isinstance(self.stop_at, int):
            self.stop_at -= 1
            return self.stop_at < 0
        return self.stop_at == f"{what} {name}" or (self.stop_at == name and self.rng.random() < 0.4)

    def log(self, what: str, subject: Any = "") -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:>9} {'zombie ' if self.zombie_moves else ''}{what} {subject}")

    @property
    def life(self) -> str:
        """The mark of the job's life, should it begin now."""
        return f"life{self.lives}"

    def remove_folder(self) -> None:
        """Everything of the job but its sinks and its savepoints is gone."""
        self.records, self.tables = Records(), StateTables()
        self.requests, self.answers, self.torn_answers, self.drained = {}, {}, set(), set()
        self.lives += 1

    def unique(self) -> int:
        self._ids += 1
        return self._ids

    def drive(self, steps: Generator[Any, Any, Any], execute: Callable[[Any], Any]) -> Any:
        """Run a coroutine of the protocol to its end; the process may stop before and after every step."""
        step, result = None, None
        try:
            step = next(steps)
            while True:
                self.point("before", step)
                try:
                    self._storage_fails(step)
                    result = execute(step)
                    self._storage_fails(step)  # it was done, and its answer was lost
                except CkptError as error:
                    if self._passes_over(step):
                        step = steps.send(None)
                    elif isinstance(error, StorageNotWritableError) and isinstance(step, _MAY_FAIL):
                        self.seen["storage fails, and the query goes on"] += 1
                        step = steps.send(StorageFailed(str(error)))
                    else:
                        step = steps.throw(error)
                    continue
                done, step = step, None
                self.point("after", done)
                step = steps.send(result)
        except StopIteration as e:
            return e.value
        except Crash:
            if step is not None and self.tears_left and self._tears(step):
                raise  # the machine stopped, too: no driver of it is left
            # Who asked for a rollback, and went on to roll back later, would have what came between twice, as told.
            rolls_back = getattr(execute, "restore", "auto") != "auto"
            if step is not None and not rolls_back and self.rng.random() < 0.5:
                self.zombies.append(Zombie(steps, step, execute, self.rng.choice((0.01, 0.05, 0.3))))
            raise

    def attempt(self, part: Any, execute: Callable[[Any], Any]) -> Exception | None:
        """One of several things that a step does side by side; what it raised, if it did."""
        alone = self.zombie_moves  # nobody else moves until it is done
        try:
            if not alone:
                self.point("before", part)
                self._storage_fails(part)
            execute(part)
            if not alone:
                self._storage_fails(part)
        except CkptError as error:
            return None if self._passes_over(part) else error
        if not alone:
            self.point("after", part)
        return None

    def _storage_fails(self, step: Any) -> None:
        """Storage and sinks may fail, before or after they did what they were asked for, or take their time."""
        if self.slow_left and self.rng.random() < 0.02:
            self.slow_left -= 1
            self.now_ms += self.rng.choice((1000, 10_000))
            self.seen["storage is slow"] += 1
        if self.faults_left and self.rng.random() < self.fault_rate:
            self.faults_left -= 1
            self.log("== storage fails", step)
            self.seen["storage fails"] += 1
            raise StorageNotWritableError(f"{type(step).__name__} failed")

    def _passes_over(self, step: Any) -> bool:
        """Sabotage: a sink's commit that failed is taken for done."""
        return self.sabotage == "failed_is_done" and type(step).__name__ == "CommitSink"

    def _tears(self, step: Any) -> bool:
        if not tear(self, step):
            return False
        self.tears_left -= 1
        self.log("== torn", step)
        self.seen["a write is torn"] += 1
        return True

    def answer(self, request: str, answer: Answer) -> Answer:
        """Say the last word if nobody has, or if nobody can read it; returns what was said."""
        self.torn_answers.discard(request)
        return self.answers.setdefault(request, answer)

    def _move(self, zombie: Zombie) -> None:
        self.zombie_moves = True
        self.zombies_moved += 1
        self.seen["a halted driver moves"] += 1
        try:
            self.log("moves", zombie.step)
            try:
                result = zombie.execute(zombie.step)
            except CkptError as error:
                zombie.step = zombie.steps.throw(error)
            else:
                zombie.step = zombie.steps.send(result)
        except (StopIteration, CkptError) as e:
            self.log("ends", repr(e))
            self.zombies.remove(zombie)
            refused = isinstance(zombie.step, WriteGeneration) and zombie.step.record.origin == REFUSED
            # A start that is refused had looked before it was fenced: what it found was damaged.
            if isinstance(e, CorruptStorageError | ProtocolBugError) and not refused:
                raise SimulationError(f"a fenced driver is told: {e!r}") from e
        finally:
            self.zombie_moves = False
