"""The join of two checkpointed streams: both sides in front of one keyed operator. Driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._ahead import with_implied
from spark_ckpt.api._ahead_of_joins import AheadOfJoin
from spark_ckpt.api._join_sides import JoinedSide, over_rows, side_of
from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import Attribute, Attributes, not_there
from spark_ckpt.plan.columns import is_case_sensitive, quoted
from spark_ckpt.plan.condition import Name, conjuncts, names_in, replaced, stream_names
from spark_ckpt.plan.distinct_keys import as_text
from spark_ckpt.plan.event_time import DELAY_KEY, event_time_among
from spark_ckpt.plan.fails_on_nulls import of_data_rows
from spark_ckpt.plan.join_columns import JoinColumns, JoinPlan, SideColumns
from spark_ckpt.plan.join_condition import Key, Parts, split_condition, using
from spark_ckpt.plan.join_itself import WithItself
from spark_ckpt.plan.join_rules import INNER, RIGHT_OUTER, SEMI, Times, grows, join_kind, until
from spark_ckpt.plan.join_sides import LEFT, RIGHT, Sides
from spark_ckpt.plan.join_wiring import JoinWiring, joined_rows
from spark_ckpt.plan.key_columns import column_named, is_key, written
from spark_ckpt.plan.moved_condition import null_without
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.state.joins.function import COUNTS, StreamJoin
from spark_ckpt.types import CONTROL_COLUMNS

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_log = logging.getLogger("spark_ckpt")


def stream_join(
    left: CkptDataFrame, right: CkptDataFrame, names: list[str] | None, on: Column | None, how: str | None, uid: Any
) -> CkptDataFrame:
    """``names`` of columns that both have, or the condition ``on``."""
    one, other = (JoinedSide.of(side, names or []) for side in (left, right))
    join = _Join((one, other.beside(one)), names, on, join_kind(how))
    return join.made(uid)


class _Join:
    def __init__(
        self, called: tuple[JoinedSide, JoinedSide], names: list[str] | None, on: Column | None, how: str
    ) -> None:
        """``called``: the sides as their user knows them."""
        self.called, self.names, self.how = called, names, how
        left, right = self.sides = (called[LEFT].rows, called[RIGHT].rows)
        self.spark = left._session.spark
        self.sensitive = is_case_sensitive(self.spark)
        streams = (called[LEFT].streams, called[RIGHT].streams)
        by_left = () if how == RIGHT_OUTER else names or ()
        sides = (left._attributes, right._attributes)
        self.itself = WithItself(self.spark, sides, streams, by_left, how != SEMI)
        for name in stream_names(on):
            if self._side_of(name) is None:
                raise not_there(name, [*called[LEFT].shown, *called[RIGHT].shown], on)
            self.itself.refuse_new(name)
        if on is not None and any(side.joined for side in called):  # else Spark sees it in the previews
            self._refuse_shared(on)
        self.on_given, self.on = on, on if on is None else over_rows(called, on)
        self.meaning = Sides((left._preview, right._preview), self._side_of, (left._alias, right._alias))
        self.result = self._analysed()
        self.parts = self._parts()
        self.times: Times = tuple(map(self._time, self.sides, (LEFT, RIGHT)))  # type: ignore[assignment]
        self.ends = until(how, self.parts, self.times)
        if self.parts.behind and how != "inner":
            raise InvalidInputError(_not_apart(how, self.parts.behind[0]))

    def _refuse_shared(self, on: Column) -> None:
        """Raises as Spark does for columns of ``on`` that are of both sides."""
        for part in conjuncts(on):
            with_itself = self.itself.with_itself(part)
            for name in stream_names(part):
                if not with_itself:
                    self.itself.refuse_shared(name)
                for side in self.called if with_itself else ():
                    side.refuse_repeated_name(name)

    def _time(self, rows: CkptDataFrame, side: int) -> str | None:
        """The event time of a side. Of several, the one that the condition compares: Spark sees those that are read
        behind it, and wants one."""
        asked, behind = self.parts.times(side), not rows._lineage.open_watermarks
        found = event_time_among(rows.schema, "one side of a join", asked, behind)
        return None if found is None else found.name

    def _side_of(self, name: Name) -> int | None:
        return side_of(self.called, name)

    def _analysed(self) -> list[T.StructField]:
        """What comes out. Spark raises where it would for batches: names that are not there, or of both sides."""

        def bound(name: Name) -> Column | None:
            side = self._side_of(name) if name.of_stream else None
            return None if side is None else self.meaning.frames[side][name.text]

        one, other = self.meaning.frames
        on: Any = self.names if self.on is None else replaced(self.on, bound)
        found = one.crossJoin(other) if on is None else one.join(other, on, self.how)
        return self._as_shown([f for f in found.schema.fields if f.name not in CONTROL_COLUMNS])

    def _as_shown(self, fields: list[T.StructField]) -> list[T.StructField]:
        """By what each side's user calls its columns. Those that it is joined by come first."""
        names = [f.name for f in fields[: len(self.names or [])]]
        for called, by in self._coming_out():
            pairs = zip(called.rows.columns, called.shown, strict=True)
            names += [shown for column, shown in pairs if column not in by]
        return [T.StructField(n, f.dataType, f.nullable, f.metadata) for n, f in zip(names, fields, strict=True)]

    def _coming_out(self) -> list[tuple[JoinedSide, list[str]]]:
        """The sides whose columns come out, and those of them that the join is by, by names."""
        sides = self.called if self.how != SEMI else self.called[:1]
        names = self.names or []
        return [(s, [column_named(s.rows.columns, name, self.sensitive) or name for name in names]) for s in sides]

    def _parts(self) -> Parts:
        if self.on is None:
            parts = using(self.meaning.frames, self.names or [])
        else:
            parts = split_condition(self.meaning, self.on)
        parts.keys = [_as_key(part) for key in parts.keys for part in self._by_window(key)]
        return parts

    def _by_window(self, key: Key) -> list[Key]:
        """Windows of an event time are two times: as in Spark, their rows end when the watermark passes the end."""
        found = [self.meaning.frames[side].select(key.columns[side]).schema.fields[0] for side in (LEFT, RIGHT)]
        if not any(isinstance(f.dataType, T.StructType) and DELAY_KEY in f.metadata for f in found):
            return [key]
        parts = [tuple(column[part] for column in key.columns) for part in ("start", "end")]
        start, end = (replace(key, columns=part, kind=T.TimestampType(), names=(None, None)) for part in parts)
        return [start, replace(end, ends=True)]

    def made(self, uid: str | None) -> CkptDataFrame:
        grown = grows(self.ends)
        if grown is not None:
            _log.warning("%s", grown)
        made, function, plan = self._operator(uid)
        return self._shown(self._behind(made, function, plan), plan)

    def rows(self, uid: str | None) -> CkptDataFrame:
        """By the names that the operator puts out."""
        made, function, plan = self._operator(uid)
        return self._behind(made, function, plan)

    def of_fewer(self, conditions: Sequence[Sequence[Column]]) -> _Join:
        """The same of rows that satisfy ``conditions``, those of each side."""
        left, right = (side.filtered(found) for side, found in zip(self.called, conditions, strict=True))
        return _Join((left, right), self.names, self.on_given, self.how)

    @property
    def equal(self) -> list[tuple[str, str]]:
        """The columns, one of each side, that it is by."""
        names = (key.names for key in self.parts.keys if not key.null_safe)
        return [(one, other) for one, other in names if one is not None and other is not None]

    def _operator(self, uid: str | None) -> tuple[CkptDataFrame, StreamJoin, JoinPlan]:
        own = (self.sides[LEFT].columns, self.sides[RIGHT].columns)
        columns = JoinColumns(self.how, self.parts, own, self._touches_time)
        prepared = tuple(
            _with_compared(_with_implied(rows, columns, side), columns.sides[side])
            for side, rows in enumerate(self.sides)
        )
        plan = JoinPlan(columns, (prepared[LEFT].schema, prepared[RIGHT].schema), self.ends, self.sensitive)
        lineages = [df._lineage for df in prepared]
        one, other = (i if time else i.with_watermarks_told() for i, time in zip(lineages, self.times, strict=True))
        both = one.union(other, "join")
        made_by, computed = f"a {self.how} join", self._computed()
        function = plan.function(self.result, self.names, bool(both.watermarks), made_by, computed)
        times = tuple(time if side._lineage.watermarks else None for side, time in zip(self.sides, self.times))
        recipes = (prepared[LEFT]._recipe, prepared[RIGHT]._recipe)
        wiring = JoinWiring(recipes, times, both, plan, function)  # type: ignore[arg-type]
        made = _operator(self.sides[LEFT], uid, wiring, self.result)._with(self._attributes(function, plan))
        if any(side._ahead is not None for side in self.sides):
            made._ahead = lambda: AheadOfJoin(self, plan, uid)
        return made, function, plan

    def _computed(self) -> dict[str, str]:
        """What is kept of each side for the condition, as Spark writes it: under another condition it means nothing."""
        return {
            f"{COUNTS[side]}.{name}": str(self.meaning.frames[side].select(column).columns[0])
            for side in (LEFT, RIGHT)
            for name, column in self.parts.computed[side].items()
        }

    def _attributes(self, function: StreamJoin, plan: JoinPlan) -> Attributes:
        """Those of both sides; of a column that both have it is the left one, as in Spark."""
        left, right = (side._attributes for side in self.sides)

        def find() -> list[Attribute]:
            new = {*left.all, *self.itself.new}
            found: list[Attribute] = []
            for one, other in plan.pairs:
                if one is not None and other is not None:
                    found.append(Attribute())
                    continue
                known = left.of(quoted(one)) if one is not None else right.of(quoted(other or ""))
                if known is None or (one is None and known in new):  # classic Spark makes new ones of those
                    known = Attribute(unknown=known is None or not self.itself.classic)
                found.append(known)
            return found

        return Attributes([o.field.name for o in function.output], find, [left, right])

    def _touches_time(self, condition: Column, side: int) -> bool:
        names = names_in(condition) or []
        touched = [column_named(self.sides[side].columns, name.text, self.sensitive) for name in names]
        return self.times[side] is not None and self.times[side] in touched

    # -- behind the operator -----------------------------------------------------------------------------------

    def _behind(self, df: CkptDataFrame, function: StreamJoin, plan: JoinPlan) -> CkptDataFrame:
        """What of an inner join's condition only Spark can tell."""

        def put_out(name: Name) -> Column | None:
            at = self._place(name, plan, True)
            return None if at is None else F.col(quoted(function.output[at].field.name))

        for conjunct in self.parts.behind:
            df = df.where(replaced(conjunct, put_out))
        return df

    def _place(self, name: Name, plan: JoinPlan, bare: bool = False) -> int | None:
        """Where a column comes out that was taken from a stream; ``bare``: any that says which side's it is."""
        column = F.col(name.text)
        if name.of_stream:
            side = self._side_of(name)
            known = None if side is None else self.called[side].known(name)
            if side is not None and known is not None:
                return self._place_of(side, known[0], plan)
        elif bare:
            side = None if self.meaning.constant(column) else self.meaning.side(column)
        else:
            side = None
        found = None if side is None else self.meaning.name(column, side)
        return None if side is None or found is None else self._place_of(side, found, plan)

    def _place_of(self, side: int, column: str, plan: JoinPlan) -> int | None:
        place = plan.place(side, column)
        return self._place_of_equal(side, column, plan) if place is None else place

    def _place_of_equal(self, side: int, column: str, plan: JoinPlan) -> int | None:
        """In an inner join by names the other side's column has the same values."""
        keys = [key.names for key in self.parts.keys if key.names[side] == column and self.names and self.how == INNER]
        other = keys[0][RIGHT if side == LEFT else LEFT] if keys else None
        if other is None:
            return None
        kinds = [frame.schema[name].dataType for frame, name in zip(self.meaning.frames, keys[0], strict=True)]
        return plan.place(RIGHT if side == LEFT else LEFT, other) if kinds[LEFT] == kinds[RIGHT] else None

    def _shown(self, df: CkptDataFrame, plan: JoinPlan) -> CkptDataFrame:
        """With Spark's names, which may come twice."""
        names = tuple(f.name for f in self.result)
        by_names = bool(self.names) and self.how == INNER  # what is shown once may be asked for as either side's
        told = by_names or self.itself.leaves_out
        if list(names) == df.columns and not told and not any(s.rows._alias or s.joined for s in self.called):
            return df
        behind = tuple(one or other or "" for one, other in plan.pairs[len(names) :])
        hiding = frozenset(alias for s in self.called if s.joined is not None for alias in s.joined.hiding)
        made = JoinedNames(df, names, behind, lambda n: self._shown_at(n, plan), self.itself)
        return replace(made, aliases=self._aliases(plan), hiding=hiding).frame()

    def _shown_at(self, name: Name, plan: JoinPlan) -> int | None:
        """Where Spark finds a column that was taken from a stream."""
        if name.table is not None:
            known = [(side, called.known(name)) for side, called in enumerate(self.called)]
            places = [self._place_of(side, found[0], plan) for side, found in known if found is not None]
            return next((at for at in places if at is not None), None)
        column = self.itself.of_left(name)
        return self._place(name, plan) if column is None else self._place_of(LEFT, column, plan)

    def _aliases(self, plan: JoinPlan) -> dict[str, tuple[tuple[str, int], ...]]:
        """As Spark has them: the columns that the join is by come first."""
        found: dict[str, tuple[tuple[str, int], ...]] = {}
        for side, (called, by) in enumerate(self._coming_out()):
            for alias, columns in called.aliases(by).items():
                places = [(name, self._place_of(side, column, plan)) for name, column in columns]
                there = tuple((name, at) for name, at in places if at is not None)
                found[alias] = (*found.get(alias, ()), *there)
        return found


