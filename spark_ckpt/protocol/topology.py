"""Whether a query fits a checkpoint, or the Spark location it ran at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, TopologyError
from spark_ckpt.protocol._differences import Difference, differences, keys_of, types_of
from spark_ckpt.protocol._state_types import matched
from spark_ckpt.protocol.evolution import families_of_changed, family_questions, is_variable
from spark_ckpt.protocol.migration import Migration, migrated
from spark_ckpt.protocol.records import FAMILY_OF, Topology
from spark_ckpt.protocol.rewriting import by_names, rewritings
from spark_ckpt.protocol.source_starts import asked_anew

_MOVE = "stop with a savepoint, or restore the newest checkpoint by starting at an empty location"


@dataclass(frozen=True)
class Refuse:
    """Raise :meth:`error`; nothing was changed. ``topology``: the query is at fault; ``damaged``: the job's files."""

    reason: str
    topology: bool = False
    damaged: bool = False

    def error(self) -> CkptError:
        kind = CorruptStorageError if self.damaged else TopologyError if self.topology else ConfigError
        return kind(self.reason)


@dataclass(frozen=True)
class Fit:
    """``uncompared``: operators whose state the checkpoint does not say the origin of; see :func:`uncompared`."""

    fresh_uids: tuple[str, ...] = field(default=())
    dropped_uids: tuple[str, ...] = field(default=())
    uncompared: tuple[str, ...] = field(default=())


def fit_topology(
    old: Topology, new: Topology, allow_non_restored: bool, migrations: Sequence[Migration] = (), checkpoint: int = 0
) -> Fit | Refuse:
    """Whether a query of topology ``new`` can restore ``checkpoint``, of topology ``old``, with these migrations."""
    try:
        old = migrated(old, new, migrations, checkpoint)
    except TopologyError as error:
        return Refuse(str(error), True)
    if old.key_groups != new.key_groups:
        return Refuse(
            f"maxParallelism changed: expected {old.key_groups} as in the checkpoint, found {new.key_groups}; "
            f"{_keep_key_groups(old)}",
            True,
        )
    moved = _derived_moved(old, new)
    if moved is not None:
        return moved
    differs = _state_differs(old, new)
    if differs is not None:
        return differs
    dropped = tuple(u for u in (*old.operators, *old.sources) if u not in new.operators and u not in new.sources)
    loose = families_of_changed(old, new)
    missing = [u for u in dropped if u not in loose or is_variable(u, old, new)]
    if missing and not allow_non_restored:
        return Refuse(
            f"the checkpoint holds state of {missing}: expected these uids in the query, found "
            f"{[*new.operators, *new.sources]}; add them, or set spark.ckpt.allowNonRestoredState to drop their state"
            f"{_were_derived(old, missing)}{_read_by_others(old, new, missing)}"
            f"{_called_otherwise(old, new, missing)}",
            True,
        )
    fresh = tuple(u for u in (*new.operators, *new.sources) if _begins_empty(u, old))
    return Fit(fresh, dropped, uncompared(old, new))


def _derived_moved(old: Topology, new: Topology) -> Refuse | None:
    """A derived uid is a place in the query. If sources or operators came, went or moved, the one at a place may be
    another."""
    swapped = _source_differs(old, new) or _derived_swapped(old, new)
    if swapped is not None:
        return swapped
    now = _derived(new)
    then = {uid: sources for uid, sources in _derived(old).items() if uid in now or uid not in new.operators}
    if not then or not now or then == now:
        return None
    return Refuse(
        f"the uids derived from keyed operators' kinds and places in the query changed: expected {_places(then)}, "
        f"found {_places(now)}, so which state is whose is not known; give each operator whose state is to go on the "
        f"uid that it had, such as uid({next(iter(then))!r}), or another one and say which it had: "
        f"ckpt.moved({next(iter(then))!r}, ...)",
        True,
    )


def _source_differs(old: Topology, new: Topology) -> Refuse | None:
    for uid, was in old.reads.items():
        reads = new.reads.get(uid, was)
        if reads.split()[0] != was.split()[0]:
            return Refuse(
                f"the source {uid!r} read {was}, and reads {reads} now: offsets of one kind mean nothing to another; "
                "give the new source a uid of its own",
                True,
            )
        if reads != was and uid in old.derived_sources and uid in new.derived_sources:
            return Refuse(
                f"the source uid {uid!r} was derived from the source's place in the query, which read {was}, and reads "
                f'{reads} now: which source goes on from its offsets is not known; give that one option("uid", '
                f"{uid!r}), or another uid and write `ckpt.moved({uid!r}, <that uid>)`, and each other source a uid of "
                "its own",
                True,
            )
    return None


