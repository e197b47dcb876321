"""Which records nobody will read again: what drivers wrote that were fenced, and what crashes left. For gc."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from spark_ckpt.protocol.checkpoint_state import uncommitted
from spark_ckpt.protocol.records import BatchRecord, CompletionRecord
from spark_ckpt.types import Committable


def split_batches(
    batches: Iterable[BatchRecord], completions: Sequence[CompletionRecord], generations: Collection[int]
) -> tuple[tuple[BatchRecord, ...], tuple[BatchRecord, ...]]:
    """The batch records that a start may still need, and the others. ``generations``: the numbers of all of them.

    A start goes on at the newest origin that did anything, or leaves it behind. Of several records of one batch the
    newest generation's counts, and a completion settles what is older than its ``batches_from``.
    """
    batches = sorted(batches, key=lambda b: (b.batch, b.generation))
    origins = {b.origin for b in batches if b.origin in generations} | {c.origin for c in completions}
    active = max(origins, default=0)
    own = [c for c in completions if c.origin == active]
    floor = max(own, key=lambda c: c.checkpoint).batches_from if own else 0
    newest = {b.batch: b for b in batches if b.origin >= active and b.origin in generations and b.batch >= floor}
    # Where the generation's record is lost, somebody may put it back: a start says what can be done.
    live = (*newest.values(), *(b for b in batches if b.origin not in generations))
    return live, tuple(b for b in batches if b not in live)


def missing_batches(
    there: Iterable[tuple[int, int]], completions: Sequence[CompletionRecord], origin: int, committed: int
) -> list[int]:
    """Batches of the newest ``origin`` whose records are gone and were not dropped. ``there``: (origin, batch) of those
    that are there; ``committed``: the last batch that Spark committed at the origin's location, -1 if it cannot tell.
    """
    own = [c for c in completions if c.origin == origin]
    first = max(own, key=lambda c: c.checkpoint).batches_from if own else 0
    known = {b for o, b in there if o == origin}
    return [b for b in range(first, max(committed, *known, -1) + 1) if b not in known]


def open_committables(
    live: Iterable[BatchRecord],
    completions: Iterable[CompletionRecord],
    committed: Collection[int],
    abandoned: Collection[tuple[int, str]],
) -> list[Committable]:
    """What may still be committed: what is authorised and not confirmed, and what a later checkpoint may take."""
    completions = tuple(completions)
    reached: dict[int, int] = {}
    for c in completions:
        reached[c.origin] = max(reached.get(c.origin, 0), c.checkpoint)
    staged = [c for b in live for c in b.staged if c.epoch > reached.get(b.origin, 0)]
    authorised = [
        c
        for r in uncommitted(completions, committed)
        for c in r.committables
        if (r.checkpoint, c.sink) not in abandoned
    ]
    return staged + authorised
