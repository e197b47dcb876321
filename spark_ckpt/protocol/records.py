"""The records in a job's folder: small immutable JSON facts, from which everything else is decided.

===================  ===========================  ==================================================
record               name                         written
===================  ===========================  ==================================================
GenerationRecord     ``generations/g``            create if absent, by a starting query; see there
TriggerRecord        ``triggers/K``               create if absent, by the first source
BatchRecord          ``batches/origin-N-g``       replace, by the sink's commit of batch N
CompletionRecord     ``checkpoints/K``            create if absent: it alone authorises commit
VoidRecord           ``checkpoints/K``            create if absent: K can never complete any more
CommittedRecord      ``committed/K``              replace, when every committable of K is committed
AbortedRecord        ``aborted/K``                replace, with the reason
AbandonedRecord      ``abandoned/K-sink``         create if absent, by hand: not to be committed in that sink
(a copy)             ``copies/K-g``               what generation g is about to create as ``checkpoints/K``: read only
                                                  by a start that finds ``checkpoints/K`` lost
===================  ===========================  ==================================================

``to_json`` gives plain JSON values; ``from_json`` checks every field and raises ``CorruptStorageError`` naming
what it expected and found. ``where`` is the record's name for that message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.protocol import events
from spark_ckpt.protocol._body import Body, from_base64, to_base64, whole
from spark_ckpt.protocol.events import Event
from spark_ckpt.types import Committable, Epoch

CHECKPOINT, SAVEPOINT, FINAL = "checkpoint", "savepoint", "final"
KINDS = (CHECKPOINT, SAVEPOINT, FINAL)

FAILED, EXPIRED, DECLINED = "failed", "expired", "declined"
SUBSUMED, LOST, WITHDRAWN = "subsumed", "lost", "withdrawn"
CAUSES = (FAILED, EXPIRED, DECLINED, SUBSUMED, LOST, WITHDRAWN)
"""Why a checkpoint was aborted. Only the first two count as failures (after Flink's CheckpointFailureManager).

``failed``: storage did, at its trigger, a snapshot or the commit. ``declined``: a task would have held back more rows
than it may. ``lost``: its generation ended before it was injected everywhere, or the job was restored elsewhere.
``withdrawn``: whoever asked for it stopped waiting."""


UNDECIDED, REFUSED = 0, -1
"""Values of ``GenerationRecord.origin`` that are no origin."""


@dataclass(frozen=True)
class Topology:
    """What takes part in a checkpoint. ``operators`` maps uid to what its state is: ``state`` and ``keys`` are its
    columns, ``timeout`` is the kind of time-outs, ``made_of`` says for each column of ``state`` that an aggregate made
    how it did (nothing for a user's function, which cannot be compared). Older records lack the last two.

    ``weight_total`` is the sum of ``inputs * key_groups`` over the streams that end at the sink.
    """

    key_groups: int
    weight_total: int
    sources: tuple[str, ...]
    operators: Mapping[str, Mapping[str, Any]]
    sinks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "key_groups": self.key_groups,
            "weight_total": self.weight_total,
            "sources": list(self.sources),
            "operators": {u: dict(o) for u, o in self.operators.items()},
            "sinks": list(self.sinks),
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "topology") -> Topology:
        b = Body(value, where)
        return cls(
            b.integer("key_groups"),
            b.integer("weight_total"),
            b.strings("sources"),
            b.str_keys("operators", lambda v: dict(v)),
            b.strings("sinks"),
        )


@dataclass(frozen=True)
class GenerationRecord:
    """One start of the job, in ``life`` (:mod:`spark_ckpt.protocol.life`). ``origin`` is the generation that first
    opened ``spark_location``; it took the restore decision (``restored_from``; None: fresh) for the location's whole
    life.

    Its owner creates it with ``origin`` UNDECIDED (a claim, which fences the others) before it reads the facts, and
    replaces it when it has decided, or was REFUSED. ``settings``: what its checkpoints are taken by, as text.
    """

    generation: int
    origin: int
    spark_location: str
    restored_from: int | None
    started_ms: int
    topology: Topology
    life: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "topology": self.topology.to_json(), "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, value: Any, where: str = "generation record") -> GenerationRecord:
        b = Body(value, where)
        return cls(
            b.integer("generation"),
            b.integer("origin"),
            b.text("spark_location"),
            b.optional_int("restored_from"),
            b.integer("started_ms"),
            Topology.from_json(b.mapping("topology"), f"{where}, topology"),
            b.text_or("life", ""),
            b.str_keys("settings", str) if b.has("settings") else {},
        )


@dataclass(frozen=True)
class HookState:
    """What the job's hooks, known by ``name``, want back when this checkpoint is gone on from."""

    name: str
    state: bytes = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": to_base64(self.state)}

    @classmethod
    def from_json(cls, value: Any, where: str = "hook state") -> HookState:
        b = Body(value, where)
        return cls(b.text("name"), from_base64(b.text("state")))


@dataclass(frozen=True)
class TriggerRecord:
    """Checkpoint ``checkpoint`` was asked for ``by`` somebody. ``terminal``: nothing is read behind its barrier.

    ``target`` is where a savepoint goes; ``request`` the manual request it answers, before ``deadline_ms``. ``drain``:
    the event time ends with its barrier, and no source ever reads behind it at this Spark location. ``hook``: put in
    when the hooks were told, before the barrier is injected.
    """

    checkpoint: int
    kind: str
    time_ms: int
    by: str
    target: str | None
    terminal: bool
    request: str | None
    generation: int
    deadline_ms: int | None = None
    drain: bool = False
    hook: HookState | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "hook": self.hook and self.hook.to_json()}

    @classmethod
    def from_json(cls, value: Any, where: str = "trigger record") -> TriggerRecord:
        b = Body(value, where)
        return cls(
            b.integer("checkpoint"),
            b.one_of("kind", KINDS),
            b.integer("time_ms"),
            b.text("by"),
            b.optional_str("target"),
            b.flag("terminal"),
            b.optional_str("request"),
            b.integer("generation"),
            b.optional_int("deadline_ms") if b.has("deadline_ms") else None,
            b.flag("drain") if b.has("drain") else False,
            _hook(value, where),
        )


@dataclass(frozen=True)
class BatchRecord:
    """What batch ``batch`` staged and reported; the sink's messages, folded.

    ``barriers`` maps checkpoint to the weight that reached the sink in this batch, ``finished`` the epoch label of
    a ``Finished`` row (the lowest checkpoint it counts for) to its weight. ``events`` are the acknowledgements
    (source and operator), declines, flushes and cancels; other control events need no record.

    ``rows``: batch -> source -> rows it read, of this batch and of those before it in the same start. A report for
    whoever asks for the query's progress; no decision looks at it.
    """

    origin: int
    batch: int
    generation: int
    staged: tuple[Committable, ...] = ()
    events: tuple[Event, ...] = ()
    barriers: Mapping[int, int] = field(default_factory=dict)
    finished: Mapping[int, int] = field(default_factory=dict)
    rows: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in ``batches/``. The generation in it keeps a fenced driver from overwriting its successor's."""
        return f"{self.origin:010d}-{self.batch:010d}-{self.generation:010d}"

    def to_json(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "batch": self.batch,
            "generation": self.generation,
            "staged": committables_to_json(self.staged),
            "events": [events.to_json(e) for e in self.events],
            "barriers": {str(k): w for k, w in self.barriers.items()},
            "finished": {str(k): w for k, w in self.finished.items()},
            "rows": {str(batch): dict(rows) for batch, rows in self.rows.items()},
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "batch record") -> BatchRecord:
        b = Body(value, where)
        return cls(
            b.integer("origin"),
            b.integer("batch"),
            b.integer("generation"),
            b.items("staged", committable_from_json),
            b.items("events", events.from_json),
            b.int_keys("barriers", whole),
            b.int_keys("finished", whole),
            b.int_keys("rows", lambda v: {s: whole(n) for s, n in v.items()}) if b.has("rows") else {},
        )


@dataclass(frozen=True)
class TableRef:
    """An operator's state at a checkpoint: its table's Delta version and the manifest file that names the runs."""

    version: int
    manifest: str

    def to_json(self) -> dict[str, Any]:
        return {"version": self.version, "manifest": self.manifest}

    @classmethod
    def from_json(cls, value: Any, where: str = "table reference") -> TableRef:
        b = Body(value, where)
        return cls(b.integer("version"), b.text("manifest"))


@dataclass(frozen=True)
class CompletionRecord:
    """Checkpoint ``checkpoint`` is complete: the whole consistent cut, and the authority to commit.

    ``committables`` are all of epochs <= ``checkpoint`` that no earlier checkpoint committed, ordered by batch and
    epoch. ``batch`` is the batch of ``origin`` whose sink commit created it; ``batches_from`` the lowest batch
    whose record still holds something of a later epoch. ``stats`` maps uid to what its acknowledgements reported.
    ``finished_weight`` is the weight at the sink whose input had ended by then; it counts for good in this origin.
    ``triggered_by`` is the generation of its trigger, ``life`` what the sinks commit it under, ``request`` the manual
    request that it answers. ``drained``: all time-outs that wait for the event time have fired in it.
    """

    checkpoint: int
    kind: str
    generation: int
    origin: int
    batch: int
    batches_from: int
    sources: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, TableRef]
    committables: tuple[Committable, ...]
    topology: Topology
    triggered_ms: int
    completed_ms: int
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    target: str | None = None
    finished_weight: int = 0
    triggered_by: int = 0
    life: str = ""
    request: str | None = None
    drained: bool = False
    hook: HookState | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "sources": {s: dict(o) for s, o in self.sources.items()},
            "tables": {u: t.to_json() for u, t in self.tables.items()},
            "committables": committables_to_json(self.committables),
            "topology": self.topology.to_json(),
            "stats": {u: dict(s) for u, s in self.stats.items()},
            "hook": self.hook and self.hook.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "completion record") -> CompletionRecord:
        b = Body(value, where)
        return cls(
            b.integer("checkpoint"),
            b.one_of("kind", KINDS),
            b.integer("generation"),
            b.integer("origin"),
            b.integer("batch"),
            b.integer("batches_from"),
            b.str_keys("sources", lambda v: dict(v)),
            b.str_keys("tables", lambda v: TableRef.from_json(v, f"{where}, tables")),
            b.items("committables", committable_from_json),
            Topology.from_json(b.mapping("topology"), f"{where}, topology"),
            b.integer("triggered_ms"),
            b.integer("completed_ms"),
            b.str_keys("stats", lambda v: {k: whole(n) for k, n in v.items()}),
            b.optional_str("target"),
            b.integer("finished_weight"),
            b.integer("triggered_by"),
            b.text_or("life", ""),
            b.optional_str("request") if b.has("request") else None,
            b.flag("drained") if b.has("drained") else False,
            _hook(value, where),
        )


