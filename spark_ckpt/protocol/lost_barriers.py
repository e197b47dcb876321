"""Was a barrier lost on its way to the sink? Pure.

A source's acknowledgement travels beside its barrier, in the same batch, and passes through every operator. A batch
has ended when a source is asked where the next one ends. So what its record does not hold by then will never come; and
if every source's acknowledgement is there, the checkpoint is complete or aborted unless barriers were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_ckpt.protocol.events import OperatorAck, SourceAck
from spark_ckpt.protocol.records import BatchRecord


@dataclass(frozen=True)
class OnItsWay:
    """Other sources have not sent theirs yet."""


@dataclass(frozen=True)
class LostHere:
    """This generation sent the barrier: its query loses barriers and must not go on."""

    reason: str


@dataclass(frozen=True)
class LostBefore:
    """An earlier generation sent it, perhaps in another query: the checkpoint is given up, and the next one follows."""

    reason: str


def judge_barrier(
    checkpoint: int, source: str, sources: Sequence[str], *, sent: bool, batches: Iterable[BatchRecord]
) -> OnItsWay | LostHere | LostBefore:
    """Driver, source ``source``: its barrier of ``checkpoint`` went into a batch that has ended, and the checkpoint is
    neither complete nor aborted. ``sent``: by this generation. ``batches``: the records at this Spark location.
    """
    records = list(batches)
    acks = {e.source for r in records for e in r.events if isinstance(e, SourceAck) and e.checkpoint == checkpoint}
    if source not in acks:
        reason = f"the barrier of checkpoint {checkpoint} that source {source!r} sent has not reached the sink"
    elif set(sources) <= acks:
        reason = (
            f"the barriers of checkpoint {checkpoint} have reached the sink in part only{_passed(checkpoint, records)}"
        )
    else:
        return OnItsWay()
    return LostHere(reason) if sent else LostBefore(reason)


def _passed(checkpoint: int, records: Iterable[BatchRecord]) -> str:
    events = [e for r in records for e in r.events if isinstance(e, OperatorAck) and e.checkpoint == checkpoint]
    uids = sorted({e.uid for e in events})
    return f" (operators {uids} have seen them)" if uids else ""
