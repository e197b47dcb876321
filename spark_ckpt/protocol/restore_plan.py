"""What becomes of each part of a job in the query that goes on with it: a list for a person to read, and to approve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt import shown
from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol import codec
from spark_ckpt.protocol._field_fates import DROPPED, KEPT, LEFT, MIGRATED, MOVED, NEW, Fate, field_fates, from_table
from spark_ckpt.protocol._start_decision import Decision, GoOn, RestoreFrom, StartFacts
from spark_ckpt.protocol.migration import migrated
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, Topology
from spark_ckpt.protocol.rewriting import PENDING, Rewriting, by_names
from spark_ckpt.protocol.source_starts import ASKED, AT, EARLIEST, LATEST, OPTIONS, SOURCE
from spark_ckpt.protocol.topology import Refuse

_LONGEST = 160


@dataclass(frozen=True)
class RestorePlan:
    """``goes_on``: where the job goes on, in a sentence. ``refused``: why it does not; empty if it does.

    ``checkpoint``: the one that it is compared with. ``samples``: rows of its state tables that change, where that was
    asked for; they are recorded nowhere.
    """

    goes_on: str
    fates: tuple[Fate, ...]
    refused: str = ""
    checkpoint: int | None = codec.optional()
    samples: Mapping[str, tuple[str, ...]] = codec.optional(factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = codec.write(self)
        return plain

    @classmethod
    def from_json(cls, value: Any, where: str = "restore plan") -> RestorePlan:
        return codec.read(cls, value, where)

    @property
    def loses(self) -> tuple[Fate, ...]:
        """What the job had, and is no more."""
        return tuple(fate for fate in self.fates if fate.becomes == DROPPED)

    def __str__(self) -> str:
        """A table, with what is lost marked by an exclamation mark."""
        width = max((len(f"{f.part} {f.name}") for f in self.fates), default=0)
        lines = [
            f"{'!' if f.becomes == DROPPED else ' '} {f'{f.part} {f.name}':{width}}  {f.becomes}: {f.detail}"
            for f in self.fates
        ]
        rows = [f"  {table}, as it is: {row}" for table, found in self.samples.items() for row in found]
        return "\n".join([self.goes_on, *lines, *rows, *([f"Refused: {self.refused}"] if self.refused else [])])

    def _repr_html_(self) -> str | None:
        return shown.html("plan", self)

    @property
    def changes(self) -> tuple[str, ...]:
        """The state tables of the checkpoint of which something is migrated or lost."""
        return tuple(dict.fromkeys(table for fate in self.fates for table in fate.tables))


def plan_of(facts: StartFacts, decision: Decision) -> RestorePlan:
    """What a start that decided so makes of the job's parts."""
    new = facts.topology
    if isinstance(decision, Refuse):
        stands = max(facts.completions, key=lambda c: c.checkpoint, default=None)
        fates = _fates(stands, _migrated(facts, stands), new) if stands else ()
        return RestorePlan("The job does not start.", fates, decision.reason, _id(stands))
    if isinstance(decision, GoOn):
        was = decision.was or new
        at = f"behind checkpoint {decision.newest.checkpoint}" if decision.newest else "before its first checkpoint"
        fates = _fates(decision.newest, was, new)
        return RestorePlan(f"The job goes on where it stands, {at}.", fates, checkpoint=_id(decision.newest))
    if isinstance(decision, RestoreFrom):
        k, where = decision.checkpoint.checkpoint, " at a Spark location of its own" if decision.changed else ""
        said = f"The job goes on from its checkpoint {k}{where}; what was read since is read again."
        return RestorePlan(said, _fates(decision.checkpoint, _migrated(facts, decision.checkpoint), new), checkpoint=k)
    return RestorePlan("The job begins anew.", _fates(None, Topology(new.key_groups, 0, (), {}, ()), new))


def _id(at: CompletionRecord | None) -> int | None:
    return None if at is None else at.checkpoint


def _migrated(facts: StartFacts, at: CompletionRecord) -> Topology:
    try:
        return migrated(at.topology, facts.topology, facts.migrations, at.checkpoint)
    except TopologyError:  # it is what refuses the start
        return at.topology


def _fates(at: CompletionRecord | None, old: Topology, new: Topology) -> tuple[Fate, ...]:
    fields = field_fates(at.topology, old, new) if at else ()
    return (*_sources(at, old, new), *_operators(at, old, new), *fields, *_sinks(old, new))