@dataclass(frozen=True)
class VoidRecord:
    """Takes the name ``checkpoints/K`` so that K can never complete (again): generation ``generation`` restored past
    it, or dropped its completion record.

    An older driver, if it still lives, finds the name taken and is fenced.
    """

    checkpoint: int
    generation: int
    time_ms: int

    def to_json(self) -> dict[str, Any]:
        return {"void": True, **vars(self)}

    @classmethod
    def from_json(cls, value: Any, where: str = "void record") -> VoidRecord:
        b = Body(value, where)
        return cls(b.integer("checkpoint"), b.integer("generation"), b.integer("time_ms"))


def checkpoint_from_json(value: Any, where: str = "checkpoint record") -> CompletionRecord | VoidRecord:
    """What ``checkpoints/K`` holds."""
    if isinstance(value, Mapping) and value.get("void") is True:
        return VoidRecord.from_json(value, where)
    return CompletionRecord.from_json(value, where)


@dataclass(frozen=True)
class CommittedRecord:
    """Every committable of ``checkpoint`` is committed, those of the sinks in ``abandoned`` aside.

    ``savepoint_error``: why its savepoint was not written.
    """

    checkpoint: int
    generation: int
    time_ms: int
    savepoint_error: str | None = None
    abandoned: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "abandoned": list(self.abandoned)}

    @classmethod
    def from_json(cls, value: Any, where: str = "committed record") -> CommittedRecord:
        b = Body(value, where)
        return cls(
            b.integer("checkpoint"),
            b.integer("generation"),
            b.integer("time_ms"),
            b.optional_str("savepoint_error"),
            b.strings("abandoned") if b.has("abandoned") else (),
        )


