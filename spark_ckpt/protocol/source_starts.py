"""Where sources begin at a Spark location, if not at the position that the restored checkpoint has under their uid.

``Topology.begins`` records it, source by source:

==============  ==================================================================================================
``asked``       what the user asked for by ``startingFrom``. Asked for again, it is done already, and does nothing
``checkpoint``  the checkpoint that the location began from (0: none). The entries below count for that one only
``source``      what that checkpoint calls the source, which has another uid now
``at``          the offset that the source begins at, as it was asked for; null until it is found
==============  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol.records import CompletionRecord, Topology

EARLIEST, LATEST, OPTIONS = "earliest", "latest", "none"
ASKED, AT, SOURCE, CHECKPOINT = "asked", "at", "source", "checkpoint"


@dataclass(frozen=True)
class Moved:
    """What was kept under the uid ``old`` is that of ``new``: an operator's state, or a source's position."""

    old: str
    new: str


def with_sources_moved(old: Topology, new: Topology, moves: Sequence[Moved], checkpoint: int) -> Topology:
    """``old``, the topology of ``checkpoint``, as if its sources always had the uids of ``new``, and with where each of
    them is to begin. Raises ``TopologyError`` for a move that does not fit."""
    then = _names(old, new, moves)
    now = {name: uid for uid, name in then.items()}
    begins = {uid: _begin(uid, then.get(uid, uid), old, new, checkpoint) for uid in {**then, **new.begins}}
    return replace(
        old,
        sources=tuple(then),
        reads={now[name]: what for name, what in old.reads.items() if name in now},
        derived_sources=tuple(now[name] for name in old.derived_sources if now.get(name) == name),
        operators={t: _behind(facts, now) for t, facts in old.operators.items()},
        begins={uid: facts for uid, facts in begins.items() if facts},
    )


def asked_anew(old: Topology, new: Topology) -> list[str]:
    """Sources that are to begin elsewhere, of which the job that wrote ``old`` knew nothing."""
    return [u for u, facts in new.begins.items() if facts[ASKED] != old.begins.get(u, {}).get(ASKED)]


def beginnings(old: Topology, new: Topology) -> dict[str, Mapping[str, Any]]:
    """What is recorded of a query ``new`` that goes on from ``old``, which was moved already. What is not asked for any
    more is forgotten, so that it may be asked for again."""
    told = {
        uid: {k: v for k, v in old.begins.get(uid, {}).items() if k != ASKED or uid in new.begins}
        for uid in new.sources
    }
    return {uid: facts for uid, facts in told.items() if facts}


def to_find(topology: Topology) -> dict[str, Any]:
    """What was asked for, of the sources whose offset is not known yet."""
    return {u: facts[ASKED] for u, facts in topology.begins.items() if AT in facts and facts[AT] is None}


def moved_sources(topology: Topology) -> dict[str, str]:
    """uid -> the uid that the source had in the restored checkpoint, where it is another one."""
    return {uid: facts[SOURCE] for uid, facts in topology.begins.items() if SOURCE in facts}


def found(topology: Topology, offsets: Mapping[str, Any]) -> Topology:
    """``topology`` with the ``offsets`` that :func:`to_find` asked for."""
    at = {uid: {**topology.begins[uid], AT: offset} for uid, offset in offsets.items()}
    return replace(topology, begins={**topology.begins, **at})


def begins_anew(topology: Topology) -> Topology:
    """Of a query that restores no checkpoint."""
    return replace(topology, begins={u: {**facts, CHECKPOINT: 0, AT: None} for u, facts in topology.begins.items()})


def starts_at(topology: Topology, uid: str, restored: CompletionRecord | None) -> Mapping[str, Any]:
    """Where source ``uid`` begins at a location that began from ``restored``: the JSON of a
    :class:`spark_ckpt.protocol.source_offset.SourcePosition`; empty if its options say."""
    told = topology.begins.get(uid, {})
    if told.get(CHECKPOINT) != (restored.checkpoint if restored else 0):
        told = {}
    if AT in told:
        return {"inner": told[AT]}
    return restored.sources.get(told.get(SOURCE, uid), {}) if restored else {}


def _names(old: Topology, new: Topology, moves: Sequence[Moved]) -> dict[str, str]:
    """uid -> what ``old`` calls that source."""
    then = {uid: uid for uid in old.sources}
    for step in moves:
        if step.old in then and moves_to(step, moves, then, new.sources):
            then[step.new] = then.pop(step.old)
    for step in moves:
        if step.old in old.sources and step.old in new.sources and step.old not in then:
            raise _taken(step)
    return then


def moves_to(step: Moved, moves: Sequence[Moved], there: Collection[str], query: Collection[str]) -> bool:
    """Whether what is ``there`` under the old uid gets the new one: that is one of the ``query``, or ``moves`` behind
    this one lead on to such a uid. Raises ``TopologyError`` where both are there and the query has the new one only."""
    end = step.new
    for later in moves[moves.index(step) + 1 :]:
        if end not in query and later.old == end:
            end = later.new
    if end == step.new and end in there and end in query and step.old not in query:
        raise _both_there(step)
    return end in query and end not in there and step.new not in there


def _taken(step: Moved) -> TopologyError:
    """What a source keeps beside its offsets is known by its uid, and another one's is not to be taken for it."""
    return TopologyError(
        f"moved({step.old!r}, {step.new!r}): expected no other source under {step.old!r}, found one in the query; give "
        'that a uid which the job has not had, by option("uid", ...)'
    )


def _both_there(step: Moved) -> TopologyError:
    """Of a move where the checkpoint has both, and the query the new one only."""
    return TopologyError(
        f"moved({step.old!r}, {step.new!r}): expected one of them in the checkpoint, found both. If {step.new!r} of "
        f"the checkpoint has another uid now, write its moved({step.new!r}, ...) first; else remove the line"
    )


def _begin(uid: str, name: str, old: Topology, new: Topology, checkpoint: int) -> dict[str, Any]:
    was, asked = old.begins.get(name, {}).get(ASKED), new.begins.get(uid, {}).get(ASKED)
    told = {ASKED: was} if was is not None else {}
    if asked is not None and asked != was:
        told = {ASKED: asked, CHECKPOINT: checkpoint, AT: None}
        return {**told, SOURCE: name} if uid != name else told
    return {**told, CHECKPOINT: checkpoint, SOURCE: name} if uid != name else told


def _behind(facts: Mapping[str, Any], now: Mapping[str, str]) -> Mapping[str, Any]:
    """An operator's facts, with the sources that its rows come from under their new names."""
    return {**facts, "derived": sorted(now.get(s, s) for s in facts["derived"])} if "derived" in facts else facts
