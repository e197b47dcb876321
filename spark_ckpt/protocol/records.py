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
AcceptedRecord       ``accepted/K-sink``          replace, by hand: that sink may show K, and not what it should
EndedRecord          ``ended/g``                  create if absent, by the process that started the query of g
FailingSink          ``failing/sink``             replace, whenever that sink fails
(a copy)             ``copies/K-g``               what generation g is about to create as ``checkpoints/K``: read only
                                                  by a start that finds ``checkpoints/K`` lost
===================  ===========================  ==================================================

Their JSON form is :mod:`spark_ckpt.protocol.codec`'s: ``from_json`` checks every field and raises
``CorruptStorageError``. ``where`` is the record's name for that message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar

from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import Choice, Count, later, optional
from spark_ckpt.protocol.events import Event, TimeSeen
from spark_ckpt.types import Committable

CHECKPOINT, SAVEPOINT, FINAL = "checkpoint", "savepoint", "final"
KINDS = (CHECKPOINT, SAVEPOINT, FINAL)
Kind = Annotated[str, Choice(KINDS)]

FAILED, EXPIRED, DECLINED = "failed", "expired", "declined"
SUBSUMED, LOST, WITHDRAWN, SINK_REFUSED = "subsumed", "lost", "withdrawn", "refused"
REJECTED_ROWS = "rejected_rows"
"""A statistic of a sink: how many rows its target refused, which went to where its option ``rejects`` says."""
CAUSES = (FAILED, EXPIRED, DECLINED, SUBSUMED, LOST, WITHDRAWN, SINK_REFUSED)
"""Why a checkpoint was aborted. Only the first two count as failures (after Flink's CheckpointFailureManager).

``failed``: storage did, at its trigger, a snapshot or the commit. ``declined``: a task would have held back more rows
than it may. ``lost``: its generation ended before it was injected everywhere, or the job was restored elsewhere.
``withdrawn``: whoever asked for it stopped waiting. ``refused``: a sink's target does not take its rows; the query
ended with that, and the next start at its location gives up what is staged and reads it again."""

_R = TypeVar("_R", bound="_Record")

FAMILY_OF = "family_of"
"""What a family's entry in ``Topology.operators`` says: the operator's uid."""
SINK = "sink:"
"""In front of a sink's id at the ends of an ``Edge``."""
UNDECIDED, REFUSED = 0, -1
"""Values of ``GenerationRecord.origin`` that are no origin."""


codec.as_row(Committable)


class _Record:
    """What all of them can."""

    def to_json(self) -> dict[str, Any]:
        return codec.write(self)

    @classmethod
    def from_json(cls: type[_R], value: Any, where: str = "record") -> _R:
        return codec.read(cls, value, where)


@dataclass(frozen=True)
class Topology(_Record):
    """What takes part in a checkpoint. ``operators`` maps uid to what its state is: ``state`` and ``keys`` are its
    columns, ``timeout`` is the kind of time-outs, ``made_of`` says for each column of ``state`` that an aggregate made
    how it did, and for a window among the keys which ones those are (nothing for a user's function, which cannot be
    compared). Older records lack the last two. Each family of an operator, a state table with many rows a key, is one
    of them by its own name. Those whose columns may change tell more (:mod:`spark_ckpt.protocol.evolution`): ``types``,
    column by column; ``from_start``, those that cannot be added; ``results``, what comes out and of which columns.
    Where the uid was derived and not given, ``derived`` are the sources whose rows reach the operator, and
    ``stands_in`` a mark of the plan in front of it. ``mode``: the output mode of an operator that follows it;
    ``waited``: it is update, and was append. ``keyed_by``: key -> what it is computed by, as Spark writes it, where
    that is known (older records lack it).

    ``weight_total`` is the sum of ``inputs * key_groups`` over the streams that end at the sink. ``in_plan``: the keyed
    operators in the order of Spark's plan, by which its state store numbers them (older records lack it). ``reads``:
    what each source reads, its kind first, without secrets. ``derived_sources``: those whose uid was not given.
    ``begins``: :mod:`spark_ckpt.protocol.source_starts`.
    """

    key_groups: Count
    weight_total: Count
    sources: tuple[str, ...]
    operators: Mapping[str, Mapping[str, Any]]
    sinks: tuple[str, ...]
    in_plan: tuple[str, ...] = later(())
    reads: Mapping[str, str] = later(factory=dict)
    derived_sources: tuple[str, ...] = later(())
    begins: Mapping[str, Mapping[str, Any]] = optional(factory=dict)


