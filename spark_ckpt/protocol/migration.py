"""What users say of state that changes, as values: another name, another type, a constant, a beginning, another uid.

Migrations are applied to the topology of the checkpoint that is restored, ahead of every comparison, and recorded
nowhere but in what they make of the query's topology (:func:`spark_ckpt.protocol.evolution.carried_over`). They stand
beside the query and stay there: one whose old name is gone, and whose new name is there, was done and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol._differences import (
    SETTLED,
    Facts,
    Part,
    changed_parts,
    differences,
    keys_of,
    mistyped,
    settled_in,
    types_of,
)
from spark_ckpt.protocol._state_types import castable, is_type, sql_type
from spark_ckpt.protocol._table_facts import keyed_by, part_called, same_parts, settled, text_of, with_names, without
from spark_ckpt.protocol.evolution import RECAST
from spark_ckpt.protocol.records import FAMILY_OF, CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.rewriting import Rescale, Rewrite, check_whole, mark_rescale, mark_rewrite
from spark_ckpt.protocol.source_starts import Moved, moves_to, with_sources_moved

Constant = str | int | float | bool | None


@dataclass(frozen=True)
class Rename:
    """Of a column, a struct's field (``pos.x``), a key or an aggregate in the state table ``table``, or of what a key
    is computed by."""

    table: str
    old: str
    new: str


@dataclass(frozen=True)
class Cast:
    """``type_name`` is Spark's name of the type that the query has. ``lenient``: a value that does not fit is null."""

    table: str
    column: str
    type_name: str
    lenient: bool = False


@dataclass(frozen=True)
class Add:
    """A column that the query adds has ``value`` in what is there."""

    table: str
    column: str
    value: Constant


@dataclass(frozen=True)
class BeginEmpty:
    """``name``: a column or an aggregate of the query; empty: the table, and of an operator all of its tables."""

    table: str
    name: str = ""


Migration = Rename | Cast | Add | BeginEmpty | Moved | Rewrite | Rescale


def migrated(old: Topology, new: Topology, migrations: Sequence[Migration], checkpoint: int = 0) -> Topology:
    """``old``, the topology of ``checkpoint``, as if it had been written by a query with the names of ``new``.

    Aggregates that are the same and only have another name are found without a migration. Raises ``TopologyError``
    for a migration that does not fit the state or the query.
    """
    moves = [step for step in migrations if isinstance(step, Moved)]
    old = with_sources_moved(old, new, moves, checkpoint)
    tables = {t: {k: v for k, v in facts.items() if k != "from"} for t, facts in old.operators.items()}
    migrating = _Migrating(tables, new.operators, checkpoint, migrations)
    for step in migrations:
        if not _empties(step):
            migrating.apply(step)
    migrating.find_same()
    for step in filter(_empties, migrations):
        migrating.apply(step)
    if Rescale() in migrations and old.key_groups != new.key_groups:
        mark_rescale(migrating.tables, new.operators)
        old = replace(old, key_groups=new.key_groups)
    check_whole(migrating.tables, new.operators)
    return replace(old, operators=migrating.tables)


def _empties(step: Migration) -> bool:
    """Whether it lets what does not fit begin empty: behind all that may make it fit, as it may be there for long."""
    return isinstance(step, BeginEmpty) and not step.name


def restored_table(facts: Facts, uid: str, completion: CompletionRecord) -> TableRef | None:
    """The table of ``completion`` that the state of ``uid`` goes on from; ``facts`` are those of the query's topology.
    None: it begins empty."""
    told = facts.get("from")
    if told is not None and told["checkpoint"] == completion.checkpoint:
        return completion.tables.get(told["table"]) if told["table"] else None
    return completion.tables.get(uid)