def _derived_swapped(old: Topology, new: Topology) -> Refuse | None:
    """The operator of a derived uid stands where another one stood: they changed places."""
    then, now = ({u: o["stands_in"] for u, o in t.operators.items() if "stands_in" in o} for t in (old, new))
    at = {mark: uid for uid, mark in then.items()}
    for uid, mark in now.items():
        was = at.get(mark, uid)
        if was != uid and then.get(uid, mark) != mark:
            return Refuse(
                f"the operator whose uid {uid!r} is derived from its place in the query is the one that was {was!r}: "
                f"they changed places; give it uid({was!r}), and each other operator the uid that it had",
                True,
            )
    return None


def _derived(topology: Topology) -> dict[str, list[str]]:
    """The derived uids, and the sources whose rows reach their operators."""
    return {uid: facts["derived"] for uid, facts in topology.operators.items() if "derived" in facts}


def _places(derived: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{uid!r} behind {' and '.join(sources)}" for uid, sources in derived.items())


def _were_derived(old: Topology, gone: Iterable[str]) -> str:
    derived = [uid for uid in gone if uid in _derived(old)]
    if not derived:
        return ""
    return (
        f"; {derived} were derived from operators' kinds and places in the query: an operator that is still there gets "
        f"its state back with uid({derived[0]!r})"
    )


def _called_otherwise(old: Topology, new: Topology, gone: Sequence[str]) -> str:
    """Where an operator of the query could go on from the state of one that is missing."""

    def fits(one: str, other: str) -> bool:
        return not differences(other, old.operators[one], new.operators[other])

    own = [uid for uid in gone if uid in old.operators and FAMILY_OF not in old.operators[uid]]
    came = [uid for uid, now in new.operators.items() if uid not in old.operators and FAMILY_OF not in now]
    return "".join(
        f"; if {other!r} is {one!r} under another uid, write `ckpt.moved({one!r}, {other!r})`"
        for one, other in matched(own, came, fits)
    )


def _read_by_others(old: Topology, new: Topology, gone: Iterable[str]) -> str:
    """Where a source of the query reads what one that is missing read: most likely it is that one."""
    found = [(was, now) for was in gone for now in new.reads if old.reads.get(was) == new.reads[now]]
    return "".join(
        f'; what reads {old.reads[was]} goes on with option("uid", {was!r}), or with `ckpt.moved({was!r}, {now!r})`'
        for was, now in found
    )


def _keep_key_groups(old: Topology) -> str:
    return (
        f"set spark.ckpt.maxParallelism={old.key_groups}, or write `ckpt.rescale()` beside the query: all state is "
        "then read and written once, at the start"
    )


def uncompared(old: Topology, new: Topology) -> tuple[str, ...]:
    """Operators of both whose state was written by a version that did not record what it is made of."""
    return tuple(uid for uid in new.operators if uid in old.operators and "made_of" not in old.operators[uid])


def _begins_empty(uid: str, old: Topology) -> bool:
    """Also what a migration lets begin empty."""
    told = old.operators.get(uid, {}).get("from")
    return uid not in old.sources and (uid not in old.operators or (told is not None and not told["table"]))


def _state_differs(old: Topology, new: Topology) -> Refuse | None:
    """All that keeps state from going on, and what to write."""
    found: dict[str, list[Difference]] = {}
    for table, now in new.operators.items():
        if table in old.operators:
            uid = now.get(FAMILY_OF, table)
            of = found.setdefault(uid, [])
            said = {d.lines for d in of if d.lines}  # what is said of an operator counts for its other tables
            own = [d for d in differences(table, old.operators[table], now) if _lines_of(uid, table, d) not in said]
            of += [_of_operator(d, table, now, new) for d in own]
    for asked in family_questions(old, new):
        found.setdefault(str(new.operators[asked.table][FAMILY_OF]), []).append(asked)
    texts = [f"operator {uid!r}: {'; '.join(dict.fromkeys(map(_told, of)))}" for uid, of in found.items() if of]
    return Refuse("; ".join(texts), True) if texts else None


def _told(difference: Difference) -> str:
    lines = " or ".join(f"`{line}`" for line in difference.lines)
    return f"{difference.text}; {f'write {lines} beside the query, or ' if lines else ''}change it back"


def _of_operator(difference: Difference, table: str, now: Mapping[str, object], new: Topology) -> Difference:
    """What is to be written of two families that keep the same columns is said of their operator."""
    uid = now.get(FAMILY_OF)
    alike = [t for t, f in new.operators.items() if f.get(FAMILY_OF) == uid and f.get("types") == now.get("types")]
    if uid is None:
        return difference
    if len(alike) == 1:
        return replace(difference, text=f"{table!r}: {difference.text}")
    return replace(difference, lines=_lines_of(uid, table, difference))


def _lines_of(uid: object, table: str, difference: Difference) -> tuple[str, ...]:
    """The lines as they are written of the operator ``uid``."""
    return tuple(line.replace(repr(table), repr(uid)) for line in difference.lines)


def same_topology(old: Topology, new: Topology, migrations: Sequence[Migration] = ()) -> Refuse | None:
    """Whether Spark's own location can be gone on with: its offset log has a line for each source, in the order of the
    plan, and its state store numbers the operators. Nor can a migration do anything there."""
    moved = _derived_moved(old, new)
    if moved is not None:
        return moved
    told = _migrated_or_refused(old, new, migrations)
    if isinstance(told, Refuse):
        return told
    written = [f"{r.table!r}{by_names(r.names)}" for r in rewritings(told)]
    if written:
        return Refuse(f"the state of {', '.join(written)} is to be written anew; {_MOVE}", True)
    anew = asked_anew(old, new)
    if anew:
        return Refuse(
            f"the sources {anew} are to begin where startingFrom says; set checkpointLocation to a new, empty folder",
            True,
        )
    loose = {table for table in families_of_changed(old, new) if not is_variable(table, old, new)}
    for name, a, b, advice in (
        ("sources", list(old.sources), list(new.sources), _MOVE),
        ("operators (uids)", sorted(set(old.operators) - loose), sorted(set(new.operators) - loose), _MOVE),
        ("the order of operators in Spark's plan", list(old.in_plan or new.in_plan), list(new.in_plan), _MOVE),
        ("sinks", sorted(old.sinks), sorted(new.sinks), _MOVE),
        ("maxParallelism", old.key_groups, new.key_groups, _keep_key_groups(old)),
        ("streams at the sink", old.weight_total, new.weight_total, _MOVE),
    ):
        if a != b:
            return Refuse(f"the query at this location changed: expected {name} {a}, found {b}; {advice}", True)
    differs = _state_differs(migrated(old, new, ()), new)
    if differs is not None:
        return Refuse(f"{differs.reason}; and start at an empty Spark location", True)
    return _other_rows(old, new, told.operators)


def _migrated_or_refused(old: Topology, new: Topology, migrations: Sequence[Migration]) -> Topology | Refuse:
    try:
        return migrated(old, new, migrations)
    except TopologyError as error:
        return Refuse(str(error), True)


def _other_rows(old: Topology, new: Topology, told: Mapping[str, Mapping[str, Any]]) -> Refuse | None:
    """Spark's own state at a location has rows of the state as it was: an operator's own aggregates may come and go
    there, and all else begins at a location of its own. ``told``: the migrated ones."""
    for table, now in new.operators.items():
        was = old.operators.get(table)
        if was is None or "made_of" not in was:
            continue
        same = told.get(table) == {k: v for k, v in was.items() if k != "from"}  # no migration has anything to do
        if not same or not (_columns(was) == _columns(now) or _aggregates_only(was, now)):
            then, here = (f"{keys} with {types}" for keys, types in map(_columns, (was, now)))
            return Refuse(
                f"the columns of the state of {table!r} changed: expected {then}, found {here}; {_MOVE}", True
            )
    return None


def _columns(facts: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    return keys_of(facts), types_of(facts)


def _aggregates_only(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether columns only came or went, and are of aggregates."""
    if FAMILY_OF in now or keys_of(was) != keys_of(now):
        return False
    then, here = types_of(was), types_of(now)
    other = {c for c, _ in then.items() ^ here.items()}
    return other.isdisjoint(then.keys() & here.keys()) and other <= was["made_of"].keys() | now["made_of"].keys()
