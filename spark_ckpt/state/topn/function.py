"""The first rows of each key, of all that ever came: they are kept, and what changes among them comes out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from spark_ckpt.state.aggregates.function import MIN_REDUCTION
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, StateFunction, Touched, nothing_in
from spark_ckpt.state.functions.distinct_rows import Expiry
from spark_ckpt.state.ipc import Rows, plain_array
from spark_ckpt.state.keys.grouping import group_rows, rows_per_key
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.state.topn._rows import ARRIVAL, SLOT, RowForm, TopRows
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.ordering import OrderBy, Ordered, ordered
from spark_ckpt.types import EVENT_TIME, KEY_HASH, TIMEOUT_MS

TOP = "top"
"""The family of the first rows of each key."""
KEPT = "_kept"
"""The value column of a key's own row, which says that it has rows and when it is forgotten."""

NEXT = "_next"
"""That of a key whose rows are updated: the number of the next row that is new to it."""
STATE_COLUMNS = (KEPT, NEXT, ARRIVAL, SLOT)
"""What no key can be called in the state."""


class TopN(StateFunction):
    """The first ``n`` rows of each key in ``order``; of equal ones the first to arrive. Rows are never updated: what
    falls behind is forgotten.

    ``columns`` are those of a row that are needed; ``changes`` says which of them come out, and how. ``plain_keys`` are
    the key columns that are columns of the row, as they are. ``watermark``: the stream has one, so late rows do not
    count. With ``expiry``, whose column is a key, a key is forgotten when the watermark passes it; nothing comes out
    for that. ``stored_as``: names of columns in the state table, where they are others.
    """

    kind = "topN"
    state_schema = pa.schema([pa.field(KEPT, pa.bool_())])

    def __init__(
        self,
        n: int,
        order: Sequence[OrderBy],
        key_schema: pa.Schema,
        columns: pa.Schema,
        *,
        changes: Changes,
        plain_keys: Collection[str] = (),
        watermark: bool = False,
        expiry: Expiry | None = None,
        stored_as: Mapping[str, str] | None = None,
    ) -> None:
        self.n, self.order, self.key_schema = n, tuple(order), key_schema
        self.columns, self.changes, self.expiry = columns, changes, expiry
        self.output_schema = changes.schema
        self.timeout = "EventTimeTimeout" if watermark else "NoTimeout"
        self.form = self._form(plain_keys, stored_as or {})
        self.families = self._families()

    def _form(self, plain_keys: Collection[str], stored_as: Mapping[str, str]) -> RowForm:
        taken = [*self.key_schema.names, ARRIVAL, SLOT]
        return RowForm.of(self.columns, {key: key for key in plain_keys}, taken, stored_as)

    def _families(self) -> Mapping[str, FamilyLayout]:
        return {TOP: FamilyLayout(self.key_schema, pa.schema([pa.field(SLOT, pa.int64())]), self.form.stored)}

    @property
    def made_of(self) -> Mapping[str, str]:
        """Other rows were not kept, so nothing of this may change."""
        until = {} if self.timeout == "NoTimeout" else {TIMEOUT_MS: "nothing" if self.expiry is None else "the key"}
        return {self.state_schema.names[0]: self._made_by(), **until}

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        """Columns of the rows that are kept: what came before a column was asked for has none."""
        known = [f for f in self.form.stored if f.name in self.form.names]
        return nothing_in(pa.schema(known)) if family else None

    def _made_by(self) -> str:
        return f"the first {self.n} by {', '.join(map(str, self.order))}"

    # -- in front of the shuffle -----------------------------------------------------------------------------------

    def combine(self, rows: pa.Table) -> pa.Table:
        """Without the rows that have ``n`` others of their task in front of them. Which are late is known behind the
        shuffle only, and those must not push others out."""
        hashes = rows[KEY_HASH].to_numpy()
        per_key = rows_per_key(hashes)
        if EVENT_TIME in rows.column_names or len(hashes) <= self.n or per_key < MIN_REDUCTION * self.n:
            return rows
        seg = group_rows(hashes, rows.select(self.key_schema.names), per_key)
        order = self._ordered(rows, seg.places())
        kept = np.sort(order.first(self.n).rows)
        return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))

    def recombine(self, parts: list[pa.Table]) -> pa.Table:
        return parts[0] if len(parts) == 1 else self.combine(pa.concat_tables(parts))

    def _ordered(self, rows: pa.Table | pa.RecordBatch, owner: Rows, arrival: Rows | None = None) -> Ordered:
        columns = [plain_array(rows.column(by.column)) for by in self.order]
        return ordered(owner, columns, self.order, arrival)

    # -- behind it -------------------------------------------------------------------------------------------------

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        if not touched.rows.num_rows:
            return self._forgotten(touched)
        family = ctx.families[TOP]
        found = family.scan(np.flatnonzero(touched.exists))
        known = self.form.found(found)
        new = TopRows(self.form.arrived(touched.rows), touched.key_index, _arrivals(known, touched))
        rows = known.followed_by(new)
        order = self._ordered(rows.table, rows.owner, rows.arrival)
        top = order.first(self.n)
        self._write(family, found, rows, order, top)
        return self._changed(touched, self._changes(rows, len(known), order, top))

    def _changes(self, rows: TopRows, known: int, order: Ordered, top: Ordered) -> pa.Table:
        """Nothing changed for a key that no row came in for."""
        changed = np.zeros(int(rows.owner.max(initial=0)) + 1, bool)
        changed[rows.owner[top.rows[top.rows >= known]]] = True
        if self._is_cut(rows.owner[:known]):
            changed |= np.bincount(rows.owner[:known], minlength=len(changed)) > self.n
        concerned = changed[rows.owner]
        before = order.only(concerned & (np.arange(len(rows)) < known), rows.owner)
        return self.changes.rows(rows, before, top.only(concerned, rows.owner))

    def _is_cut(self, owner: Rows) -> bool:
        """Whether a key has more rows, of these owners, than are kept: those of a query with a larger ``n``."""
        return len(owner) > self.n and bool(np.bincount(owner).max() > self.n)

    def _write(self, family: Family, found: Found, rows: TopRows, order: Ordered, top: Ordered) -> None:
        """Rows that come in take the slots of those that fall out, and then the next ones: a key's are 0, 1, 2 ..."""
        known = len(found)
        if self._is_cut(found.key_index):
            family.remove(found)
            self._put(family, rows, top.rows, pa.table([pa.array(top.place)], [SLOT]))
            return
        entering = top.rows[top.rows >= known]
        if not len(entering):
            return
        left = order.rows[(order.place >= self.n) & (order.rows < known)]
        owner, keys = rows.owner[entering], 1 + int(rows.owner.max())
        had, lost = np.bincount(found.key_index, minlength=keys), np.bincount(rows.owner[left], minlength=keys)
        number = Ordered.of(entering, rows.owner).place
        replaces = number < lost[owner]
        if len(left):
            which, write = np.arange(known), np.zeros(known, bool)
            which[left], write[left] = entering[replaces], True
            family.write(found, self.form.to_state(rows, which), write)
        if not replaces.all():
            slots = (had[owner] + number - lost[owner])[~replaces]
            self._put(family, rows, entering[~replaces], pa.table([pa.array(slots)], [SLOT]))

    def _put(
        self, family: Family, rows: TopRows, which: Rows, sub_keys: pa.Table, write: np.ndarray | None = None
    ) -> None:
        """Store rows ``which`` under ``sub_keys``, all different; end those that are not to ``write``."""
        place = family.get(rows.owner[which], sub_keys)
        order = np.empty(len(which), np.int64)
        order[place.place] = np.arange(len(which))
        remove = None if write is None else ~write[order]
        family.write(place, self.form.to_state(rows, which[order]), remove=remove)

    def _changed(self, touched: Touched, output: pa.Table) -> Changed:
        n = touched.keys.num_rows
        state = pa.table({KEPT: pa.repeat(True, n)}, schema=self.state_schema)
        return Changed(output, state, ~touched.exists, np.zeros(n, bool), self._timeouts(touched))

    def _timeouts(self, touched: Touched) -> np.ndarray:
        if self.expiry is None:
            return np.full(touched.keys.num_rows, NO_TIMEOUT, np.int64)
        return self.expiry.timeouts_ms(touched.keys)

    def _forgotten(self, touched: Touched) -> Changed:
        """Keys that the watermark has passed: no row of theirs can come any more, and what is in front stays so."""
        none = np.zeros(touched.keys.num_rows, bool)
        return Changed(
            self.output_schema.empty_table(), touched.state, none, touched.timed_out, self._timeouts(touched)
        )


def _arrivals(known: TopRows, touched: Touched) -> Rows:
    """Behind those of the key's rows that are kept; gaps do not matter."""
    begin = np.zeros(touched.keys.num_rows, np.int64)
    np.maximum.at(begin, known.owner, known.arrival + 1)
    found: Rows = begin[touched.key_index] + np.arange(touched.rows.num_rows)
    return found