class _Migrating:
    """``tables``: what was recorded of each state table, as if the steps so far had been there always."""

    def __init__(
        self, tables: Mapping[str, Facts], new: Mapping[str, Facts], checkpoint: int, migrations: Sequence[Migration]
    ) -> None:
        self.tables, self._new, self._checkpoint = dict(tables), new, checkpoint
        self._moves = [step for step in migrations if isinstance(step, Moved)]
        self._steps = [s for s in migrations if not (isinstance(s, Moved | Rescale) or _empties(s))]
        self._recorded = tables

    def apply(self, step: Migration) -> None:
        if isinstance(step, Moved):
            self._move(step)
            return
        if isinstance(step, Rewrite):
            mark_rewrite(step, self.tables, self._new, self._recorded)
        if isinstance(step, Rewrite | Rescale):
            return
        self._apply(step)
        if not (isinstance(step, BeginEmpty) and not step.name):
            for table in self._of(step.table):
                if table != step.table and not (isinstance(step, Rename) and step.old in keys_of(self.tables[table])):
                    self._apply(replace(step, table=table))

    def _apply(self, step: Rename | Cast | Add | BeginEmpty) -> None:
        """To the table that it names; what is said of an operator counts for its families, too."""
        if step.table in self.tables and step.table in self._new:
            was, now = self.tables[step.table], self._new[step.table]
            if isinstance(step, Rename):
                self._rename(step, was, now)
            elif isinstance(step, Cast):
                self.tables[step.table] = _recast(step, was, now)
            elif isinstance(step, Add):
                self.tables[step.table] = _starting(step, was, now)
            elif step.name:
                if part_called(was, step.name) and not part_called(self._before(step.table), step.name):
                    raise _renamed_and_empty(step.table, step.name)
                self.tables[step.table] = _beginning(step.name, was, now)
            else:
                self._begin(step.table)
        elif isinstance(step, BeginEmpty):
            self._let_come(step)

    def find_same(self) -> None:
        """An aggregate that is the same and is only called otherwise goes on by itself."""
        for table in [t for t, facts in self._new.items() if t in self.tables and facts.get("made_of")]:
            for old, part in same_parts(self.tables[table], self._new[table]):
                self._rename_part(table, old, part)

    def _of(self, uid: str) -> list[str]:
        """The tables of an operator."""
        return [t for t, facts in self.tables.items() if t == uid or facts.get(FAMILY_OF) == uid]

    def _move(self, step: Moved) -> None:
        if step.old not in self.tables or not moves_to(step, self._moves, self.tables, self._new):
            return
        for table in self._of(step.old):
            name = step.new + table[len(step.old) :]
            facts = {k: v for k, v in self.tables.pop(table).items() if k != "derived"}
            family = {FAMILY_OF: step.new} if facts.get(FAMILY_OF) == step.old else {}
            self.tables[name] = {**facts, **family, **self._from(facts, table)}

    def _from(self, facts: Facts, table: str) -> dict[str, Any]:
        """Which of the checkpoint's tables it goes on from."""
        return {"from": facts.get("from", {"checkpoint": self._checkpoint, "table": table})}

    def _rename(self, step: Rename, was: Facts, now: Facts) -> None:
        then, here = was.get("keyed_by", {}), now.get("keyed_by", {})
        keys = [key for key in then if (then[key], here.get(key)) == (step.old, step.new)]
        if keys:
            self.tables[step.table] = keyed_by(was, now, keys)
            return
        if step.old in keys_of(was):
            if step.new in keys_of(now):
                for table in self._of(step.table):
                    self.tables[table] = with_names(self.tables[table], {step.old: step.new}, {})
                self.tables[step.table] = keyed_by(self.tables[step.table], now, [step.new])
            return
        if "." in step.old and step.old not in types_of(was):
            self.tables[step.table] = _field_renamed(step, was)
            return
        old, part = part_called(was, step.old), part_called(now, step.new)
        if old is not None and part is not None and (old.name, old.columns) != (part.name, part.columns):
            _refuse_rename(was, now, step, old, part)
            if settled_in(part, was.get(SETTLED, ())):
                raise _renamed_and_empty(step.table, step.new)
            self._rename_part(step.table, old, part)

    def _rename_part(self, table: str, old: Part, part: Part) -> None:
        """The rows that an aggregate keeps beside the key's own are in a table that has its name."""
        self.tables[table] = _as_part(self.tables[table], self._new[table], old, part)
        one, other = f"{table}.{old.columns[0]}", f"{table}.{part.columns[0]}"
        if one == other or one not in self.tables or other not in self._new:
            return
        facts, now = self.tables.pop(one), self._new[other]
        then, here = [*keys_of(facts), *types_of(facts)], [*keys_of(now), *types_of(now)]
        names = dict(zip(then, here, strict=False))
        self.tables[other] = {**with_names(facts, names, {}), **self._from(facts, one)}

    def _begin(self, table: str) -> None:
        """Where the state that is there does not fit; else it was done. Where another line made it fit now, that is a
        question; but what is said of a whole operator counts less than what is said of a part."""
        of = self._of(table)
        here = [t for t in of if t in self._new]
        fits = not any(differences(t, self.tables[t], self._new[t]) for t in here)
        changed = any(differences(t, self._before(t), self._new[t]) for t in here)
        moved = any(m.new == table for m in self._moves) and "from" in self.tables[table]
        told = {step.table for step in self._steps}
        if fits and (moved or (changed and not told.isdisjoint(of))):
            raise TopologyError(
                f"migrate({table!r}).begin_empty(): expected state that does not fit the query, found that it goes on "
                "by another line; remove this one if it is to go on, or the other if it is to begin empty"
            )
        if not fits or (changed and self._new[table].get(FAMILY_OF) in told):
            for t in of:
                del self.tables[t]
                if t in self._new:
                    self.tables[t] = {**self._new[t], "from": {"checkpoint": self._checkpoint, "table": ""}}

    def _before(self, table: str) -> Facts:
        """What was recorded of the state that ``table`` goes on from."""
        return self._recorded.get(self.tables[table].get("from", {}).get("table", table), {})

    def _let_come(self, step: BeginEmpty) -> None:
        """A variable that comes, and is none of those that go: the first that it could be is no longer kept."""
        now = self._new.get(step.table, {})
        for table in self._of(now.get(FAMILY_OF, "")):
            goes = table not in self._new and FAMILY_OF in self.tables[table] and not step.name
            if goes and not differences(step.table, self.tables[table], now):
                del self.tables[table]
                return


