"""State that a start writes anew, in one pass: by a function over the old rows, or for another ``maxParallelism``.

A step is done once in a line of checkpoints: ``rewritten`` of a state table's facts are the names of those that were.
A checkpoint whose tables are to be written anew becomes another one, of the same moment, with these tables
(:func:`rewritten`); the start restores that one, and all further comparisons see state that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol._differences import Facts, keys_of, types_of
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, TableRef, Topology

REWRITTEN = "rewritten"
PENDING = "pending"
"""Of a topology that migrations were applied to: a table that is to be written anew. Never recorded."""


@dataclass(frozen=True)
class Rewrite:
    """The rows of ``table`` are made by the function ``name``, of the rows of the tables ``of`` of the checkpoint;
    none: of its own."""

    table: str
    name: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rescale:
    """Where ``maxParallelism`` is another one, all state is written anew."""


@dataclass(frozen=True)
class Rewriting:
    """``table`` is to be written: of the rows of the checkpoint's tables ``of``, by the functions ``names``, one after
    the other; none: as they are."""

    table: str
    of: tuple[str, ...]
    names: tuple[str, ...] = ()


def mark_rewrite(step: Rewrite, tables: dict[str, Facts], new: Mapping[str, Facts], old: Mapping[str, Any]) -> None:
    """Put the mark to ``tables``, which are those of the checkpoint ``old`` under the names of the query ``new``."""
    was = tables.get(step.table)
    if step.table not in new or step.name in (was or {}).get(REWRITTEN, ()):
        return
    found = [t for t in step.of if t in old]
    if was is None and not found:
        return  # it begins empty
    if len(found) < len(step.of):
        missing = [t for t in step.of if t not in old]
        raise TopologyError(
            f"migrate({step.table!r}).by({step.name}): expected the tables {list(step.of)} in the checkpoint, missing "
            f"{missing}; it has {sorted(old)}"
        )
    pending = (was or {}).get(PENDING) or Rewriting(step.table, step.of or (_table_of(step.table, was or {}),))
    pending = replace(pending, names=(*pending.names, step.name))
    for consumed in (t for t in step.of if t not in new):
        tables.pop(consumed, None)
    tables[step.table] = _written(was or {}, new[step.table], pending)


def mark_rescale(tables: dict[str, Facts], new: Mapping[str, Facts]) -> None:
    for table, was in list(tables.items()):
        if table not in new:
            continue
        if PENDING in was:
            continue
        if (keys_of(was), types_of(was)) != (keys_of(new[table]), types_of(new[table])):
            raise TopologyError(
                f"rescale(): expected the columns of the state of {table!r} as in the checkpoint, {_shown(was)}, found "
                f"{_shown(new[table])}; change maxParallelism in one start, and the columns in another"
            )
        tables[table] = _written(was, new[table], Rewriting(table, (_table_of(table, was),)))


def _written(was: Facts, now: Facts, pending: Rewriting) -> Facts:
    """As the query has it, but for what does not stand in its rows."""
    kept = {name: was[name] for name in ("mode", "waited") if name in was}
    return {**now, **kept, REWRITTEN: list(_all(was.get(REWRITTEN, ()), pending.names)), PENDING: pending}


def _table_of(table: str, was: Facts) -> str:
    return str(was.get("from", {}).get("table") or table)


def _shown(facts: Facts) -> str:
    return ", ".join(f"{c} {t}" for c, t in {**keys_of(facts), **types_of(facts)}.items())


def _all(done: Sequence[str], more: Sequence[str]) -> dict[str, None]:
    return dict.fromkeys([*done, *more])


def with_rewrites(query: Topology, migrations: Iterable[Any]) -> Topology:
    """The topology of a query beside which these stand: whatever its state begins from, they are done then."""
    names: dict[str, list[str]] = {}
    for step in migrations:
        if isinstance(step, Rewrite) and step.table in query.operators:
            names.setdefault(step.table, []).append(step.name)
    told = {t: {**query.operators[t], REWRITTEN: of} for t, of in names.items()}
    return replace(query, operators={**query.operators, **told})


def rewrites_done(was: Facts, now: Facts) -> Facts:
    """Of a table that goes on."""
    names = list(_all(was.get(REWRITTEN, ()), now.get(REWRITTEN, ())))
    return {REWRITTEN: names} if names else {}


def check_whole(tables: Mapping[str, Facts], new: Mapping[str, Facts]) -> None:
    """Raises ``TopologyError`` where an operator has another uid, and only some of its tables are written under it."""
    for table, facts in ((t, f) for t, f in tables.items() if t in new):
        owner = tables.get(str(facts.get(FAMILY_OF)), {})
        if PENDING in owner and PENDING not in facts and "from" in facts:
            raise TopologyError(
                f"migrate({facts[FAMILY_OF]!r}).by(...): expected all tables of an operator that has another uid to be "
                f"written, found none for {table!r}; write `ckpt.migrate({table!r}).by(...)`, too"
            )


def by_names(names: Sequence[str]) -> str:
    return f" by {', '.join(names)}" if names else ""


def rewritings(migrated: Topology) -> tuple[Rewriting, ...]:
    """What is to be written anew of a checkpoint whose topology ``migrated`` is."""
    return tuple(facts[PENDING] for facts in migrated.operators.values() if PENDING in facts)


def rewritten(at: CompletionRecord, migrated: Topology, written: Mapping[str, TableRef]) -> CompletionRecord:
    """``at`` with the tables ``written`` in place of those that they were made of."""
    used = {t for facts in migrated.operators.values() if PENDING in facts for t in facts[PENDING].of}
    used |= {t for t, facts in at.topology.operators.items() if facts.get(FAMILY_OF) in used}
    kept = {t for t in at.tables if t not in written and (t not in used or t in migrated.operators)}
    if migrated.key_groups != at.topology.key_groups:
        kept = set()  # the query has none of them
    facts = {t: {k: v for k, v in migrated.operators[t].items() if k != PENDING} for t in written}
    operators = {**{t: at.topology.operators[t] for t in kept}, **facts}
    topology = replace(at.topology, key_groups=migrated.key_groups, operators=operators)
    return replace(at, topology=topology, tables={**{t: at.tables[t] for t in kept}, **written})