@dataclass(frozen=True)
class AbortedRecord:
    """Checkpoint ``checkpoint`` was given up; its epochs' committables go to the next completed one."""

    checkpoint: int
    cause: str
    reason: str
    time_ms: int
    generation: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Any, where: str = "aborted record") -> AbortedRecord:
        b = Body(value, where)
        cause = b.one_of("cause", CAUSES)
        return cls(b.integer("checkpoint"), cause, b.text("reason"), b.integer("time_ms"), b.integer("generation"))


@dataclass(frozen=True)
class AbandonedRecord:
    """What completed ``checkpoint`` would commit in ``sink``, ``staged`` committables, was given up by hand."""

    checkpoint: int
    sink: str
    staged: int
    time_ms: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: Any, where: str = "abandoned record") -> AbandonedRecord:
        b = Body(value, where)
        return cls(b.integer("checkpoint"), b.text("sink"), b.integer("staged"), b.integer("time_ms"))


def _hook(value: Mapping[str, Any], where: str) -> HookState | None:
    found = value.get("hook")
    return None if found is None else HookState.from_json(found, f"{where}, hook")


def committables_to_json(committables: tuple[Committable, ...]) -> list[Any]:
    return [[c.sink, c.epoch, to_base64(c.data)] for c in committables]


def committable_from_json(value: Any) -> Committable:
    sink, epoch, data = value
    return Committable(str(sink), Epoch(whole(epoch)), from_base64(data))
