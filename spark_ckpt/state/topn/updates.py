"""The first rows of each key where rows are updates: a newer one takes the place of an older one, or removes it.

All rows are kept, as any may get into the first ones when others change: those in front in one family, the rest in
another. What is in front is never behind anything of the rest, so the rest of a key is read only when fewer than ``n``
rows are as far in front as the last one was. What a batch costs follows what it touches, unless rows fall back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.change_rows import check_kinds, is_removal
from spark_ckpt.state.functions.base import CallContext, Changed, Touched
from spark_ckpt.state.ipc import Rows, int64_view
from spark_ckpt.state.keys.keys import Mask, match
from spark_ckpt.state.lsm.family import Found
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.state.topn._rows import ARRIVAL, RowForm, TopRows
from spark_ckpt.state.topn.function import NEXT, TOP, TopN
from spark_ckpt.state.topn.ordering import Ordered

REST = "rest"
"""The family of all rows that are not among the first."""


class TopNOfUpdates(TopN):
    """As :class:`TopN`, where a row replaces the one before it that has the same key and ``merge_keys``, which are
    columns -> their names in the state. A row keeps the place among equal ones that it had when it first came.

    ``removed_by``: a column of the rows that says, as that of change rows does, whether the row is there.
    """

    state_schema = pa.schema([pa.field(NEXT, pa.int64())])

    def __init__(
        self, *args: Any, merge_keys: Mapping[str, str], removed_by: str | None = None, **options: Any
    ) -> None:
        self.merge_keys, self.removed_by = dict(merge_keys), removed_by
        super().__init__(*args, **options)

    def _form(self, plain_keys: Collection[str], stored_as: Mapping[str, str]) -> RowForm:
        taken = [*self.key_schema.names, *self.merge_keys.values(), ARRIVAL]
        identity = {**{key: key for key in plain_keys}, **self.merge_keys}
        return RowForm.of(self.columns, identity, taken, stored_as)

    def _families(self) -> Mapping[str, FamilyLayout]:
        sub = pa.schema([pa.field(name, self.columns.field(c).type) for c, name in self.merge_keys.items()])
        layout = FamilyLayout(self.key_schema, sub, self.form.stored)
        return {TOP: layout, REST: layout}

    def _made_by(self) -> str:
        return f"{super()._made_by()}, updated by {', '.join(self.merge_keys)}"

    def combine(self, rows: pa.Table) -> pa.Table:
        """All of them: one that is far behind may be an update of one in front."""
        return rows

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        if not touched.rows.num_rows:
            return self._forgotten(touched)
        top, rest = ctx.families[TOP], ctx.families[REST]
        scanned = top.scan(np.flatnonzero(touched.exists))
        asked = rest.get(touched.key_index, self._sub_keys(touched.rows))
        updates = self._updates(touched, scanned, asked)
        known = self.form.found(scanned)
        rows = known.followed_by(updates.rows)
        live = np.concatenate([~updates.replaces_known, ~updates.removed])
        order = self._ordered(rows.table, rows.owner, rows.arrival)
        needy = self._needy(rows, live, order, len(known))
        if len(needy):
            found = rest.scan(needy)
            more = self._only(self.form.found(found), ~updates.acts_on(found))
            rows, live = rows.followed_by(more), np.concatenate([live, np.ones(len(more), bool)])
            order = self._ordered(rows.table, rows.owner, rows.arrival)
        return self._settle(ctx, touched, updates, rows, live, order)

    def _settle(
        self, ctx: CallContext, touched: Touched, updates: _Updates, rows: TopRows, live: Mask, order: Ordered
    ) -> Changed:
        """Tell what changed in front, and keep every row that did in the family where it is now."""
        known, new = len(updates.replaces_known), len(updates.rows)
        number = np.arange(len(rows))
        top, before = order.only(live, rows.owner).first(self.n), order.only(number < known, rows.owner)
        in_front = np.zeros(len(rows), bool)
        in_front[top.rows] = True
        identity = number.copy()
        identity[known : known + new] = np.where(updates.of_known >= 0, updates.of_known, number[known : known + new])
        output = self.changes.rows(rows, before, top, identity)
        moved = np.where(number < known, live & ~in_front, in_front) | ((number >= known) & (number < known + new))
        which = np.flatnonzero(moved)
        if len(which):
            sub_keys = self._sub_keys(rows.table.take(pa.array(which)))
            self._put(ctx.families[TOP], rows, which, sub_keys, in_front[which])
            self._put(ctx.families[REST], rows, which, sub_keys, (live & ~in_front)[which])
        left = np.bincount(rows.owner[top.rows], minlength=touched.keys.num_rows) > 0
        state = pa.table([pa.array(updates.next)], schema=self.state_schema)
        wrote = left & (updates.has_new | ~touched.exists)
        return Changed(output, state, wrote, touched.exists & ~left, self._timeouts(touched))

    def _sub_keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        return pa.table([rows.column(name) for name in self.merge_keys], list(self.merge_keys.values()))

    @staticmethod
    def _only(rows: TopRows, wanted: Mask) -> TopRows:
        return TopRows(rows.table.filter(pa.array(wanted)), rows.owner[wanted], rows.arrival[wanted])

    def _needy(self, rows: TopRows, live: Mask, order: Ordered, known: int) -> Rows:
        """The keys of whose rest some may come in front: it is behind the last row that was in front."""
        keys = 1 + int(rows.owner.max(initial=-1))
        place = np.empty(len(rows), np.int64)
        place[order.rows] = np.arange(len(rows))
        last = np.full(keys, -1)
        np.maximum.at(last, rows.owner[:known], place[:known])
        had = np.bincount(rows.owner[:known], minlength=keys)
        certain = np.bincount(rows.owner[live & (place <= last[rows.owner])], minlength=keys)
        return np.flatnonzero((had == self.n) & (certain < self.n))

    def _updates(self, touched: Touched, scanned: Found, asked: Found) -> _Updates:
        """The last of the rows that arrived of each identity, but those that change nothing."""
        of_asked = _places(scanned, asked)
        of_known = np.full(len(asked), -1)
        of_known[of_asked[of_asked >= 0]] = np.flatnonzero(of_asked >= 0)
        first, last = _ends(asked.place, len(asked))
        table = self.form.arrived(touched.rows).take(pa.array(last))
        removed = self._removed(touched.rows)[last]
        known, resting = self.form.found(scanned), self.form.found(asked)
        stored = TopRows(resting.table, asked.key_index, resting.arrival).followed_by(known)
        old = np.where(of_known >= 0, len(asked) + of_known, np.arange(len(asked)))
        was = (of_known >= 0) | asked.exists
        same = was & ~removed & _identical(table, stored.table.take(pa.array(old)))
        acts = ~same & (was | ~removed)
        at = np.array(int64_view(pc.fill_null(touched.state[NEXT], 0)))
        arrival = np.where(was, stored.arrival[old], at[asked.key_index] + first)
        has_new = np.zeros(len(at), bool)
        has_new[asked.key_index[acts & ~was]] = True
        at[has_new] += touched.rows.num_rows
        rows = self._only(TopRows(table, asked.key_index, arrival), acts)
        replaced = np.zeros(len(known), bool)
        replaced[of_known[acts & (of_known >= 0)]] = True
        return _Updates(rows, removed[acts], of_known[acts], replaced, at, has_new, asked, acts)

    def _removed(self, rows: pa.Table) -> Mask:
        if self.removed_by is None:
            return np.zeros(rows.num_rows, bool)
        column = rows[self.removed_by]
        check_kinds(self.removed_by, column)
        return np.asarray(is_removal(column).to_numpy(), bool)


@dataclass(frozen=True)
class _Updates:
    """``rows`` of different identities; ``removed``: those that are not there any more; ``of_known``: the row among
    those that were in front which each of them replaces, or -1. ``replaces_known``: of those, which are replaced.

    ``next`` and ``has_new`` are of each key: the number of its next new row, and whether it got one.
    """

    rows: TopRows
    removed: Mask
    of_known: Rows
    replaces_known: Mask
    next: Rows
    has_new: Mask
    asked: Found
    acts: Mask

    def acts_on(self, found: Found) -> Mask:
        place = _places(found, self.asked)
        return (place >= 0) & self.acts[place]


def _ends(place: Rows, count: int) -> tuple[Rows, Rows]:
    """The first and the last of the rows in each place."""
    first, last = np.full(count, len(place)), np.zeros(count, np.int64)
    np.minimum.at(first, place, np.arange(len(place)))
    np.maximum.at(last, place, np.arange(len(place)))
    return first, last


def _places(found: Found, asked: Found) -> Rows:
    """Which of the rows that were asked for each row that was found is; -1: none."""
    return match(found.lookup.hashes, found.lookup.keys, asked.lookup.hashes, asked.lookup.keys)


def _identical(one: pa.RecordBatch, two: pa.RecordBatch) -> Mask:
    """Whether rows are the same to the last bit. Nested values are not looked at: they count as different."""
    same = np.ones(len(one), bool)
    for a, b in zip(one.columns, two.columns, strict=True):
        if pa.types.is_nested(a.type):
            return np.zeros(len(one), bool)
        if pa.types.is_floating(a.type):
            bits = pa.int64() if a.type == pa.float64() else pa.int32()
            a, b = a.view(bits), b.view(bits)
        both_null = pc.and_(pc.is_null(a), pc.is_null(b))
        same &= pc.or_(pc.fill_null(pc.equal(a, b), False), both_null).to_numpy(zero_copy_only=False)
    return same