def _sources(at: CompletionRecord | None, old: Topology, new: Topology) -> Iterable[Fate]:
    for uid in new.sources:
        told = old.begins.get(uid, {})
        if uid in old.sources and AT in told:
            stood = _position(at, told.get(SOURCE, uid))
            yield Fate("source", uid, MOVED, f"goes on {_asked(told[ASKED])}; the checkpoint has it behind {stood}")
        elif uid in old.sources:
            name = told.get(SOURCE, uid)
            was = f", where {name!r} stood" if name != uid else ""
            yield Fate("source", uid, KEPT, f"goes on behind {_position(at, name)}{was}{_reads_else(uid, old, new)}")
        elif uid in new.begins:
            yield Fate("source", uid, NEW, f"begins {_asked(new.begins[uid][ASKED])}")
        else:
            yield Fate("source", uid, NEW, "begins where its options say")
    for uid in (u for u in old.sources if u not in new.sources):
        yield Fate("source", uid, DROPPED, f"stood at {_position(at, uid)}; that it was ever read is forgotten")


def _asked(asked: Any) -> str:
    """What ``startingFrom`` makes of a source."""
    if asked == EARLIEST:
        return "from the earliest that there is: what was read since is read again"
    if asked == LATEST:
        return "behind what is there at the start: what was not read yet is skipped"
    if asked == OPTIONS:
        return "where its options say, as a new source does: rows in between are read again, or skipped"
    return f"behind {_short(json.dumps(asked))}, as startingFrom says: rows in between are read again, or skipped"


def _reads_else(uid: str, old: Topology, new: Topology) -> str:
    was, reads = old.reads.get(uid), new.reads.get(uid)
    return f"; it read {was}, and reads {reads} now" if was is not None and reads is not None and was != reads else ""


def _position(at: CompletionRecord | None, uid: str) -> str:
    return _short(json.dumps(at.sources.get(uid, {}).get("inner"))) if at else "its beginning"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _operators(at: CompletionRecord | None, old: Topology, new: Topology) -> Iterable[Fate]:
    for uid in (u for u, facts in new.operators.items() if FAMILY_OF not in facts):
        if PENDING in old.operators.get(uid, {}):
            yield _written_anew(at, uid, old.operators[uid][PENDING])
        elif uid in old.operators:
            yield _goes_on(at, uid, from_table(uid, old.operators[uid]))
        else:
            yield Fate("operator", uid, NEW, "no checkpoint has a state of this uid")
    gone = (u for u, facts in old.operators.items() if u not in new.operators and FAMILY_OF not in facts)
    for uid in gone:
        yield Fate("operator", uid, DROPPED, f"{_keys(at, uid)} are forgotten", (uid,))


def _goes_on(at: CompletionRecord | None, uid: str, table: str) -> Fate:
    if not table:
        return Fate("operator", uid, NEW, f"as begin_empty() says; {_keys(at, uid)} are forgotten", (uid,))
    was = f", which were of {table!r}" if table != uid else ""
    return Fate("operator", uid, KEPT, f"goes on with {_keys(at, table)}{was}")


def _written_anew(at: CompletionRecord | None, uid: str, step: Rewriting) -> Fate:
    keys = ", ".join(f"{_keys(at, table)} of {table!r}" for table in step.of)
    told = f"written anew{by_names(step.names)}, in one pass at the start, from {keys}"
    return Fate("operator", uid, MIGRATED, told, tuple(step.of))


def _keys(at: CompletionRecord | None, uid: str) -> str:
    found = at.stats.get(uid, {}).get("keys") if at else None
    return "its keys" if found is None else f"{found:,} keys"


def _sinks(old: Topology, new: Topology) -> Iterable[Fate]:
    for uid in new.sinks:
        become, detail = (KEPT, "goes on") if uid in old.sinks else (NEW, "gets the rows that come from now on")
        yield Fate("sink", uid, become, detail)
    yield from (Fate("sink", u, LEFT, "its rows stay, and no more come") for u in old.sinks if u not in new.sinks)


__all__ = ["DROPPED", "KEPT", "LEFT", "MIGRATED", "MOVED", "NEW", "Fate", "RestorePlan", "plan_of"]
