"""Looks after barriers that do not arrive: asked by a source's reader before every batch. Driver, source process."""

from __future__ import annotations

from spark_ckpt.errors import ControlColumnsError
from spark_ckpt.protocol.lost_barriers import LostBefore, LostHere, judge_barrier
from spark_ckpt.protocol.records import LOST, AbortedRecord
from spark_ckpt.protocol.source_offset import PendingTrigger, SourceOffset
from spark_ckpt.runtime._fencing import unless_fenced
from spark_ckpt.runtime.source.trigger_coordinator import TriggerCoordinator


class BarrierWatch:
    """One source's barriers. Costs nothing as long as each checkpoint ends with the batch of its barrier."""

    def __init__(self) -> None:
        self._sent: set[int] = set()
        self._seen: SourceOffset | None = None

    def sent(self, end: SourceOffset) -> None:
        """The batch that ends at ``end`` runs in this generation, for the first time or again."""
        if end.barrier is not None:
            self._sent = {end.barrier, *(p.checkpoint for p in end.pending if p.checkpoint in self._sent)}

    def check(self, triggers: TriggerCoordinator, start: SourceOffset, now_ms: int) -> None:
        """``start`` is where the last batch ended. Raises ``ControlColumnsError`` if a barrier got lost in it."""
        if not start.pending or start == self._seen:
            return
        self._seen = start
        for pending in start.pending:
            self._judge(triggers, pending, now_ms)

    def _judge(self, triggers: TriggerCoordinator, pending: PendingTrigger, now_ms: int) -> None:
        checkpoint, run = pending.checkpoint, triggers.run
        # The batch has ended, so what became of it is there to see; or it is dropped already, behind a newer one.
        if triggers.is_over(checkpoint):
            return
        found = judge_barrier(
            checkpoint,
            triggers.source.id,
            run.topology.sources,
            sent=checkpoint in self._sent,
            batches=triggers.records.batches(run.origin),
        )
        if isinstance(found, LostBefore):
            # A crash behind it: the next reader finds the record and sends the cancel marker.
            triggers.give_up(AbortedRecord(checkpoint, LOST, found.reason, now_ms, run.generation))
        elif isinstance(found, LostHere):
            # Or a newer start gave the batches up, and removed their records.
            raise unless_fenced(run, ControlColumnsError(_message(found.reason, triggers.source.plain_operations)))


def _message(reason: str, plain_operations: tuple[str, ...]) -> str:
    operations = ", ".join(plain_operations) or "the plain Spark operations between reader and writer"
    return (
        f"{reason}: an operation dropped rows whose __ckpt_ctl is not null. Look at: {operations}. Each must put out "
        "every control row exactly once; add | F.col('__ckpt_ctl').isNotNull() to its filters. Nothing was committed "
        "since the last checkpoint, and nothing is lost: mend the operation and start the query again."
    )