def _renamed_and_empty(table: str, name: str) -> TopologyError:
    return TopologyError(
        f"migrate({table!r}).begin_empty({name!r}): expected no other line about it, found a rename, which says that "
        "it goes on; remove one of the two"
    )


def _recast(step: Cast, was: Facts, now: Facts) -> Facts:
    then, here = types_of(was), types_of(now)
    if step.column not in then.keys() & here.keys():
        return was
    if step.lenient and (then[step.column] != here[step.column] or step.column in was.get("older", {})):
        was = {**was, "lenient": sorted({*was.get("lenient", ()), step.column})}
    if then[step.column] == here[step.column]:
        return was
    _refuse_cast(step, then[step.column], here[step.column])
    types = {**then, step.column: here[step.column]}
    return {**was, "types": types, "state": text_of(types), RECAST: [*was.get(RECAST, ()), step.column]}


def _refuse_cast(step: Cast, was: str, now: str) -> None:
    shown = f"migrate({step.table!r}).cast({step.column!r}, {step.type_name!r})"
    if not is_type(step.type_name, now):
        raise TopologyError(f"{shown}: expected the type that the query has, {sql_type(now)}")
    if not castable(was, now):
        raise TopologyError(
            f"{shown}: expected a type that has the values of {sql_type(was)}, whatever the time zone; let it begin "
            f"empty: `ckpt.migrate({step.table!r}).begin_empty({step.column!r})`"
        )


def _starting(step: Add, was: Facts, now: Facts) -> Facts:
    if step.column in types_of(was) or step.column not in types_of(now):
        return was
    return settled({**was, "starts": {**was.get("starts", {}), step.column: step.value}}, step.column)


def _beginning(name: str, was: Facts, now: Facts) -> Facts:
    changed = [part for part in changed_parts(was, now)[1] if name == part.name or name in part.columns]
    columns = {c for part in changed for c in part.columns} | ({name} & set(mistyped(was, now)))
    return settled(without(was, columns), name) if columns or "." in name else was


def _field_renamed(step: Rename, was: Facts) -> Facts:
    older = was.get("older", {})
    if step.old in older.get(step.new, ()):
        return was
    gone = sorted({*was.get("gone", ()), step.old})
    return {**was, "gone": gone, "older": {**older, step.new: [step.old, *older.get(step.old, ())]}}


def _as_part(was: Facts, now: Facts, old: Part, part: Part) -> Facts:
    made = {c: now["made_of"][c] for c in part.columns if c in now.get("made_of", {})}
    return with_names(was, dict(zip(old.columns, part.columns, strict=True)), made)


def _refuse_rename(was: Facts, now: Facts, step: Rename, old: Part, part: Part) -> None:
    shown = f"migrate({step.table!r}).rename({step.old!r}, {step.new!r})"
    for where, found, other in (
        ("state", part_called(was, part.name), old),
        ("query", part_called(now, step.old), part),
    ):
        if found is not None and found.columns != other.columns:
            raise TopologyError(f"{shown}: expected one of the two in the {where}, found both; remove the line")
    if not old.fits(part):
        raise TopologyError(
            f"{shown}: expected the same kind of state, found {old.name} ({', '.join(old.types)}) and {part.name} "
            f"({', '.join(part.types)}); let it begin empty: ckpt.migrate({step.table!r}).begin_empty({step.new!r})"
        )
