"""Joins of a stream, with a static DataFrame or another stream. Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._ahead import FindAhead, with_implied
from spark_ckpt.api._joined_tables import with_table
from spark_ckpt.api._operation import HasOperation
from spark_ckpt.api._stream_joins import stream_join
from spark_ckpt.api._watermark import behind_table
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import Attributes, beside_table, not_there, refuse_missing, with_tables
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import aliased, control_last, quoted, refuse_control, unquoted
from spark_ckpt.plan.condition import Name, bare_name, conjuncts, parts_of, replaced, shape, stream_names
from spark_ckpt.plan.fails_on_nulls import may_fail
from spark_ckpt.plan.key_columns import is_column, written
from spark_ckpt.plan.lateral import generator_of, lateral, lateral_kind, refuse_table_function
from spark_ckpt.plan.static_in_arrow import joined_in_arrow
from spark_ckpt.plan.static_join import (
    StaticJoin,
    for_data_rows,
    join_kind,
    may_have_values,
    refuse_no_dataframe,
    refuse_right_side,
)
from spark_ckpt.plan.static_side import StaticPlace
from spark_ckpt.plan.trying import unlogged
from spark_ckpt.runtime.static_join import ANTI, INNER, LEFT, SEMI

if TYPE_CHECKING:
    from spark_ckpt.api._joined_names import JoinedNames
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any
_COMPARISONS = ("=", "<", "<=", ">", ">=")
"""Null of null, so they hold for no null."""


@dataclass(frozen=True)
class StreamSide:
    """Behind a join with a static DataFrame: the stream's columns, which may have the names of others there.

    ``alias`` is what Spark knows them by.
    """

    alias: str

    @classmethod
    def of(cls, alias: str | None) -> StreamSide:
        return cls(alias or "__ckpt_stream")

    def meant(self, column: Any, columns: list[str], attributes: Attributes | None = None) -> Any:
        """``column`` with ``stream["k"]`` told apart from another ``k``. Where its name alone says that it is among
        the ``attributes``, as on Spark Connect, it may be gone and the other be there."""
        if not isinstance(column, Column):
            return column
        low = [c.lower() for c in columns]

        def of_stream(name: Name) -> Column | None:
            if not name.of_stream:
                return None
            twice = low.count(name.text.strip("`").replace("``", "`").lower()) > 1
            by_name = attributes is not None and attributes.by_name_alone(name)
            return F.col(self.qualified(name)) if twice or by_name else None

        return replaced(column, of_stream)

    def qualified(self, name: Name) -> str:
        return f"{quoted(self.alias)}.{name.text}"

    def refuse_others(self, column: Any, rows: CkptDataFrame) -> None:
        """Raises as Spark does for ``stream["k"]``, if the only ``k`` that is left is the table's."""
        for name in stream_names(column):
            if rows._attributes.by_name_alone(name) and not is_column(rows._preview, self.qualified(name)):
                raise not_there(name, rows.columns, column)