@dataclass(frozen=True)
class Claimed(_Record):
    """The savepoint in the folder ``path`` (no secrets), of ``checkpoint`` of ``job`` in its ``life``, which a start of
    this job took over."""

    path: str
    job: str
    life: str
    checkpoint: int


@dataclass(frozen=True)
class Edge(_Record):
    """Rows flow from ``start`` to ``end``: uids of sources and operators, and ids of sinks behind :data:`SINK`, as a
    sink may be called as an operator is. ``through``: what is done to single rows on the way, by name, and ``(in
    Spark)`` where Arrow does not do it."""

    start: str
    end: str
    through: tuple[str, ...] = optional(())


@dataclass(frozen=True)
class GenerationRecord(_Record):
    """One start of the job, in ``life`` (:mod:`spark_ckpt.protocol.life`). ``origin`` is the generation that first
    opened ``spark_location``; it took the restore decision (``restored_from``; None: fresh) for the location's whole
    life.

    Its owner creates it with ``origin`` UNDECIDED (a claim, which fences the others) before it reads the facts, and
    replaces it when it has decided, or was REFUSED. ``settings``: what its checkpoints are taken by, as text.
    ``gave_up``: the origin that was at the same location before, whose open rows a sink refused. ``given_location``:
    the location that the user gave, if ``spark_location`` is one that a start chose, as the query had changed.
    ``to_set_back``: the record is no start but a rollback to ``restored_from`` (:mod:`spark_ckpt.protocol.rollback`),
    and these sinks' targets are still to be set back; None: a start. ``claimed``: the savepoint that it took over.
    ``settings_from``: where each of ``settings`` was set, ``query``, ``session`` or ``default``. ``edges``: how rows
    flow through the query. These two are for people; no decision looks at them. ``spark``: the version that ran it,
    ``4.2``; a start looks whether it can read the location.
    """

    generation: Count
    origin: int
    spark_location: str
    restored_from: int | None
    started_ms: int
    topology: Topology
    life: str = later("")
    settings: Mapping[str, str] = later(factory=dict)
    gave_up: int | None = later(None)
    given_location: str = later("")
    to_set_back: tuple[str, ...] | None = later(None)
    claimed: Claimed | None = optional()
    settings_from: Mapping[str, str] = optional(factory=dict, compare=False)
    edges: tuple[Edge, ...] = optional((), compare=False)
    spark: str = optional("", compare=False)

    GONE: ClassVar = frozenset({"restored_path"})


@dataclass(frozen=True)
class HookState(_Record):
    """What the job's hooks, known by ``name``, want back when this checkpoint is gone on from."""

    name: str
    state: bytes = field(repr=False)


@dataclass(frozen=True)
class TriggerRecord(_Record):
    """Checkpoint ``checkpoint`` was asked for ``by`` somebody. ``terminal``: nothing is read behind its barrier.

    ``target`` is where a savepoint goes; ``request`` the manual request it answers, before ``deadline_ms``. ``drain``:
    the event time ends with its barrier, and no source ever reads behind it at this Spark location. ``hook``: put in
    when the hooks were told, before the barrier is injected.
    """

    checkpoint: Count
    kind: Kind
    time_ms: int
    by: str
    target: str | None
    terminal: bool
    request: str | None
    generation: Count
    deadline_ms: int | None = later(None)
    drain: bool = later(False)
    hook: HookState | None = later(None)


