"""What a start and the sink's commit ask their surroundings to do, one step at a time, and what it is told back.

The real I/O shell and the simulation both execute these. Every step is idempotent: after a crash the same code asks
for it again. A step that cannot be done raises; the exception goes through the coroutine and ends it, and its
:class:`~spark_ckpt.protocol.commit.JobView` must then be thrown away and rebuilt from the records.

The steps of ``CHECKPOINT_STEPS`` and ``CLEAN_UP_STEPS`` may also be answered with ``StorageFailed``: then a checkpoint
fails, or something is cleaned up later, and the query goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.protocol.events import Flushed, GroupManifest
from spark_ckpt.protocol.records import (
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    TableRef,
    Topology,
    VoidRecord,
)
from spark_ckpt.protocol.restore_plan import RestorePlan
from spark_ckpt.types import CheckpointId, CommitPermit, Committable


@dataclass(frozen=True)
class StorageFailed:
    """Storage did not do it, nor when it was asked again. Perhaps it did and its answer was lost."""

    reason: str


@dataclass(frozen=True)
class CreateGeneration:
    """Create ``generations/g`` if absent. Result: whether it was created (False: the number is taken)."""

    record: GenerationRecord


@dataclass(frozen=True)
class ReadStartFacts:
    """List and read, past any cache, what :class:`~spark_ckpt.protocol.recovery.StartFacts` holds. Result: that."""

    generation: int


@dataclass(frozen=True)
class ReadSinks:
    """Ask each of ``sinks`` for the newest checkpoint of ``job``, an identity, that it shows. Result: by sink, a
    :class:`~spark_ckpt.protocol.setback.SinkFound`."""

    job: str
    sinks: tuple[str, ...]


@dataclass(frozen=True)
class PutBack:
    """Write ``checkpoints/K`` from its copy, if it still is damaged, or missing though ``committed/K`` is there: a
    driver believed dead must not bring back what was dropped since. Result: None."""

    record: CompletionRecord | VoidRecord


@dataclass(frozen=True)
class CreateVoid:
    """As :class:`CreateCompletion`."""

    record: VoidRecord


@dataclass(frozen=True)
class WriteGeneration:
    """Write ``generations/g``, replacing this generation's own claim. Result: None."""

    record: GenerationRecord


@dataclass(frozen=True)
class SetBackSink:
    """Call the sink's ``roll_back``: its target then shows of ``job``, an identity, what it showed at ``checkpoint``.
    Result: None."""

    job: str
    sink: str
    checkpoint: CheckpointId


@dataclass(frozen=True)
class AwaitApproval:
    """Record what the start of ``generation`` would make of the job, and wait until a person approves it. Raises
    ``FencedError`` when a newer start comes. Result: None."""

    generation: int
    plan: RestorePlan


@dataclass(frozen=True)
class RewriteState:
    """Make another checkpoint of ``checkpoint``, with the tables that ``topology``, its migrated one, says are to be
    written anew, under an id of its own, committed. Result: its CompletionRecord. Raises what the functions raise, and
    ``InvalidInputError`` if what they give does not fit."""

    checkpoint: CompletionRecord
    topology: Topology


@dataclass(frozen=True)
class BringSources:
    """What sources keep beside their offsets, by the uid that each has now: copy it from the folder of the uid that it
    had. Again costs nothing. Result: None. Raises ``InvalidInputError`` if another source was called so before."""

    moved: Mapping[str, str]


@dataclass(frozen=True)
class FindOffsets:
    """Of each source that is to begin elsewhere: the offset that was asked for, as its system has it now. Result: a
    Mapping by source uid. Raises ``ConfigError`` or ``InvalidInputError`` for what the source does not take."""

    asked: Mapping[str, Any]


@dataclass(frozen=True)
class ChooseLocation:
    """Where Spark keeps its part of ``generation``, whose query cannot go on at the location that was given: a folder
    that nobody used. Creates nothing. Result: the location, as records have it."""

    generation: int


@dataclass(frozen=True)
class EmptyLocation:
    """Remove what Spark keeps at the query's location, ``offsets/`` last: while some of them are left, they tell whose
    batches these were. Those of another origin than ``origin`` stay: raises ``FencedError``, for a later start went on
    there. Result: None."""

    origin: int


@dataclass(frozen=True)
class WriteBatch:
    """Write ``batches/<record.name>``, replacing what is there. Result: None."""

    record: BatchRecord


@dataclass(frozen=True)
class AbortSink:
    """Call the sink's ``abort``. Result: None."""

    sink: str
    committables: tuple[Committable, ...]


@dataclass(frozen=True)
class ReadTrigger:
    """Read ``triggers/K`` and ``aborted/K``. Result: ``(TriggerRecord | None, AbortedRecord | None)``."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class ReadAborted:
    """Read every ``aborted/`` record (asked only after a decline). Result: a tuple of ``AbortedRecord``."""


@dataclass(frozen=True)
class ReadNewestGeneration:
    """List ``generations/``, past any cache. Result: the highest number."""


@dataclass(frozen=True)
class CommitState:
    """Make one version of ``uid``'s state table hold exactly the state at ``checkpoint``. Result: ``TableRef``.

    That is: the content of ``base`` (None: empty), plus the rows of ``flushed`` in order, minus the dead rows they
    name; what no run of ``groups`` names is removed. ``groups`` holds every key group. The table's newest version
    may be *other* than ``base``: a crash may have left a version behind that no completion names (with the same
    ``checkpoint``, made from files of a task attempt that was replaced), or an older checkpoint was restored. The
    result must not depend on such versions. Check: rows minus dead rows equals the sum of the groups' ``keys``. If
    storage fails on the way, what it left behind is such a version, or files that nobody names.
    """

    uid: str
    checkpoint: CheckpointId
    base: TableRef | None
    flushed: tuple[Flushed, ...]
    groups: Mapping[int, GroupManifest]


@dataclass(frozen=True)
class TrySink:
    """One sink's part of :class:`TrySinks`: call its ``try_commit``."""

    sink: str
    committables: tuple[Committable, ...]


