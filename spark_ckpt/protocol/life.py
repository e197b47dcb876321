"""A job's life: from the first start in an empty folder until the folder is removed.

Checkpoint ids begin at 1 in every life, and sinks outlive the folder. So what a sink is told is not the job's bare name
but its *identity*, the name with the life's random mark: what an earlier life committed under the same name and id, or
a job of that name in another folder, is somebody else's. Within a life ids never start over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_ckpt.protocol.records import CompletionRecord, GenerationRecord

UNMARKED = ""
"""The life of a job that was first started before lives had marks: its identity stays its name."""


def identity(job: str, life: str) -> str:
    """What sinks know the job by: ``orders@5f0c62d1a9b3e874``."""
    return f"{job}@{life}" if life else job


def newest_decided(generations: Iterable[GenerationRecord]) -> GenerationRecord | None:
    """The start, or the rollback, that says where the job stands."""
    return max((g for g in generations if g.origin > 0), key=lambda g: g.generation, default=None)


def life_of(generations: Sequence[GenerationRecord], completions: Iterable[CompletionRecord]) -> str | None:
    """The life that a job's records belong to; None if there are none.

    A claim counts only if nobody has decided yet: of two first starts at the same time, each with a mark of its own,
    the one with the lower number is fenced, and the other has seen its claim.
    """
    decided = [g for g in generations if g.origin > 0]
    known = decided or generations
    if known:
        return max(known, key=lambda g: g.generation).life
    own = [c for c in completions if c.origin > 0]  # an imported savepoint tells of another job's life
    return max(own, key=lambda c: c.checkpoint).life if own else None


def life_to_live(
    generations: Sequence[GenerationRecord], completions: Sequence[CompletionRecord], is_used: bool, drawn: str
) -> str:
    """What a starting generation lives as. ``is_used``: something was staged, triggered or completed in the folder.

    A job without a mark keeps none while anything of it is left. If nothing is (an older version deleted its
    checkpoints), its ids start over, and so does its life.
    """
    found = life_of(generations, completions)
    if found is None or (found == UNMARKED and not is_used):
        return drawn
    return found