def _operator(left: CkptDataFrame, uid: str | None, wiring: JoinWiring, shown: list[T.StructField]) -> CkptDataFrame:
    """``shown``: what Spark says of the columns that come out, event times among them."""
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.keyed_operator import checked_uid

    made = joined_rows(wiring, checked_uid(uid), shown)
    preview = left._session.preview(with_control(made.schema))
    return CkptDataFrame(left._session, made.recipe, made.lineage, preview)


def _with_implied(rows: CkptDataFrame, columns: JoinColumns, side: int) -> CkptDataFrame:
    """Not behind another operator with state: that would be made anew each time, and all in front of it, too."""
    if rows._ahead is None or rows._lineage.operators:
        return rows
    return with_implied(rows, columns.implied(side, lambda column: null_without(rows._in_spark(), column)))


def _with_compared(df: CkptDataFrame, found: SideColumns) -> CkptDataFrame:
    """``df`` with what the join compares, which may fail for rows that the side's own conditions leave out: Spark has
    these in front."""
    first = {name: found.computed[name] for name in found.true}
    others = {name: column for name, column in found.computed.items() if name not in first}
    if not (first and others):
        return _with(df, found.computed)
    goes_on = reduce(and_, map(F.col, first))
    return _with(_with(df, first), {name: F.when(goes_on, column) for name, column in others.items()})


def _with(df: CkptDataFrame, computed: dict[str, Column]) -> CkptDataFrame:
    safe = computed | of_data_rows(df._preview, df._nodes, computed)
    return df._operation("join", lambda rows: rows.withColumns(safe), check=True) if computed else df


def _as_key(key: Key) -> Key:
    """State is found by flat columns; what is none goes by what is written of it."""
    if is_key(key.kind):
        return key
    columns = tuple(F.when(c.isNotNull(), as_text("join", written(c), c, key.kind)) for c in key.columns)
    return replace(key, columns=columns, kind=T.StringType(), names=(None, None))


def _not_apart(how: str, condition: Column) -> str:
    return (
        f"join: {written(condition)} mixes columns of both streams, so only Spark can compute it, and a "
        f"{how} join has to know it earlier. Have one stream on each side of a comparison, as in "
        'a["at"] <= b["at"] + F.expr("interval 1 hour"); what an inner join gives can be filtered by anything'
    )