@dataclass(frozen=True)
class TrySinks:
    """Ask each of these sinks whether its target would take this now. Nothing becomes visible, and nothing durable
    changes. Result: ``Tried``. What hinders the asking is raised."""

    checkpoint: CheckpointId
    tries: tuple[TrySink, ...]


@dataclass(frozen=True)
class SinkRefused:
    sink: str
    reason: str


@dataclass(frozen=True)
class Tried:
    """The sinks whose target refuses the checkpoint, and how many rows of which sinks go to where rejected rows go."""

    refused: tuple[SinkRefused, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateCompletion:
    """Write ``copies/K-g``, create ``checkpoints/K`` if absent, and remove the copy again if somebody else's is there.
    Result: ``Created`` or ``Exists`` with what is there.

    Stopped in between: a copy means nothing while there is neither ``checkpoints/K`` nor ``committed/K``, and nothing
    while another generation has one, too.
    """

    record: CompletionRecord


@dataclass(frozen=True)
class Created:
    pass


@dataclass(frozen=True)
class Exists:
    record: CompletionRecord | VoidRecord


@dataclass(frozen=True)
class CommitSink:
    """One sink's part of :class:`CommitSinks`: call its ``commit``."""

    permit: CommitPermit
    sink: str
    committables: tuple[Committable, ...]


@dataclass(frozen=True)
class CommitSinks:
    """Commit each of these sinks, in any order or side by side: a crash leaves any of them committed, and any not.

    All of them are tried. Result: what each raised, None where it is committed, in their order.
    """

    commits: tuple[CommitSink, ...]


@dataclass(frozen=True)
class WriteSavepoint:
    """Copy the checkpoint to ``record.target``, self-contained; its own record there comes last.

    If it is there already, nothing is done: an older driver may ask when the checkpoint has long been dropped.
    Result: None, or ``SavepointFailed`` if it could not be written, for whatever reason. Whoever asked is told, and
    the checkpoint is complete without it: a target that fails is no reason to end the query.
    """

    record: CompletionRecord


@dataclass(frozen=True)
class SavepointFailed:
    reason: str


@dataclass(frozen=True)
class AnswerRequest:
    """Create ``answers/<request>`` if absent: checkpoint K is the answer, or ``error`` says why not. Result: None.

    If whoever asked has withdrawn the request, that stands.
    """

    request: str
    checkpoint: CheckpointId
    error: str | None = None


@dataclass(frozen=True)
class WriteCommitted:
    """Write ``committed/K``, replacing what is there. Whoever waits for K may be told now. Result: None."""

    record: CommittedRecord


@dataclass(frozen=True)
class WriteAborted:
    """Write ``aborted/K``, replacing what is there. Result: None."""

    record: AbortedRecord


@dataclass(frozen=True)
class AppendHistory:
    """Add one row to the history table. Result: None.

    ``outcome`` is ``completed`` or the cause of the abort. A crash may lose a row: history is a report, not a fact.
    ``stats`` are by uid, ``subtasks`` by uid and partition, as far as they are known.
    """

    checkpoint: CheckpointId
    kind: str | None
    outcome: str
    generation: int
    origin: int
    batch: int
    triggered_ms: int | None
    ended_ms: int
    reason: str | None = None
    target: str | None = None
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    subtasks: Mapping[str, Mapping[int, Mapping[str, int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectFiles:
    """Delete state files of epochs <= ``up_to`` that no manifest of ``named_by`` names. Result: None."""

    up_to: CheckpointId
    named_by: tuple[CheckpointId, ...]


@dataclass(frozen=True)
class DropBatches:
    """Delete the batch records of ``origin`` with batch numbers below ``below`` (None: all). Result: None."""

    origin: int
    below: int | None


@dataclass(frozen=True)
class DropCheckpoint:
    """Delete what is recorded of K: its copies, then ``checkpoints/K``, then ``committed/K``, ``abandoned/K-...``, its
    manifests, and ``triggers/`` and ``aborted/`` of the ids up to K that have no completion record.

    In this order a crash never leaves a completion that looks uncommitted. If ``void`` is given, it *replaces*
    ``checkpoints/K``, which must not be free at any moment. Result: None.
    """

    checkpoint: CheckpointId
    void: VoidRecord | None


Step = (
    CreateGeneration
    | ReadStartFacts
    | ReadSinks
    | PutBack
    | CreateVoid
    | WriteGeneration
    | SetBackSink
    | AwaitApproval
    | RewriteState
    | BringSources
    | FindOffsets
    | ChooseLocation
    | EmptyLocation
    | WriteBatch
    | AbortSink
    | ReadTrigger
    | ReadAborted
    | ReadNewestGeneration
    | CommitState
    | TrySinks
    | CreateCompletion
    | CommitSinks
    | WriteSavepoint
    | AnswerRequest
    | WriteCommitted
    | WriteAborted
    | AppendHistory
    | CollectFiles
    | DropBatches
    | DropCheckpoint
)

CHECKPOINT_STEPS = (CommitState, CreateCompletion)
"""If storage fails in one of them, the checkpoint fails."""

CLEAN_UP_STEPS = (AbortSink, DropCheckpoint, CollectFiles, DropBatches, AppendHistory)
"""If one of them fails, for whatever reason, it is asked for again at the next clean-up. Nothing depends on them."""
