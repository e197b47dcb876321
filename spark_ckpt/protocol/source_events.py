"""What the partitions of a source's batch say besides rows: barriers, cancel markers, ends, acknowledgements, restores.

All of it follows from the two offsets between which the batch lies, so a replayed batch says the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_ckpt.protocol.events import NO_STREAM, Barrier, Cancel, Completed, Event, Finished, SourceAck, Watermark
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.protocol.source_time import end_stream, idle_stream
from spark_ckpt.protocol.weights import split


def announcements(
    source: str, start: SourceOffset, end: SourceOffset, key_groups: int, parts: int, event_time: bool = False
) -> tuple[tuple[Event, ...], ...]:
    """The events of each of ``parts`` partitions with data, behind their rows; of one partition more if there is
    something to say and no data.

    The partitions split the source's weight between them (Flink: every subtask broadcasts the barrier); the first one
    also speaks for the source.
    """
    spoken = _spoken(source, start, end, key_groups)
    if event_time:
        # Every batch says that it was there: operators tell batches apart by it.
        spoken = (*spoken, Watermark(NO_STREAM, 0, start.epoch))
    if parts == 0 and not spoken and end.barrier is None:
        return ()
    count = max(parts, 1)
    barriers = _barriers(end, key_groups, count)
    return tuple((*(spoken if i == 0 else ()), *barriers[i]) for i in range(count))


def _spoken(source: str, start: SourceOffset, end: SourceOffset, key_groups: int) -> tuple[Event, ...]:
    """What is said once for the whole source."""
    found: list[Event] = [Cancel(k) for k in end.cancel]
    if end.ended and (not start.ended or start.restore is not None):
        # A location that was restored knows nothing of ends before it: said again (Flink: FLIP-147, finished tasks
        # are restored as finished).
        found.append(Finished(key_groups - 1, start.epoch))
    if end.completed is not None:
        found.append(Completed(end.completed))
    if end.turns is not None and (end.turns != start.turns or start.restore is not None):
        # A location that was restored may have operators that the checkpoint had not: said again.
        found.append(Watermark(idle_stream(source), end.turns, start.epoch))
    if end.closes and end.barrier is not None:
        found.append(Watermark(end_stream(source), end.barrier, start.epoch))
    if end.barrier is not None:
        found.append(SourceAck(source, end.barrier, end.position().to_json()))
    return tuple(found)


def _barriers(end: SourceOffset, key_groups: int, parts: int) -> list[tuple[Event, ...]]:
    if end.barrier is None:
        return [()] * parts
    drain = end.drain is not None
    if end.ended:
        # An ended source keeps one share alive: operators learn of a checkpoint from a barrier.
        return [(Barrier(end.barrier, 1, end.triggered_ms, drain),), *[()] * (parts - 1)]
    return [(Barrier(end.barrier, w, end.triggered_ms, drain),) for w in split(key_groups, parts)]


@dataclass(frozen=True)
class Manifests:
    """Send the recorded manifests of ``uids`` at ``checkpoint`` along with the batch (events ``Restore``)."""

    checkpoint: int
    uids: tuple[str, ...]
    adopt: bool


def manifests_to_send(
    start: SourceOffset, restores: Sequence[str], reaches: Sequence[str], adopt: int | None, replayed: bool
) -> tuple[Manifests, ...]:
    """In the first batch of a restored location, and in the replay of a batch that completed ``adopt``; perhaps both.

    ``restores``: the operators that this source restores. ``reaches``: all that its rows can reach. ``replayed``: the
    batch was planned by an earlier start.
    """
    found: list[Manifests] = []
    if start.restore is not None and restores:
        found.append(Manifests(start.restore, tuple(restores), False))
    if replayed and adopt is not None and reaches:
        # An operator that takes the snapshot in the replay gets its barrier from a source that moves in it. That need
        # not be the source that restores it, so every source that moves brings the manifests.
        found.append(Manifests(adopt, tuple(reaches), True))
    return tuple(found)