@dataclass(frozen=True)
class Figures(_Record):
    """What a start has done up to a batch, for metrics: ``read`` by source, ``late`` by operator, and ``written``, to
    each sink: rows since the start began. ``behind``: what each source had not read yet when the batch was planned, if
    it tells. ``asked``: what the query's processes asked of storage since the start began, by kind. ``keys`` and
    ``state_bytes``: by state table, at the newest checkpoint that was complete before the batch; ``checkpoint_ms``: how
    long its phases took, by the batch in which it completed.
    """

    read: Mapping[str, Count] = optional(factory=dict)
    late: Mapping[str, Count] = optional(factory=dict)
    written: Count = optional(0)
    behind: Mapping[str, Count] = optional(factory=dict)
    asked: Mapping[str, Count] = optional(factory=dict)
    keys: Mapping[str, Count] = optional(factory=dict)
    state_bytes: Mapping[str, Count] = optional(factory=dict)
    checkpoint_ms: Mapping[int, Mapping[str, Count]] = optional(factory=dict)


@dataclass(frozen=True)
class BatchRecord(_Record):
    """What batch ``batch`` staged and reported; the sink's messages, folded.

    ``barriers`` maps checkpoint to the weight that reached the sink in this batch, ``finished`` the epoch label of
    a ``Finished`` row (the lowest checkpoint it counts for) to its weight. ``events`` are the acknowledgements
    (source and operator), declines, flushes and cancels; other control events need no record.

    ``rows``: batch -> source -> rows it read, of this batch and of those before it in the same start. ``times``: batch
    -> what its operators went by, ``at``: batch -> when it was committed, in epoch milliseconds, ``written``: batch ->
    rows that each sink was given, of the same batches. ``figures``: see there. Reports for whoever asks for the query's
    progress; no decision looks at them.
    """

    origin: int
    batch: Count
    generation: Count
    staged: tuple[Committable, ...] = ()
    events: tuple[Event, ...] = ()
    barriers: Mapping[int, Count] = field(default_factory=dict)
    finished: Mapping[int, Count] = field(default_factory=dict)
    rows: Mapping[int, Mapping[str, Count]] = later(factory=dict)
    times: Mapping[int, tuple[TimeSeen, ...]] = later(factory=dict)
    at: Mapping[int, int] = optional(factory=dict, compare=False)
    written: Mapping[int, Count] = optional(factory=dict, compare=False)
    figures: Figures = optional(factory=lambda: Figures(), compare=False)

    @property
    def name(self) -> str:
        """Its name in ``batches/``. The generation in it keeps a fenced driver from overwriting its successor's."""
        return f"{self.origin:010d}-{self.batch:010d}-{self.generation:010d}"


@dataclass(frozen=True)
class TableRef(_Record):
    """An operator's state at a checkpoint: its table's Delta version and the manifest file that names the runs."""

    version: Count
    manifest: str


@dataclass(frozen=True)
class Shown(_Record):
    """``checkpoint`` is the newest, up to that of the record, with rows for a sink, ``before`` the newest that was
    committed there ahead of it (0: none). ``target``: where the sink wrote to, in words without secrets."""

    checkpoint: Count
    before: Count
    target: str = later("")


@dataclass(frozen=True)
class CompletionRecord(_Record):
    """Checkpoint ``checkpoint`` is complete: the whole consistent cut, and the authority to commit.

    ``committables`` are all of epochs <= ``checkpoint`` that no earlier checkpoint committed, ordered by batch and
    epoch. ``batch`` is the batch of ``origin`` whose sink commit created it; ``batches_from`` the lowest batch
    whose record still holds something of a later epoch. ``stats`` maps uid to what its acknowledgements reported.
    ``finished_weight`` is the weight at the sink whose input had ended by then; it counts for good in this origin.
    ``triggered_by`` is the generation of its trigger, ``life`` what the sinks commit it under, ``request`` the manual
    request that it answers. ``drained``: all time-outs that wait for the event time have fired in it. ``shown``: by
    sink, what each was given last (:mod:`spark_ckpt.protocol.setback`).
    """

    checkpoint: Count
    kind: Kind
    generation: Count
    origin: int
    batch: int
    batches_from: Count
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
    life: str = later("")
    request: str | None = later(None)
    drained: bool = later(False)
    hook: HookState | None = later(None)
    shown: Mapping[str, Shown] = later(factory=dict)


