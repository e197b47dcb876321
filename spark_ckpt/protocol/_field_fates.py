"""What becomes of the parts of a state that goes on, for a restore plan: keys, columns, aggregates and variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_ckpt.protocol import codec
from spark_ckpt.protocol._differences import Facts, keys_of, parts_of, types_of
from spark_ckpt.protocol._state_types import sql_type
from spark_ckpt.protocol.evolution import StateChange, changes, families_of_changed, is_variable
from spark_ckpt.protocol.records import FAMILY_OF, Topology
from spark_ckpt.protocol.rewriting import PENDING

KEPT, NEW, DROPPED, LEFT, MOVED = "kept", "begins empty", "dropped", "left", "moved"
MIGRATED = "migrated"


@dataclass(frozen=True)
class Fate:
    """``part`` is source, operator, key, column, aggregate, variable or sink; ``becomes`` is kept, begins empty, moved
    (a source, to another position), migrated, dropped or left. ``tables``: the state tables of the checkpoint that
    change by it."""

    part: str
    name: str
    becomes: str
    detail: str
    tables: tuple[str, ...] = ()


codec.as_row(Fate, shortest=4)


def field_fates(recorded: Topology, old: Topology, new: Topology) -> Iterable[Fate]:
    """``recorded`` is the checkpoint's topology, and ``old`` what migrations make of it."""
    for table, now in new.operators.items():
        was = old.operators.get(table)
        if was is not None and PENDING not in was and from_table(table, was):
            yield from _columns(table, recorded.operators.get(from_table(table, was), was), was, now)
    for change in changes(old, new):
        yield from _changed(change, old.operators[change.uid], new.operators[change.uid])
    yield from _variables(old, new)


def from_table(table: str, was: Facts) -> str:
    """Which of the checkpoint's tables it goes on from; empty: none."""
    return str(was["from"]["table"]) if "from" in was else table


def _columns(table: str, then: Facts, was: Facts, now: Facts) -> Iterable[Fate]:
    """``then``: as it is recorded; ``was``: migrated."""
    before, here = _all(then), _all(now)
    in_files = {then.get("stored", {}).get(c, c): c for c in before}
    for column in (c for c in here if c in _all(was)):
        name = in_files.get(was.get("stored", {}).get(column, column), column)
        steps = [f"it was called {name!r}"] if name != column else []
        if before.get(name, here[column]) != here[column]:
            steps.append(f"{sql_type(before[name])} is read as {sql_type(here[column])}")
        computed = then.get("keyed_by", {}).get(column)
        if computed is not None and computed != now.get("keyed_by", {}).get(column, computed):
            steps.append(f"it was {computed}, and is now {now['keyed_by'][column]}")
        if steps:
            yield Fate(_kind(now, column), f"{table}: {column}", MIGRATED, "; ".join(steps), (from_table(table, was),))
    for column, value in was.get("starts", {}).items():
        if column in here and column not in then.get("starts", {}):
            told = f"it is {value!r} in the keys that are there"
            yield Fate("column", f"{table}: {column}", MIGRATED, told, (from_table(table, was),))


def _all(facts: Facts) -> Mapping[str, str]:
    return {**keys_of(facts), **types_of(facts)}


def _kind(facts: Facts, column: str) -> str:
    return "key" if column in keys_of(facts) else "aggregate" if column in facts.get("made_of", {}) else "column"


def _changed(change: StateChange, was: Facts, now: Facts) -> Iterable[Fate]:
    def kind(name: str, facts: Facts) -> str:
        return "aggregate" if any(p.name == name and p.function for p in parts_of(facts, types_of(facts))) else "column"

    for name in change.added:
        what = kind(name, now)
        begins = "counts what comes from now on" if what == "aggregate" else "null until its key is written"
        yield Fate(what, f"{change.uid}: {name}", NEW, begins)
    for name in change.removed:
        yield Fate(kind(name, was), f"{change.uid}: {name}", DROPPED, "no longer kept", (from_table(change.uid, was),))


def _variables(old: Topology, new: Topology) -> Iterable[Fate]:
    changed = sorted(t for t in families_of_changed(old, new) if is_variable(t, old, new))
    for table in changed:
        if table in new.operators:
            yield Fate("variable", table, NEW, "no checkpoint has it")
        else:
            yield Fate("variable", table, DROPPED, "no longer kept", (table,))
    for table, was in old.operators.items():
        name = from_table(table, was)
        if FAMILY_OF in was and table in new.operators and name != table:
            if name:
                yield Fate("variable", table, MIGRATED, f"it was called {name!r}", (name,))
            elif from_table(was[FAMILY_OF], old.operators[was[FAMILY_OF]]):
                yield Fate("variable", table, NEW, "as begin_empty() says; what it has is forgotten", (table,))
