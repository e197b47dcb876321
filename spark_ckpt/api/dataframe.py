"""The DataFrame of a checkpointed stream: PySpark's methods, with the control columns kept.

A wrapper DataFrame is a recipe. It is built twice: at once over an empty table, so that names, types and errors are
those of Spark; and at ``start()``, when job, generation and restore point are known, over the real sources.
Driver only. Works with Spark Connect: what is looked at of a plan is its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast, overload

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.api._ahead import Computed, FindAhead, in_front
from spark_ckpt.api._batch_calls import BatchCalls, batch_call
from spark_ckpt.api._distinct import Distinct
from spark_ckpt.api._event_time import EventTime
from spark_ckpt.api._grouping_sets import GroupingSets
from spark_ckpt.api._joins import JoinMethods
from spark_ckpt.api._kept_aliases import bare_key, without_alias
from spark_ckpt.api._keys import called, keys_apart
from spark_ckpt.api._left_out import Wider, behind_missing, behind_row_by_row, filtered_in_front
from spark_ckpt.api._numbered import Numbered
from spark_ckpt.api._ordered import Ordered
from spark_ckpt.api._other_ways import AS_ARGUMENT, WAYS
from spark_ckpt.api._projections import Projections
from spark_ckpt.api._python_functions import PythonFunctions
from spark_ckpt.api._read_by_spark import Reread, behind, with_file_columns, without_metadata
from spark_ckpt.api._rows import RowMethods
from spark_ckpt.api._samples import Samples
from spark_ckpt.api._several_streams import SeveralStreams
from spark_ckpt.api._subtract import Subtract
from spark_ckpt.api._summaries import Summaries
from spark_ckpt.api._views import TempViews
from spark_ckpt.api._watermark import behind_alias, behind_filter, behind_operation
from spark_ckpt.api._window_columns import where_window
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.hints import missing
from spark_ckpt.names import checked_name
from spark_ckpt.plan.again import again
from spark_ckpt.plan.asked_for_data_rows import asked_for_data_rows
from spark_ckpt.plan.attributes import (
    Attributes,
    derived,
    know,
    known,
    new,
    refuse_missing,
    renamed,
    stream_columns,
    with_tables,
)
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import (
    aliased,
    is_plain,
    is_repeated,
    listed,
    ordered,
    proposing_user_columns,
    require_control,
    user_columns,
)
from spark_ckpt.plan.condition import conjuncts, stream_column, stream_star
from spark_ckpt.plan.event_time import without_notes
from spark_ckpt.plan.generators import for_control_rows
from spark_ckpt.plan.in_arrow import Stays, in_arrow
from spark_ckpt.plan.key_columns import is_column
from spark_ckpt.plan.lineage import Lineage, refuse_shared
from spark_ckpt.plan.plan_check import check_operation, plan_nodes
from spark_ckpt.plan.plan_text import Node
from spark_ckpt.plan.refused_types import refuse_unwritable
from spark_ckpt.plan.spark_errors import not_expected
from spark_ckpt.plan.stars import Star, expanded, without_control
from spark_ckpt.plan.static_side import StaticPlace, by_names, pin
from spark_ckpt.plan.udf_plan import for_data_rows
from spark_ckpt.plan.when_made import remember
from spark_ckpt.runtime.operations import Operations
from spark_ckpt.runtime.stateless import (
    arrow_schema,
)
from spark_ckpt.types import CONTROL_COLUMNS, CTL

if TYPE_CHECKING:
    from spark_ckpt.api._joined_names import JoinedNames
    from spark_ckpt.api._joins import StreamSide
    from spark_ckpt.api.grouped import CkptGroupedData
    from spark_ckpt.api.write import CkptDataStreamWriter

SparkDF = Any

_NOT_HERE = (
    "is not there on a checkpointed stream: Spark could drop, double or reorder barriers in it, or no stream of "
    "Spark's has it. Keyed work goes through groupBy(...).aggregate / applyInPandasWithState / "
    "applyInArrowWithState; for what works on each row use select, where, withColumn, mapInArrow, mapInPandas or "
    "transformSpark."
)


class CkptDataFrame(
    Projections,
    RowMethods,
    PythonFunctions,
    JoinMethods,
    SeveralStreams,
    Subtract,
    EventTime,
    Distinct,
    Ordered,
    Numbered,
    Samples,
    Summaries,
    GroupingSets,
    TempViews,
    BatchCalls,
):
    """A stream with barriers in it. Immutable; every method returns a new one."""

    _joined: JoinedNames | None = None
    """Right behind a join, where a name alone does not say which column is meant."""
    _alias: str | None = None
    """What ``alias`` called it: Spark forgets that where rows come out of Python."""
    _stream_side: StreamSide | None = None
    """Behind a join with a static DataFrame."""
    _static_places: tuple[StaticPlace, ...] = ()
    """Where such joins run."""
    _ahead: FindAhead | None = None
    """Where nothing but projections and filters lies behind ``withWatermark``: what was ahead of it."""

    _reread: Reread | None = None
    """Of files that nothing but projections and filters are behind: for Spark to read them, if need be."""
    _wider: Wider | None = None
    """Behind a projection: the same rows with the columns that it left out."""

    def __init__(self, session: Any, recipe: Recipe, lineage: Lineage, preview: SparkDF) -> None:
        self._session = session
        self._recipe = recipe
        self._lineage = lineage
        self._preview = preview
        remember(recipe, session.spark)
        columns = preview.columns
        require_control(columns)
        self._attributes = known(recipe.number) or know(
            recipe.number, new(user_columns(columns), unknown=bool(recipe.parents))
        )

    # -- what it looks like ------------------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What ``isinstance`` asks for: functions that check for a DataFrame of PySpark's take it for one."""
        return DataFrame

    @property
    def schema(self) -> StructType:
        """The user's columns; control columns are not shown."""
        return StructType([f for f in self._preview.schema.fields if f.name not in CONTROL_COLUMNS])

    @property
    def columns(self) -> list[str]:
        """Their names, in order."""
        return user_columns(self._preview.columns)

    @property
    def isStreaming(self) -> bool:
        """Always true."""
        return True

    def printSchema(self, level: int | None = None) -> None:
        """As PySpark's: print the columns as a tree, as deep as ``level``, if it is given."""
        self._in_spark().printSchema(level)

    @overload
    def __getitem__(self, item: int | str) -> Column: ...
    @overload
    def __getitem__(self, item: Column | list[Any] | tuple[Any, ...]) -> CkptDataFrame: ...
    def __getitem__(self, item: Any) -> Any:
        """As PySpark's: the column of a name, a field (``"s.x"``) or a position; of a condition, :meth:`where`; of a
        list, :meth:`select`. Raises as Spark does if there is no such column."""
        if isinstance(item, Column):
            return self.where(item)
        if isinstance(item, list | tuple):
            return self.select(*item)
        if not isinstance(item, int | str):
            raise not_expected("item", "Column, float, integer, list or string", item)
        name = self.columns[item] if isinstance(item, int) else item
        if name == "*":
            return stream_star(self._recipe.number)
        rows, name = without_alias(self, name)
        if rows._is_twice(name) or not (is_plain(name, rows.columns) or is_column(rows._in_spark(), name)):
            _ = rows._in_spark().select(name).columns  # raises as Spark does
        return stream_column(name, rows._recipe.number)

    def _is_twice(self, name: str) -> bool:
        low = [column.lower() for column in self.columns]
        return low.count(name.lower()) > 1 and is_repeated(self.columns, self._session.spark)

    def __dir__(self) -> list[str]:
        """The columns, too, for who completes names."""
        return sorted({*super().__dir__(), *filter(str.isidentifier, self.columns)})

    def __getattr__(self, name: str) -> Column:  # so that a type checker objects where what is misspelt is called
        if name.startswith("_"):
            raise AttributeError(AS_ARGUMENT) if name in ("_jdf", "_get_object_id") else missing(self, name, {})
        refused = batch_call(name)
        if refused is not None:  # as in Spark, a column of that name is got by df["count"]
            return refused
        if name in self.columns:
            return cast("Column", self[name])
        if hasattr(DataFrame, name) and name not in WAYS:
            raise AttributeError(f"DataFrame.{name} {_NOT_HERE}")
        raise missing(self, name, WAYS, self.columns)

    def _arrow_schema(self) -> Any:
        """Of what sinks get: Spark's own notes are not for readers of it.

        Raises ``InvalidInputError`` naming a column that would not be what it is.
        """
        refuse_unwritable(self.schema)
        return arrow_schema(without_notes(self.schema))

    # -- stateless operations ----------------------------------------------------------------------------------

    def _operation(
        self,
        what: str,
        operation: Callable[[SparkDF], SparkDF],
        check: bool = False,
        tried: Callable[[SparkDF], SparkDF] | None = None,
        stays: str = "",
        computed: Computed | None = None,
    ) -> CkptDataFrame:
        """``check``: Spark may have put more into the plan than the method's name says.

        ``tried`` is the same for the preview, if the operation would read something there. ``stays``: why it runs in
        Spark whatever is in it. ``computed``: columns that are known to be expressions over these.
        """
        with proposing_user_columns():
            parent, result = self._recipe, _done(tried or operation, self._preview)
            columns = result.columns
        require_control(columns)
        if check:
            spark_reads = all(source.by_spark for source in self._lineage.sources)
            check_operation(what, self._preview, self._nodes, result, spark_reads)
        preview = ordered(result, columns)
        here = Stays(stays or "it reads something else") if stays or tried else in_arrow(self._preview, preview)
        like = self._known_as(preview)
        again = tried or operation
        pinned = pin(self._static_places, self._preview, result, lambda rows: _done(again, self._aliased(rows)))

        def in_spark(rows: SparkDF) -> SparkDF:
            return ordered(_done(operation, self._aliased(rows)), columns)

        def make(ctx: Any) -> Chain:
            if isinstance(here, Stays):
                return Chain(in_spark(ctx.frame(parent)), preview.schema)
            return ctx.chain(parent).either(Operations(here), in_spark, preview.schema, like)

        place = f"in Spark: {here.why}" if isinstance(here, Stays) else "in Python, if its rows are there"
        place += ", and so do the static joins in front of it" if pinned else ""
        lineage = replace(self._lineage, places=(*self._lineage.places, f"{what}: {place}"))
        made = self._made(Recipe(make, (parent,)), lineage, preview)
        if not (tried or stays):
            made._ahead = behind_operation(
                self, made, lambda rows: rows._operation(what, operation, check=True, computed=computed), computed
            )
        return made

    def _known_as(self, preview: SparkDF) -> SparkDF | None:
        """What columns of an operation's result are known by, where their names may not do."""
        repeated = any(is_repeated(names, self._session.spark) for names in (self._preview.columns, preview.columns))
        return preview if repeated or self._stream_side is not None else None

    def _made(self, recipe: Recipe, lineage: Lineage, preview: SparkDF) -> CkptDataFrame:
        """What this becomes by an operation that keeps the columns' alias."""
        made = CkptDataFrame(self._session, recipe, lineage, preview)
        made._alias, made._stream_side, made._static_places = self._alias, self._stream_side, self._static_places
        return made._with(derived(self._attributes, self._preview, preview, made.columns))

    def _with(self, attributes: Attributes) -> CkptDataFrame:
        """This, whose columns are those."""
        self._attributes = know(self._recipe.number, attributes)
        return self

    def _beside(self, other: CkptDataFrame) -> CkptDataFrame:
        """This, without keyed operators that are in ``other``, too."""
        recipe, lineage = again(self._recipe, self._lineage, other._lineage)
        return self if recipe is self._recipe else self._made(recipe, lineage, self._preview)

    def _told_apart(self, columns: list[Any]) -> list[Any]:
        """What columns stand for: those of this stream, and for a star the user's."""
        columns = [one for column in columns for one in expanded(column, _of_stream)]
        side, columns = self._stream_side, [without_control(column) for column in columns]
        for column in columns:
            refuse_missing(self._attributes, column)
        alias = None if side is None else side.alias
        columns = [with_tables(self._attributes, c, self._preview, alias=alias) for c in columns]
        columns = [renamed(self._attributes, column) for column in columns]
        if side is not None:
            for column in columns:
                side.refuse_others(column, self)
            columns = [side.meant(column, self.columns, self._attributes) for column in columns]
        return [by_names(self._preview, column) for column in columns] if self._static_places else columns

    def _aliased(self, rows: SparkDF) -> SparkDF:
        """``rows`` that come out of Python have names and no alias."""
        return rows if self._alias is None else aliased(rows, self._alias)

    def _for_expressions(self, ctx: Any) -> Chain:
        """The chain, where expressions over its columns are computed in Spark."""
        chain = ctx.chain(self._recipe)
        return chain if self._alias is None else Chain(self._aliased(ctx.for_spark(chain)), chain.schema)

    @cached_property
    def _nodes(self) -> list[Node]:
        return plan_nodes(self._preview)

    def where(self, condition: Column | str) -> CkptDataFrame:
        """As PySpark's: ``condition`` is SQL text or an expression. Control rows pass whatever it says.

        ``filter`` is the same. Raises as :meth:`select`.
        """
        wanted = F.expr(condition) if isinstance(condition, str) else condition
        if self._joined is not None:
            return self._joined.where(wanted)
        by_spark = with_file_columns(self, [wanted])
        if by_spark is not None:
            return cast("CkptDataFrame", without_metadata(by_spark.where(wanted)))
        moved = behind_missing(self, wanted)
        if moved is not None:
            return moved
        (told,) = self._told_apart([wanted])
        made = where_window(self, told) or self._filtered("where", told)
        made._reread = behind(self, made, lambda rows, _: rows.where(wanted))
        if any(node.name == "Filter" and "as boolean" in node.text for node in made._nodes):
            # Beside another condition Spark makes one of a text; by itself it does not.
            _ = self._in_spark().where(told).columns  # raises as Spark does
        return made

    filter = where

    def _filtered(self, what: str, condition: Column) -> CkptDataFrame:
        parts = conjuncts(condition) if self._ahead is not None else []
        try:
            moved = filtered_in_front(self, condition) or in_front(self, parts)
            if moved is not None:
                return moved
            # In this order: what fails on nulls is not even looked at for control rows.
            made = self._operation(what, lambda df: df.where(F.col(CTL).isNotNull() | condition), check=True)
        except AnalysisException:
            _ = self._in_spark().where(condition).columns  # Spark says of the user's condition what is wrong with it
            raise
        made._ahead = behind_filter(self, condition)
        made._wider = behind_row_by_row(self, lambda rows: rows.where(condition))
        return made

    def alias(self, alias: str) -> CkptDataFrame:
        """As PySpark's: columns may then be called ``alias.column``, with ``alias`` as it is given here."""
        joined = None if self._joined is None else self._joined.alias(alias)
        if joined is not None:
            return joined
        made = self._operation("alias", lambda df: aliased(df, alias))
        made._alias = alias
        made._ahead = behind_alias(self, alias)
        return made

    def transform(self, func: Callable[..., CkptDataFrame], *args: Any, **kwargs: Any) -> CkptDataFrame:
        """As PySpark's: ``func(self, *args, **kwargs)``, which gets and returns a checkpointed DataFrame."""
        made = func(self, *args, **kwargs)
        assert isinstance(made, CkptDataFrame), (
            f"Func returned an instance of type [{type(made)}], should have been DataFrame."
        )
        return made

    def transformSpark(self, func: Callable[[SparkDF], SparkDF]) -> CkptDataFrame:
        """Apply ``func`` to the plain Spark DataFrame, control columns included.

        For what this class has no method for. ``func`` must keep every control row (``__ckpt_ctl`` not null) exactly
        once and both control columns; losing the columns raises ``ControlColumnsError`` here, and a plan in which rows
        may be lost or doubled ``InvalidInputError``. It is called twice, here and by ``start``::

            orders.transformSpark(lambda df: df.selectExpr("*", "amount * 2 as twice"))
        """
        done = self._operation("transformSpark", func, check=True, stays="it is asked to")
        code = getattr(func, "__code__", None)
        place = f", {code.co_filename}:{code.co_firstlineno}" if code else ""
        named = f"transformSpark({getattr(func, '__name__', func)}{place})"
        lineage = replace(self._lineage, plain_operations=(*self._lineage.plain_operations, named))
        return CkptDataFrame(self._session, done._recipe, lineage, done._preview)

    def groupBy(self, *cols: Any) -> CkptGroupedData:
        """As PySpark's: ``cols`` are the keys of a stateful operator, columns by name, position or expression.

        Give an expression a name, ``F.lower("customer").alias("buyer")``. Structs and arrays are keys, too, and
        of aggregates maps and intervals; collated strings are none. Several may have one name, for ``agg`` and its
        short forms. Raises ``InvalidInputError`` for others, and for no key::

            orders.groupBy("customer").aggregate(n=agg.count(), spent=agg.sum("amount")).uid("totals")
        """
        from spark_ckpt.api.grouped import CkptGroupedData

        flat = called(self, [bare_key(self, c) for c in listed(cols)])
        if self._joined is not None:
            return self._joined.grouped(flat)
        by_spark = with_file_columns(self, flat)
        if by_spark is not None:
            return cast("CkptGroupedData", by_spark.groupBy(*flat))
        rows, keys, places = keys_apart(self, flat)
        return CkptGroupedData(rows, keys, places=places)

    groupby = groupBy

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: ``groupBy().agg(*exprs, uid=uid)``, one row over everything; ``groupBy`` has the details."""
        return self.groupBy().agg(*exprs, uid=uid)

    def uid(self, uid: str) -> CkptDataFrame:
        """Name the state of the operator that this ends with: ``orders.groupBy("k").agg(...).uid("totals")``.

        Checkpoints know the state by ``uid``, so a changed query finds it again. Call it once, right behind the
        operator. Returns the DataFrame itself. Raises ``TopologyError`` for what is no name or another operator's,
        ``InvalidInputError`` where no operator keeps state.
        """
        checked_name("operator uid", uid, TopologyError)
        if not self._lineage.operators:
            raise InvalidInputError(
                f"uid({uid!r}): expected a DataFrame that ends with an operator that keeps state, such as "
                "groupBy(...).agg(...) or dropDuplicates(...); call uid right behind the operator"
            )
        *others, last = self._lineage.operators
        last.named(uid)
        refuse_shared(others, last)
        return self

    @property
    def writeStream(self) -> CkptDataStreamWriter:
        """Where the rows go: ``.format("delta").option("path", "/lake/orders").queryName("orders").start()``."""
        from spark_ckpt.api.write import CkptDataStreamWriter

        return CkptDataStreamWriter(self)


def _of_stream(star: Star) -> list[Column] | None:
    return None if star.stream is None else stream_columns(star.stream)


def _done(operation: Callable[[SparkDF], SparkDF], rows: SparkDF) -> SparkDF:
    """``operation`` with ``rows``, control rows among them, of which its generators, functions and sub-queries know."""
    return asked_for_data_rows(for_data_rows(for_control_rows(operation(rows), rows), rows), rows)
