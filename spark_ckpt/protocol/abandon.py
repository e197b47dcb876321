"""Giving up, knowingly, what a completed checkpoint would commit in one sink that cannot take it.

A completion record authorises its commits for good, so every start tries them again. When one can never succeed (rows
that a constraint refuses, staged data that is gone), somebody may give it up: a record of its own, written while the
job is stopped, that the next start reads. It commits the checkpoint in its other sinks and passes over this one; what
was staged there is for the sink's gc. Nothing in this library writes that record by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_ckpt.protocol.checkpoint_state import uncommitted
from spark_ckpt.protocol.records import AbandonedRecord, CompletionRecord
from spark_ckpt.protocol.topology import Refuse


def decide_abandon(
    checkpoint: int,
    sink: str,
    completions: Iterable[CompletionRecord],
    committed: Iterable[int],
    now_ms: int,
) -> AbandonedRecord | Refuse:
    """Whether what ``checkpoint`` has for ``sink`` may be given up. Asked from outside, while the job is stopped."""
    committed = frozenset(committed)
    known = {c.checkpoint: c for c in completions}
    open_ = {r.checkpoint: sorted({c.sink for c in r.committables}) for r in uncommitted(known.values(), committed)}
    if checkpoint in open_ and sink in open_[checkpoint]:
        staged = sum(c.sink == sink for c in known[checkpoint].committables)
        return AbandonedRecord(checkpoint, sink, staged, now_ms)
    if checkpoint not in known:
        why = f"there is no completed checkpoint {checkpoint}"
    elif checkpoint in committed:
        why = f"checkpoint {checkpoint} is committed in all its sinks"
    else:
        why = f"checkpoint {checkpoint} has nothing for a sink {sink!r}"
    waiting = [f"{k} in {' and '.join(map(repr, sinks))}" for k, sinks in sorted(open_.items()) if sinks]
    return Refuse(f"{why}; complete and not committed: {', '.join(waiting) or 'none'}")


def with_ways_out(found: str, job: str, checkpoint: int, sink: str) -> str:
    """What somebody is told whose sink could not commit a completed checkpoint, because of ``found``."""
    return (
        f"checkpoint {checkpoint} of job {job!r} is complete, but its sink {sink!r} could not commit it: {found}\n"
        "Every start tries this commit first, whatever it restores. Repair what stands in its way and start again; or, "
        f"if that cannot be, stop the job and give up for good what checkpoint {checkpoint} has for this sink: "
        f"`spark-ckpt abandon DIR {job} {checkpoint} --sink {sink}`, in Python "
        f"`spark_ckpt.job(dir, {job!r}).abandon({checkpoint}, sink={sink!r})`. Other sinks and checkpoints keep theirs."
    )
