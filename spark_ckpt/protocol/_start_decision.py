"""What a starting query knows, and what it may decide: the values of :mod:`spark_ckpt.protocol.recovery`."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_ckpt.protocol.damage import Damage
from spark_ckpt.protocol.migration import Migration
from spark_ckpt.protocol.records import (
    AbortedRecord,
    AcceptedRecord,
    BatchRecord,
    CompletionRecord,
    GenerationRecord,
    Topology,
)
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.types import Committable

AUTO, NONE = "auto", "none"
SAFE, ASK = "safe", "ask"


@dataclass(frozen=True)
class SparkLocation:
    """The query's Spark checkpoint location: the newest batch in ``offsets/`` and in ``commits/``, or None.

    ``origin`` is what the sources wrote into the planned offsets. The path alone does not tell: two queries may have
    been started at one empty location, and locations are deleted and moved.
    """

    path: str
    planned: int | None = None
    committed: int | None = None
    origin: int | None = None


@dataclass(frozen=True)
class StartFacts:
    """``restore``: ``auto``, ``none`` or a checkpoint id. A savepoint is first imported as a checkpoint of this job
    (:func:`as_savepoint`), so that it has an id here.

    ``generations`` are all but ``generation``, claims included.
    ``completions`` holds no void records. ``open_triggers``: ids in ``triggers/`` that are neither complete, void
    nor aborted. ``abandoned``: what was given up by hand, as (checkpoint, sink). ``hook``: the name of the query's
    hooks. ``refused``: the ``aborted/`` records of cause SINK_REFUSED. ``may_empty``: whether this start can empty its
    location; Spark must not have read it yet.
    ``accepted``: what sinks may show by hand. ``newest_known``: the largest id in ``checkpoints/``, whatever
    stands there, and in ``committed/``. ``migrations``: what the user says of state that changes. ``may_move``: whether
    this start can begin at another Spark location than the one it was given. ``approve``: SAFE, ASK or AUTO, what
    becomes of a start that would lose something.
    """

    restore: str | int
    location: SparkLocation
    topology: Topology
    generation: int
    generations: tuple[GenerationRecord, ...] = ()
    completions: tuple[CompletionRecord, ...] = ()
    committed: frozenset[int] = frozenset()
    batches: tuple[BatchRecord, ...] = ()
    open_triggers: tuple[int, ...] = ()
    allow_non_restored: bool = False
    damage: Damage = field(default_factory=Damage)
    abandoned: frozenset[tuple[int, str]] = frozenset()
    hook: str | None = None
    refused: tuple[AbortedRecord, ...] = ()
    may_empty: bool = True
    accepted: tuple[AcceptedRecord, ...] = ()
    newest_known: int = 0
    migrations: tuple[Migration, ...] = ()
    may_move: bool = False
    approve: str = SAFE


@dataclass(frozen=True)
class GoOn:
    """Go on at the location, as ``origin``.

    ``restored``: what the origin began from (``initialOffset`` and the restore rows of batch 0 come from it).
    ``adopt``: Spark replays the batch that completed this one. ``commit``: complete, not confirmed as committed.
    ``uncompared``: operators of which no record says what their state is made of. ``newest``: the last checkpoint of
    the origin, or what it began from. ``was``: the query that ran here last.
    """

    origin: int
    restored: CompletionRecord | None
    adopt: CompletionRecord | None
    commit: tuple[CompletionRecord, ...]
    uncompared: tuple[str, ...] = ()
    newest: CompletionRecord | None = None
    was: Topology | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RestoreFrom:
    """Begin a new origin (= this generation) from ``checkpoint``. In this order:

    void ``abort_triggers`` (create ``checkpoints/K`` as a ``VoidRecord``; if a completion is there already, an older
    driver was quicker: read the facts and decide again), write this generation's decision, ``commit``, empty the
    location if ``gave_up`` names the origin that was there (:mod:`spark_ckpt.protocol._refusal`), ``abort``, write
    ``aborted/`` (cause LOST) for ``abort_triggers``, delete the batch records of ``drop_origins``. See
    :func:`spark_ckpt.protocol.startup.start_job`, which does it.
    ``changed``: why the location's batches cannot be gone on with, where the query is another one; the new origin has
    a location of its own. ``fresh_uids`` start empty; ``dropped_uids`` are in the checkpoint and not in the query; of
    ``uncompared`` ones the checkpoint does not say what their state is made of.
    """

    checkpoint: CompletionRecord
    commit: tuple[CompletionRecord, ...] = ()
    abort: tuple[Committable, ...] = ()
    abort_triggers: tuple[int, ...] = ()
    drop_origins: tuple[int, ...] = ()
    fresh_uids: tuple[str, ...] = ()
    dropped_uids: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    gave_up: int | None = None
    changed: str | None = None


@dataclass(frozen=True)
class StartFresh:
    """Begin a new origin (= this generation) with nothing; the rest as in :class:`RestoreFrom`."""

    commit: tuple[CompletionRecord, ...] = ()
    abort: tuple[Committable, ...] = ()
    abort_triggers: tuple[int, ...] = ()
    drop_origins: tuple[int, ...] = ()
    gave_up: int | None = None


Decision = GoOn | RestoreFrom | StartFresh | Refuse
