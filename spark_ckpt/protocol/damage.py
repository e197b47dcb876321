"""What a start may pass over when records are damaged or missing, and what it needs. Pure.

A record that is gone must never look like something that never was: that would lose rows, or write them twice. What
cannot be told from the records that are left is refused, with the way to start that is left. There always is one:
restoring another checkpoint, or beginning from nothing, at an empty Spark location.

``checkpoints/K`` is what a restore without doubled rows needs, so whoever creates it writes a copy before that,
``copies/K-g``, and a start puts a lost one back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_ckpt.protocol.records import BatchRecord, CompletionRecord, GenerationRecord, VoidRecord
from spark_ckpt.protocol.topology import Refuse


@dataclass(frozen=True)
class Damage:
    """What could not be read. ``checkpoints`` maps the id of a damaged or missing ``checkpoints/K`` to the generation
    that triggered K (None: nobody did; it was imported, or void). ``states`` are completions whose manifests cannot be
    read, ``batches`` (origin, batch, generation). ``copies`` are those of the lost ``checkpoints/K``, None for one that
    cannot be read."""

    generations: tuple[int, ...] = ()
    checkpoints: Mapping[int, int | None] = field(default_factory=dict)
    states: tuple[int, ...] = ()
    batches: tuple[tuple[int, int, int], ...] = ()
    copies: Mapping[int, tuple[CompletionRecord | VoidRecord | None, ...]] = field(default_factory=dict)


def to_put_back(damage: Damage) -> tuple[CompletionRecord | VoidRecord, ...]:
    """The lost ``checkpoints/K`` of which it is known what they said.

    A copy is written before its record and removed before it. So where there is one copy only, nobody else came to
    creating K; of several, one lost to another, and which cannot be told.
    """
    only = {k: c[0] for k, c in damage.copies.items() if len(c) == 1 and k in damage.checkpoints}
    return tuple(record for k, record in sorted(only.items()) if record is not None and record.checkpoint == k)


def way_out(damage: Damage, completions: Sequence[CompletionRecord], at_location: bool) -> str:
    """What to set, for a message. Followed literally, it works."""
    where = " and a new, empty checkpointLocation" if at_location else ""
    good = sorted(c.checkpoint for c in completions if c.checkpoint not in damage.states)
    if good:
        return (
            f"put back a good copy, or set spark.ckpt.restore={good[-1]}{where}; what later checkpoints committed is "
            f"then written once more (to sinks that append: twice)"
        )
    return (
        f"put back a good copy, or set spark.ckpt.restore to a savepoint's folder, or to none, to begin from nothing"
        f"{where}; what the sinks have is then written once more (to sinks that append: twice)"
    )


def refuse_to_go_on(
    damage: Damage,
    completions: Sequence[CompletionRecord],
    batches: Sequence[BatchRecord],
    here: Sequence[GenerationRecord],
    committed: int,
) -> Refuse | None:
    """Whether what is lost is needed to go on at the Spark location whose generations are ``here``.

    ``committed`` is the location's newest committed batch, -1 if there is none.
    """
    origin = here[0].origin
    own = [c for c in completions if c.origin == origin]
    newest = max(own, key=lambda c: c.checkpoint, default=None)
    lost = (
        _lost_generation(damage, completions, batches, here)
        or _lost_checkpoint(damage, newest, here[0])
        or _lost_state(damage, newest, here[0])
        or _lost_batch(damage, batches, newest, origin, committed)
    )
    return Refuse(f"{lost}; {way_out(damage, completions, True)}", damaged=True) if lost else None


def refuse_to_restore(
    damage: Damage, completions: Sequence[CompletionRecord], chosen: CompletionRecord | None, line: int
) -> Refuse | None:
    """Whether the newest checkpoint of the line of origin ``line`` may be one that is lost, and not ``chosen``."""
    after = chosen.checkpoint if chosen else 0
    lost = sorted(k for k, by in damage.checkpoints.items() if k > after and by is not None and by >= line)
    if lost:
        return Refuse(
            f"expected the record checkpoints/{lost[-1]}, which is newer than what could be restored, found it damaged "
            f"or missing; {way_out(damage, completions, False)}",
            damaged=True,
        )
    return refuse_state(damage, completions, chosen)


def refuse_state(
    damage: Damage, completions: Sequence[CompletionRecord], chosen: CompletionRecord | None
) -> Refuse | None:
    if chosen is None or chosen.checkpoint not in damage.states:
        return None
    return Refuse(
        f"checkpoint {chosen.checkpoint} cannot be restored: expected its manifests, found one damaged or missing (see "
        f"'spark-ckpt verify'); {way_out(damage, completions, False)}",
        damaged=True,
    )


def active_origins(
    damage: Damage, batches: Sequence[BatchRecord], completions: Sequence[CompletionRecord]
) -> list[int]:
    """Origins that did something, newest first; imported checkpoints have none."""
    found = {b.origin for b in batches} | {c.origin for c in completions} | {o for o, _, _ in damage.batches}
    return sorted((o for o in found if o > 0), reverse=True)


def _lost_generation(
    damage: Damage,
    completions: Sequence[CompletionRecord],
    batches: Sequence[BatchRecord],
    here: Sequence[GenerationRecord],
) -> str | None:
    """A newer generation may have taken the job elsewhere, and given up what is staged here, unless it left a trace."""
    origin, latest = here[0].origin, max(g.generation for g in here)
    traces = {c.generation for c in completions if c.origin == origin}
    traces |= {b.generation for b in batches if b.origin == origin}
    traces |= {g for o, _, g in damage.batches if o == origin}
    lost = [g for g in damage.generations if g > latest and g not in traces]
    if not lost:
        return None
    return (
        f"expected the record generations/{max(lost)}, which tells whether the job went on elsewhere, found it damaged"
    )


def _lost_checkpoint(damage: Damage, newest: CompletionRecord | None, here: GenerationRecord) -> str | None:
    """A lost checkpoint of this origin that is newer than those known: what is open builds on it."""
    after = newest.checkpoint if newest else 0
    lost = [k for k, by in damage.checkpoints.items() if k > after and by is not None and by >= here.origin]
    if newest is None and here.restored_from in damage.checkpoints:
        lost.append(here.restored_from or 0)
    if not lost:
        return None
    return f"expected the record checkpoints/{max(lost)}, from which this job goes on, found it damaged or missing"


def _lost_state(damage: Damage, newest: CompletionRecord | None, here: GenerationRecord) -> str | None:
    base = newest.checkpoint if newest else here.restored_from
    if base not in damage.states:
        return None
    return (
        f"expected the manifests of checkpoint {base}, from which this job goes on, found one damaged or missing (see "
        f"'spark-ckpt verify')"
    )


def _lost_batch(
    damage: Damage, batches: Sequence[BatchRecord], newest: CompletionRecord | None, origin: int, committed: int
) -> str | None:
    """Batches that Spark does not repeat, and whose rows no completed checkpoint has."""
    have: dict[int, int] = {}
    for b in batches:
        if b.origin == origin:
            have[b.batch] = max(have.get(b.batch, 0), b.generation)
    replaced = {b for o, b, g in damage.batches if o == origin and g > have.get(b, 0)}
    needed = range(newest.batches_from if newest else 0, committed + 1)
    lost = [b for b in needed if b not in have or b in replaced]
    if not lost:
        return None
    return (
        f"expected the record batches/{origin:010d}-{lost[0]:010d}-*, which names what that batch staged, found it "
        f"damaged or missing"
    )
