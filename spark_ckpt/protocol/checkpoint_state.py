"""What became of a checkpoint: one rule from the records to one of a few states. Whoever asks, asks here. Pure.

==================  ===============  ===============  ==========================================================
``checkpoints/K``   ``committed/K``  ``aborted/K``    state
==================  ===============  ===============  ==========================================================
completion          no               any              COMPLETE: its commits are authorised and not confirmed
completion          yes              any              COMMITTED
void                any              any              VOID: its name is taken, so that it never completes (again)
damaged             any              any              DAMAGED
taken               any              any              TAKEN: one of these five, nobody looked which
free                yes, none newer  any              MISSING: who drops a checkpoint has completed a newer one
free                no, or a newer   yes              ABORTED
free                no, or a newer   no               SUBSUMED if a newer one is complete, else PENDING; ABSENT if
                                                      nobody triggered it
==================  ===============  ===============  ==========================================================

A completion is canonical: whoever gave the checkpoint up at the same moment came too late.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from spark_ckpt.protocol.records import CompletionRecord, VoidRecord


class Name(enum.Enum):
    """What the name ``checkpoints/K`` holds. Only while it is free can K complete."""

    FREE = "free"
    COMPLETION = "completion"
    VOID = "void"
    DAMAGED = "damaged"
    TAKEN = "taken"
    """One of the three above; nobody looked which."""

    @classmethod
    def of(cls, record: CompletionRecord | VoidRecord | None) -> Name:
        if record is None:
            return cls.FREE
        return cls.VOID if isinstance(record, VoidRecord) else cls.COMPLETION

    @property
    def may_be_restored(self) -> bool:
        """A start may go on from it, or from a good copy of it."""
        return self not in (Name.FREE, Name.VOID)


class CheckpointState(enum.Enum):
    """See the module's table."""

    ABSENT = "absent"
    PENDING = "pending"
    SUBSUMED = "subsumed"
    COMPLETE = "complete"
    COMMITTED = "committed"
    ABORTED = "aborted"
    VOID = "void"
    DAMAGED = "damaged"
    MISSING = "missing"
    TAKEN = "taken"

    @property
    def settled(self) -> bool:
        """It is recorded that nothing more happens to it: nobody waits for its barriers, no start goes on with it."""
        return self not in _UNSETTLED

    @property
    def over(self) -> bool:
        """Nothing more can happen to it, recorded or not."""
        return self.settled or self is CheckpointState.SUBSUMED

    @property
    def given_up(self) -> bool:
        """It will never complete, or nobody can read that it did."""
        return self in (CheckpointState.ABORTED, CheckpointState.VOID, CheckpointState.DAMAGED)

    @property
    def lost(self) -> bool:
        """What it was can perhaps be read from a copy."""
        return self in (CheckpointState.DAMAGED, CheckpointState.MISSING)


_UNSETTLED = frozenset(
    {CheckpointState.ABSENT, CheckpointState.PENDING, CheckpointState.SUBSUMED, CheckpointState.MISSING}
)
_OF_NAME = {
    Name.VOID: CheckpointState.VOID,
    Name.DAMAGED: CheckpointState.DAMAGED,
    Name.TAKEN: CheckpointState.TAKEN,
}


def state_of(
    name: Name, *, committed: bool = False, aborted: bool = False, newer: bool = False, triggered: bool = True
) -> CheckpointState:
    """The state of checkpoint K. ``name``: what ``checkpoints/K`` holds; ``committed``, ``aborted`` and ``triggered``:
    whether there are ``committed/K``, ``aborted/K`` and ``triggers/K``; ``newer``: whether a newer one is complete.
    """
    if name is Name.COMPLETION:
        return CheckpointState.COMMITTED if committed else CheckpointState.COMPLETE
    if name is not Name.FREE:
        return _OF_NAME[name]
    if committed and not newer:
        return CheckpointState.MISSING
    if aborted:
        return CheckpointState.ABORTED
    if not triggered:
        return CheckpointState.ABSENT
    return CheckpointState.SUBSUMED if newer else CheckpointState.PENDING


@dataclass(frozen=True)
class Recorded:
    """The ids for which a job's folder holds records, by what they are. ``names``: those in ``checkpoints/``."""

    names: Mapping[int, Name] = field(default_factory=dict)
    triggered: Collection[int] = ()
    committed: Collection[int] = ()
    aborted: Collection[int] = ()

    def state(self, checkpoint: int) -> CheckpointState:
        return state_of(
            self.names.get(checkpoint, Name.FREE),
            committed=checkpoint in self.committed,
            aborted=checkpoint in self.aborted,
            newer=checkpoint < self.newest_complete,
            triggered=checkpoint in self.triggered,
        )

    @cached_property
    def newest_complete(self) -> int:
        """As far as anybody looked; 0 if none is."""
        return max(self.named(Name.COMPLETION), default=0)

    def named(self, *kinds: Name) -> frozenset[int]:
        return frozenset(k for k, name in self.names.items() if name in kinds)

    def open_triggers(self) -> tuple[int, ...]:
        """Those that are not settled, oldest first."""
        return tuple(k for k in sorted(self.triggered) if not self.state(k).settled)

    def lost(self) -> frozenset[int]:
        """Those whose ``checkpoints/K`` is damaged, or missing though it must have been there."""
        return frozenset(k for k in (*self.names, *self.committed) if self.state(k).lost)


def uncommitted(completions: Iterable[CompletionRecord], committed: Collection[int]) -> tuple[CompletionRecord, ...]:
    """Those that are complete and not confirmed as committed, oldest first."""
    open_ = (
        c
        for c in completions
        if state_of(Name.COMPLETION, committed=c.checkpoint in committed) is CheckpointState.COMPLETE
    )
    return tuple(sorted(open_, key=lambda c: c.checkpoint))