@dataclass(frozen=True)
class VoidRecord:
    """Takes the name ``checkpoints/K`` so that K can never complete (again): generation ``generation`` restored past
    it, or dropped its completion record.

    An older driver, if it still lives, finds the name taken and is fenced.
    """

    checkpoint: Count
    generation: Count
    time_ms: int

    GONE: ClassVar = frozenset({"void"})
    """Not gone, but no field: it tells the record from a completion."""

    def to_json(self) -> dict[str, Any]:
        return {"void": True, **codec.write(self)}

    @classmethod
    def from_json(cls, value: Any, where: str = "void record") -> VoidRecord:
        return codec.read(cls, value, where)


def checkpoint_from_json(value: Any, where: str = "checkpoint record") -> CompletionRecord | VoidRecord:
    """What ``checkpoints/K`` holds."""
    if isinstance(value, Mapping) and value.get("void") is True:
        return VoidRecord.from_json(value, where)
    return CompletionRecord.from_json(value, where)


@dataclass(frozen=True)
class CommittedRecord(_Record):
    """Every committable of ``checkpoint`` is committed, those of the sinks in ``abandoned`` aside.

    ``savepoint_error``: why its savepoint was not written.
    """

    checkpoint: Count
    generation: Count
    time_ms: int
    savepoint_error: str | None = None
    abandoned: tuple[str, ...] = later(())


@dataclass(frozen=True)
class AbortedRecord(_Record):
    """Checkpoint ``checkpoint`` was given up; its epochs' committables go to the next completed one."""

    checkpoint: Count
    cause: Annotated[str, Choice(CAUSES)]
    reason: str
    time_ms: int
    generation: Count


@dataclass(frozen=True)
class AbandonedRecord(_Record):
    """What completed ``checkpoint`` would commit in ``sink``, ``staged`` committables, was given up by hand."""

    checkpoint: Count
    sink: str
    staged: Count
    time_ms: int


@dataclass(frozen=True)
class AcceptedRecord(_Record):
    """By hand: the job may start though ``sink`` shows ``checkpoint`` as its newest, and not what the job committed
    there. ``known``: the newest checkpoint that the folder had heard of by then; ``generation``: its newest one."""

    sink: str
    checkpoint: Count
    known: Count
    time_ms: int
    generation: int = later(0)


@dataclass(frozen=True)
class PausedRecord(_Record):
    """``paused.json``: somebody paused the job, for ``reason``. While it is there, sources read nothing behind the next
    barrier, and starts read nothing at all."""

    time_ms: int
    reason: str


@dataclass(frozen=True)
class EndedRecord(_Record):
    """The query of ``generation`` ended. ``error``: the class of what it ended with, ``text`` what that says if it is
    an error of this library, else the line of Python that raised it; what others say may hold values of rows. A report:
    no decision looks at it."""

    generation: Count
    time_ms: int
    error: str | None = None
    text: str = ""


@dataclass(frozen=True)
class FailingSink(_Record):
    """Sink ``sink``, which writes to ``target``, failed ``tries`` times at checkpoint ``checkpoint``, first at
    ``since_ms`` and last at ``time_ms``, with ``error``; all without secrets. It stays when the sink has recovered:
    whether the checkpoint is committed tells. A report: no decision looks at it."""

    sink: str
    target: str
    checkpoint: Count
    tries: Count
    since_ms: int
    time_ms: int
    error: str
