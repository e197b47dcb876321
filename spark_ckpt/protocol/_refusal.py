"""What follows when a sink's target does not take rows of a checkpoint: the epoch is given up, and read again. Pure.

The rows of the epoch's earlier batches are recorded, and Spark never repeats those batches: at the same Spark location
another filter would change nothing. So the next start leaves the origin that was refused, as if its location were
empty, and goes on from where that origin stood: its newest checkpoint, or what it began from. The location is emptied
behind the decision, which names the origin in ``gave_up``; a start that finds this undone does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_ckpt.protocol._start_decision import AUTO, StartFacts
from spark_ckpt.protocol.life import newest_decided
from spark_ckpt.protocol.records import AbortedRecord, CompletionRecord, GenerationRecord
from spark_ckpt.protocol.topology import Refuse


@dataclass(frozen=True)
class Left:
    """``origin`` is given up; the job goes on from ``begin``, or from its beginning."""

    origin: int
    begin: CompletionRecord | None


def told(job: str, checkpoint: int, reason: str, last: int) -> str:
    """What whoever started the query reads."""
    where = f"from checkpoint {last}" if last else "from the beginning"
    return (
        f"job {job!r}: checkpoint {checkpoint} cannot be committed, {reason}. Nothing of it is visible in any sink. "
        f"Filter or change these rows in the query, or alter the target, and start the query again at the same "
        f"checkpointLocation: it reads again {where}"
    )


def leaves(facts: StartFacts) -> Left | None:
    """What this start gives up at its location; None: nothing was refused there, or that is done."""
    begun = _begun(facts)
    if begun is not None:
        return Left(begun.gave_up or 0, _of(facts, begun.restored_from))
    origin = facts.location.origin
    if facts.location.planned is None or origin is None or _refused_in(facts, origin) is None:
        return None
    first = min((g for g in facts.generations if g.origin == origin), key=lambda g: g.generation)
    newest = _newest(facts.completions, origin)
    return Left(origin, newest or _of(facts, first.restored_from))


def keeps_from_leaving(facts: StartFacts, left: Left) -> Refuse | None:
    """Why this start cannot do it."""
    begin = left.begin.checkpoint if left.begin else None
    goes_on = "from the beginning" if begin is None else f"from checkpoint {begin}"
    if facts.location.planned is not None and not facts.may_empty:
        found = _refused_in(facts, left.origin)
        return Refuse(
            f"a sink refused rows that batches at the Spark checkpoint location {facts.location.path} have staged"
            f"{f' ({found.reason})' if found else ''}; expected another, empty checkpointLocation, where the job goes "
            f"on {goes_on}"
        )
    if facts.location.planned is None and facts.restore not in (AUTO, begin):
        return Refuse(
            f"the start before this one emptied the Spark checkpoint location {facts.location.path}, to go on "
            f"{goes_on} without rows that a sink refused: expected spark.ckpt.restore=auto, found {facts.restore!r}; "
            f"set auto, or name another, empty checkpointLocation"
        )
    return None


def as_empty(facts: StartFacts) -> StartFacts:
    return replace(facts, location=replace(facts.location, planned=None, committed=None))


def _begun(facts: StartFacts) -> GenerationRecord | None:
    """A start at this location that decided to give up an origin, and planned nothing since."""
    last = newest_decided(facts.generations)
    if last is None or last.gave_up is None or last.origin != last.generation:
        return None
    if last.spark_location != facts.location.path or facts.location.origin not in (None, last.gave_up):
        return None
    active = {b.origin for b in facts.batches} | {c.origin for c in facts.completions}
    return None if last.origin in active else last


def _refused_in(facts: StartFacts, origin: int) -> AbortedRecord | None:
    """The refusal behind the newest checkpoint of ``origin``."""
    own = {g.generation for g in facts.generations if g.origin == origin}
    newest = _newest(facts.completions, origin)
    after = newest.checkpoint if newest else 0
    found = (a for a in facts.refused if a.generation in own and a.checkpoint > after)
    return max(found, key=lambda a: a.checkpoint, default=None)


def _newest(completions: Iterable[CompletionRecord], origin: int) -> CompletionRecord | None:
    return max((c for c in completions if c.origin == origin), key=lambda c: c.checkpoint, default=None)


def _of(facts: StartFacts, checkpoint: int | None) -> CompletionRecord | None:
    return next((c for c in facts.completions if c.checkpoint == checkpoint), None)
