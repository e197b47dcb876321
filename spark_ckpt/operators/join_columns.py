"""Which columns a join of two streams computes, keeps, sends and puts out, and what each is called where. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.refused_types import refuse_unkept
from spark_ckpt.names import free
from spark_ckpt.operators.join_rules import FULL, LEFT, LEFT_OUTER, RIGHT, RIGHT_OUTER, SEMI, Parts, Until, is_outer
from spark_ckpt.operators.key_columns import column_named, stored_name
from spark_ckpt.runtime.join_side import TIME, JoinSide
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.joins.function import MAY_MATCH, Output, StreamJoin
from spark_ckpt.state.joins.function import RIGHT as OF_RIGHT
from spark_ckpt.state.joins.predicate import Both, Compared, Computed, Either, Not, OfSide, Predicate
from spark_ckpt.state.joins.sides import MATCHED, ROW, Expiry, Side
from spark_ckpt.types import CTL, TAG

_MAY, _KEY, _TRUE, _SLOT = "__ckpt_may", "__ckpt_key_", "__ckpt_true_", "__ckpt_slot_"
_FLOATS = (T.FloatType, T.DoubleType)


@dataclass
class SideColumns:
    """Of one side. ``columns`` are its user's. ``computed``: added by Spark in front. ``kept``: name in the state ->
    the side's column. ``where``: the side's column -> its name in the state, a key's if it is one. Rows go on in which
    ``needed`` columns are not null and ``true`` ones are true."""

    columns: list[str]
    outer: bool
    computed: dict[str, Column]
    kept: dict[str, str] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)
    true: list[str] = field(default_factory=list)

    @property
    def decides(self) -> list[str]:
        """Those of ``computed`` that tell whether a row can match: the others count, and may fail, for no other row."""
        return [name for name in self.computed if name in self.true or name == _MAY]


class JoinColumns:
    """``columns`` are the sides' own. ``touches_time`` tells whether a side's event time is in a condition."""

    def __init__(
        self,
        how: str,
        parts: Parts,
        columns: tuple[list[str], list[str]],
        touches_time: Callable[[Column, int], bool],
    ) -> None:
        self.how, self.parts, self._touches_time = how, parts, touches_time
        names: list[str] = []
        for key in parts.keys:
            own = stored_name(key.names[LEFT] or key.names[RIGHT] or "key")
            names.append(free(own, [*names, ROW, MATCHED]))
        fields = [T.StructField(n, k.kind, True) for n, k in zip(names, parts.keys, strict=True)]
        self.keys = arrow_schema(T.StructType(fields))
        self.sides = [self._side(side, columns[side]) for side in (LEFT, RIGHT)]

    def _side(self, side: int, columns: list[str]) -> SideColumns:
        found = SideColumns(columns, is_outer(self.how, side), dict(self.parts.computed[side]))
        for number, key in enumerate(self.parts.keys):
            if key.names[side] is None:
                found.computed[f"{_KEY}{number}"] = key.columns[side]
            if not (found.outer or key.null_safe):
                found.needed.append(key.names[side] or f"{_KEY}{number}")
        self._conditions(found, side)
        self._stored(found, side)
        return found

    def _conditions(self, found: SideColumns, side: int) -> None:
        """Spark filters a side that is not outer ahead of ``withWatermark``; by its event time, behind it."""
        late = []
        for number, condition in enumerate(self.parts.alone[side]):
            if found.outer or self._touches_time(condition, side):
                late.append(condition)
            else:
                found.true.append(f"{_TRUE}{number}")
                found.computed[found.true[-1]] = condition
        if late:
            found.computed[_MAY] = F.coalesce(reduce(and_, late), F.lit(False))

    def _stored(self, found: SideColumns, side: int) -> None:
        """Keys are not kept twice; but those of floating point, which lose the sign of a zero. One column is kept."""
        in_key = {
            key.names[side]: name
            for name, key in zip(self.keys.names, self.parts.keys, strict=True)
            if not isinstance(key.kind, _FLOATS)
        }
        wanted = [*found.columns, *self.parts.computed[side]]
        all_in_key = all(column in in_key for column in wanted)
        for column in wanted:
            if column in in_key and not (all_in_key and column == wanted[-1]):
                found.where[column] = in_key[column]
            else:
                name = free(stored_name(column), [*self.keys.names, ROW, MATCHED, *found.kept])
                found.kept[name], found.where[column] = column, name


class JoinPlan:
    """``prepared`` are the sides' columns with those computed for them."""

    def __init__(
        self,
        found: JoinColumns,
        prepared: tuple[T.StructType, T.StructType],
        ends: tuple[Until | None, Until | None],
        sensitive: bool,
    ) -> None:
        self.columns, self.ends, self._sensitive, self._prepared = found, ends, sensitive, prepared
        self._kept = [self._kinds(side, prepared[side]) for side in (LEFT, RIGHT)]
        self._slots, self._places = _shared(self._kept)
        self.pairs: list[tuple[str | None, str | None]] = []

    def _kinds(self, side: int, prepared: T.StructType) -> pa.Schema:
        kept = self.columns.sides[side].kept
        types = {f.name: f.dataType for f in prepared.fields}
        refuse_unkept(f for f in prepared.fields if f.name in kept.values())
        return arrow_schema(T.StructType([T.StructField(name, types[column], True) for name, column in kept.items()]))

    @property
    def rows_schema(self) -> pa.Schema:
        """The rows that arrive at the operator: keys, side, whether its own conditions hold, and what either keeps."""
        flags = [pa.field(OF_RIGHT, pa.bool_()), pa.field(MAY_MATCH, pa.bool_())]
        return pa.schema([*self.columns.keys, *flags, *self._slots])

    def side(self, side: int, time: str | None) -> JoinSide:
        """``time``: the side's event time, if it counts here."""
        found = self.columns.sides[side]
        taken = {slot: found.kept[name] for name, slot in zip(found.kept, self._places[side], strict=True)}
        for number, key in enumerate(self.columns.parts.keys):
            taken[self.columns.keys.names[number]] = key.names[side] or f"{_KEY}{number}"
        if _MAY in found.computed:
            taken[MAY_MATCH] = _MAY
        if time is not None:
            taken[TIME] = time
        control = [pa.field(TAG, pa.int64()), pa.field(CTL, pa.binary())]
        schema = pa.schema([*self.rows_schema, pa.field(TIME, pa.timestamp("us", "UTC")), *control])
        taken |= {TAG: TAG, CTL: CTL}
        return JoinSide(schema, side == RIGHT, taken, tuple(found.needed), tuple(found.true))

    def function(
        self,
        result: list[T.StructField],
        using: list[str] | None,
        watermark: bool,
        made_by: str,
        computed: Mapping[str, str],
    ) -> StreamJoin:
        """``result``: what comes out, as Spark says. ``made_by`` and ``computed`` as :class:`StreamJoin` has them."""
        sides = tuple(
            Side(
                self._kept[side],
                self._places[side],
                self.columns.sides[side].outer,
                self._expiry(side),
                {**self._key_names(side), **self.columns.sides[side].kept},
            )
            for side in (LEFT, RIGHT)
        )
        condition = self.columns.parts.condition
        return StreamJoin(
            self.columns.how,
            self.columns.keys,
            sides,  # type: ignore[arg-type]
            self._output(result, using),
            None if condition is None else self._renamed(condition),
            tuple(key.null_safe for key in self.columns.parts.keys),
            watermark,
            made_by,
            computed,
        )

    def _key_names(self, side: int) -> dict[str, str]:
        keys = zip(self.columns.keys.names, self.columns.parts.keys, strict=True)
        return {name: key.names[side] or "" for name, key in keys}

    def _expiry(self, side: int) -> Expiry | None:
        end = self.ends[side]
        if end is None:
            return None
        if end.key is not None:
            return Expiry(self.columns.keys.names[end.key])
        assert end.column is not None
        return Expiry(self.columns.sides[side].where[end.column], end.shift_ms)

    def _output(self, result: list[T.StructField], using: list[str] | None) -> tuple[Output, ...]:
        """In Spark's order: columns that are joined by name come once, in front. Those of a side that they are not
        taken from stand behind all, as they are null where that side has no row."""
        left, right = (self.columns.sides[side] for side in (LEFT, RIGHT))
        both = [(self._spelt(left, name), self._spelt(right, name)) for name in using or []]
        for pair in both if self.columns.how == FULL else []:
            self._refuse_text(*pair)
        self.pairs = [self._one_of(pair) for pair in both]
        self.pairs += [(c, None) for c in left.columns if c not in {one for one, _ in both}]
        if self.columns.how != SEMI:
            self.pairs += [(None, c) for c in right.columns if c not in {other for _, other in both}]
        shown = len(self.pairs)
        if self.columns.how in (LEFT_OUTER, FULL):
            self.pairs += [(None, other) for _, other in both]
        if self.columns.how in (RIGHT_OUTER, FULL):
            self.pairs += [(one, None) for one, _ in both]
        kinds = [f.dataType for f in result] + [self._kind(*pair) for pair in self.pairs[shown:]]
        names = unlike([f.name for f in result], len(self.pairs) - shown)
        fields = arrow_schema(T.StructType([T.StructField(n, k, True) for n, k in zip(names, kinds, strict=True)]))
        return tuple(
            Output(f, one and left.where[one], other and right.where[other])
            for f, (one, other) in zip(fields, self.pairs, strict=True)
        )

    def _refuse_text(self, left: str, right: str) -> None:
        """A value of either side comes out there, and only Spark makes numbers and times of texts as it does."""
        kinds = self._kind(left, None), self._kind(None, right)
        if kinds[LEFT] != kinds[RIGHT] and any(isinstance(kind, T.StringType) for kind in kinds):
            raise InvalidInputError(
                f"the full join is by {left!r}, {kinds[LEFT].simpleString()} on one side and "
                f"{kinds[RIGHT].simpleString()} on the other: make them one type in front of it, with cast"
            )

    def _kind(self, one: str | None, other: str | None) -> T.DataType:
        found: T.DataType = self._prepared[RIGHT if one is None else LEFT][one or other].dataType
        return found

    def _one_of(self, pair: tuple[str, str]) -> tuple[str | None, str | None]:
        if self.columns.how == FULL:
            return pair
        return (None, pair[RIGHT]) if self.columns.how == RIGHT_OUTER else (pair[LEFT], None)

    def place(self, side: int, column: str) -> int | None:
        """Where a column of a side comes out by itself; None if it only comes with the other side's."""
        alone = (column, None) if side == LEFT else (None, column)
        return self.pairs.index(alone) if alone in self.pairs else None

    def _spelt(self, side: SideColumns, name: str) -> str:
        found = column_named(side.columns, name, self._sensitive)
        assert found is not None
        return found

    def _renamed(self, tree: Predicate) -> Predicate:
        """As the state calls the columns."""
        left, right = (self.columns.sides[side].where for side in (LEFT, RIGHT))
        if isinstance(tree, Compared):
            return replace(tree, left=left[tree.left], right=right[tree.right])
        if isinstance(tree, OfSide):
            return replace(tree, column=(left if tree.of_left else right)[tree.column])
        if isinstance(tree, Computed):
            named = tuple((of_left, (left if of_left else right)[name]) for of_left, name in tree.columns)
            return replace(tree, columns=named)
        if isinstance(tree, Not):
            return Not(self._renamed(tree.part))
        assert isinstance(tree, Both | Either)
        return type(tree)(self._renamed(tree.one), self._renamed(tree.other))


def _shared(kept: list[pa.Schema]) -> tuple[list[pa.Field], list[tuple[str, ...]]]:
    """Columns of one type, one of each side, share a slot, as a row has but one side: fewer nulls are sent."""
    slots: list[pa.Field] = []
    places = []
    for schema in kept:
        free_slots, mine = list(slots), []
        for f in schema:
            slot = next((s for s in free_slots if s.type.equals(f.type)), None)
            if slot is None:
                slot = pa.field(f"{_SLOT}{len(slots)}", f.type)
                slots.append(slot)
            else:
                free_slots.remove(slot)
            mine.append(slot.name)
        places.append(tuple(mine))
    return slots, places


def unlike(shown: list[str], hidden: int) -> list[str]:
    """A name for each column that comes out, its own if no other is called so."""
    low = [name.lower() for name in shown]
    names: list[str] = []
    for name in shown:
        names.append(name if low.count(name.lower()) == 1 else free(f"__ckpt_{name}", [*shown, *names]))
    for number in range(hidden):
        names.append(f"__ckpt_hidden_{number}")
    return names