class JoinMethods(HasOperation):
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    _joined: JoinedNames | None
    _recipe: Recipe
    _attributes: Attributes
    _alias: str | None
    _stream_side: StreamSide | None
    _static_places: tuple[StaticPlace, ...]
    _ahead: FindAhead | None
    _preview: SparkDF
    _nodes: Any

    @property
    def columns(self) -> list[str]:
        raise NotImplementedError

    def _in_spark(self) -> SparkDF:
        raise NotImplementedError

    def select(self, *cols: Any) -> CkptDataFrame:
        raise NotImplementedError

    def join(
        self,
        other: SparkDF,
        on: str | list[str] | Column | list[Column] | None = None,
        how: str | None = None,
        *,
        uid: str | None = None,
    ) -> CkptDataFrame:
        """As PySpark's. With a static DataFrame ``other``, each batch is joined with what it holds at that time.

        ``on``: names of columns that both have, or conditions; none: every row with every row. ``how``: inner (the
        default), left, left_semi, left_anti or cross. Raises ``InvalidInputError`` for right and full, which no stream
        of Spark's has::

            orders.join(customers, "customer_id", "left")
            orders.join(F.broadcast(rates), (orders["day"] == rates["day"]) & (rates["from"] <= orders["at"]))

        With another stream, each side's rows wait for those of the other: inner, left, right, full or left_semi, with
        at least one equality. With ``withWatermark`` on both sides, and a range of time in the condition or the event
        time among the columns that are equal, rows are forgotten when they can match no more, and those of an outer
        side that matched nothing come out then; else they are kept for ever, and a line in the log says so. ``uid`` is
        the operator's name in checkpoints. Raises ``InvalidInputError`` for what no stream of Spark's has::

            ads = impressions.withWatermark("shown", "10 minutes")
            hits = clicks.withWatermark("at", "20 minutes")
            soon = (hits["at"] >= ads["shown"]) & (hits["at"] <= ads["shown"] + F.expr("interval 1 hour"))
            ads.join(hits, (ads["ad"] == hits["clicked"]) & soon, "left").uid("clicked")
        """
        names = _names(on)
        refuse_control(names or [])
        if isinstance(other, JoinMethods):
            return stream_join(self, other, names, None if names else _condition(on), how, uid)  # type: ignore[arg-type]
        if uid is not None:
            raise InvalidInputError("a join with a static DataFrame keeps no state, so it has no uid")
        kind = join_kind(how)
        refuse_right_side(other)
        if self._joined is not None and kind is not None:
            return with_table(self._joined, other, names or _condition(on), how)
        nothing = other.where(F.lit(False))
        if kind is None or names:
            _ = self._in_spark().join(nothing, on, how).columns  # raises as Spark does
        condition = names if names else _condition(on)
        if isinstance(condition, Column):
            refuse_missing(self._attributes, condition)
        kind = kind or "inner"
        rows: Any = self
        if self._ahead is not None and kind not in (LEFT, ANTI):
            rows = with_implied(rows, _implied(rows, condition))
        return cast("CkptDataFrame", rows._with_static(other, condition, kind))

    def _with_static(self, other: SparkDF, on: list[str] | Column | None, kind: str) -> CkptDataFrame:
        nothing, named = other.where(F.lit(False)), self._stream_side or StreamSide.of(self._alias)
        condition = with_tables(self._attributes, on, self._preview, other, alias=named.alias)
        names = on if isinstance(on, list) else None
        if self._stream_side is not None:
            condition = self._stream_side.meant(condition, self.columns)
        asked = isinstance(condition, Column) and may_fail(condition, self._nodes)
        safe = for_data_rows(condition, self._preview, nothing) if asked else None
        whole = named.alias if self._stream_side is None else self._alias
        valued = may_have_values(self._preview, names, whole) if names else ()
        join = StaticJoin(kind, condition, safe, whole, valued)
        called = self._called(named)
        made = self._operation(
            "join", lambda df: join(called(df), other), tried=lambda df: _tried(join, called(df), nothing)
        )
        left = called(self._preview)
        columns = joined_in_arrow(left, nothing, join.condition(left), join.kind, made._preview)
        made = self._placed(made, StaticPlace(columns, other))
        made._alias, made._stream_side = None, named
        made._with(beside_table(made._attributes))
        made = made if join.kind == LEFT else made._of_all_that_came()
        stream: Any = self
        equal = partial(_equal, stream, on) if kind == INNER and isinstance(on, Column) else None
        made._ahead = behind_table(stream, made, lambda rows: rows._with_static(other, on, kind), equal)
        return made

    def lateralJoin(self, other: SparkDF, on: Column | None = None, how: str | None = None) -> CkptDataFrame:
        """As PySpark's: each row with those of ``other`` that it finds, which may name columns of the stream by
        ``F.col("k").outer()``.

        ``other`` is a generator, or a static DataFrame, which each batch reads again; ``how``: inner (the default),
        cross or left. Raises as Spark does, and ``InvalidInputError`` for what works on a generator before it is
        joined::

            orders.lateralJoin(spark.tvf.explode(F.col("items").outer()).toDF("item"))
            orders.lateralJoin(rates.where(F.col("day") == F.col("ordered").outer()).orderBy("at").limit(1))
        """
        kind = lateral_kind(how)
        refuse_no_dataframe("lateralJoin", other)
        refuse_table_function(other)
        generator = generator_of(other)
        if generator is not None:
            if kind == "left" and on is not None:
                raise InvalidInputError("lateralJoin of a generator, left and with on: no stream of Spark's runs it")
            made = self.select("*", generator)
            return made if on is None else made.where(on)
        named = self._stream_side or StreamSide.of(self._alias)
        called = self._called(named)
        nothing = other.where(F.lit(False))
        made = self._operation(
            "lateralJoin",
            lambda df: lateral(called(df), other, on, kind),
            tried=lambda df: lateral(called(df), nothing, on, kind),
        )
        made._alias, made._stream_side = None, named
        return made if kind == "left" else made._of_all_that_came()

    def _called(self, named: StreamSide) -> Callable[[SparkDF], SparkDF]:
        """Gives rows of the stream the alias of ``named``, if they have none."""
        known = self._stream_side is not None or self._alias is not None
        return lambda df: df if known else aliased(df, named.alias)

    def _of_all_that_came(self: Any) -> CkptDataFrame:
        """The same rows, with watermarks of those that were left out here, too."""
        made: CkptDataFrame = self._made(self._recipe, self._lineage.with_watermarks_told(), self._preview)
        return made

    def _placed(self, made: CkptDataFrame, place: StaticPlace) -> CkptDataFrame:
        """``made``, a join in Spark, in Python where the rows are there and the static side comes there."""
        parent, in_spark, like = self._recipe, made._recipe, made._preview

        def make(ctx: Any) -> Chain:
            return place.joined(ctx, ctx.chain(parent), like.schema, like) or in_spark.make(ctx)

        lineage = replace(made._lineage, places=(*self._lineage.places, f"join: {place.told}"))
        placed = made._made(Recipe(make, (parent,)), lineage, like)
        placed._static_places = (*self._static_places, place)
        return placed

    def crossJoin(self, other: SparkDF) -> CkptDataFrame:
        """As PySpark's: every row with every row of the static DataFrame ``other``."""
        return self.join(other, how="cross")


def _tried(join: StaticJoin, left: SparkDF, nothing: SparkDF) -> SparkDF:
    """The preview behind it, which is not to read the static side: ``nothing`` has its columns. Behind semi and anti
    joins it is without them: what is twice in a plan gets new ids from Spark, but not in plans of streams, and behind
    a further join with the table nobody would know ``table["k"]``."""
    found = join(left, nothing)
    if join.kind not in (SEMI, ANTI):
        return found
    names = join.on if isinstance(join.on, list) else []
    nobody = left.sparkSession.createDataFrame([], nothing.select(*map(quoted, names)).schema)
    return control_last(left.join(nobody, names, "left_anti") if names else left)


def _implied(stream: Any, on: list[str] | Column | None) -> list[Column]:
    """What is true of all rows of ``stream`` that find some of a table, as far as Spark infers it."""
    if not isinstance(on, Column):
        return [F.col(quoted(name)).isNotNull() for name in on or []]
    return [condition for part in conjuncts(on) for condition in _of_stream(stream, part)]


def _equal(stream: Any, on: Column, names: Sequence[str]) -> dict[int, Column]:
    """Of columns by these names, by their places: those of the table that are equal to some of ``stream`` in all rows
    that come out of an inner join. Asks Spark what each is of, so only if somebody filters behind it."""
    found: dict[str, Column] = {}
    for op, args in filter(None, map(shape, conjuncts(on))):
        sides = [_told(stream, arg) if bare_name(arg) else [] for arg in args]
        if op == "=" and [] in sides and any(sides):
            table = args[sides.index([])]
            found[unquoted(parts_of(written(table))[-1])] = next(filter(None, sides))[0]
    return {at: found[name] for at, name in enumerate(names) if name in found}


def _of_stream(stream: Any, part: Column) -> list[Column]:
    """``part`` of a condition, and that what it compares is there, if they are of ``stream`` alone."""
    op, args = shape(part) or ("", [])
    compared = [arg.isNotNull() for arg in args if op in _COMPARISONS and bare_name(arg)]
    return [found for condition in (part, *compared) for found in _told(stream, condition)]


def _told(stream: Any, column: Column) -> list[Column]:
    """``column`` as the stream's; none if it is the table's."""
    with suppress(PySparkException), unlogged():
        found: list[Column] = stream._told_apart([column])
        _ = stream._preview.select(*found).columns
        return found
    return []


def _names(on: Any) -> list[str] | None:
    if isinstance(on, str):
        return [on]
    return list(on) if isinstance(on, list | tuple) and on and all(isinstance(c, str) for c in on) else None


def _condition(on: Any) -> Column | None:
    if on is None or isinstance(on, Column):
        return on
    if isinstance(on, list | tuple) and all(isinstance(c, Column) for c in on):
        return reduce(lambda one, two: one & two, on) if on else None
    raise InvalidInputError(f"join expects on= names or conditions, found {on!r}")
