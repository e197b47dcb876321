"""Methods of PySpark's DataFrame that choose, compute, rename and drop columns. Driver only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.api._ahead import Computed
from spark_ckpt.api._left_out import behind_replaced, left_out
from spark_ckpt.api._read_by_spark import behind, with_file_columns, without_metadata
from spark_ckpt.api._watermark import behind_operation
from spark_ckpt.api._window_columns import replaced_by_name, with_windows, without_window
from spark_ckpt.plan.attributes import missing
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import everything, is_plain, is_repeated, listed, quoted, refuse_control
from spark_ckpt.plan.fails_on_nulls import for_data_rows_only
from spark_ckpt.plan.spark_errors import not_expected
from spark_ckpt.plan.stars import may_have_star, with_stars
from spark_ckpt.runtime.stateless import Project
from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


class Projections:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def select(self: Any, *cols: Any) -> CkptDataFrame:
        """As PySpark's: ``cols`` are names, ``"*"`` and expressions, one by one or as a list.

        Nothing but aggregates is :meth:`agg` of them. Raises ``InvalidInputError`` for what could lose or double a
        barrier, such as a window function.
        """
        flat = with_stars(listed(cols), self._recipe.number, others=self._joined is None)
        if self._joined is not None:
            return self._joined.select(flat)
        by_spark = with_file_columns(self, flat)
        if by_spark is not None:
            return by_spark.select(*_named(flat, self.columns))
        made = self._selected(self._told_apart(flat))
        if made._lineage.operators == self._lineage.operators:  # no aggregates
            made._reread = behind(self, made, lambda rows, more: rows.select(*_named(flat, self.columns), *more))
        return made

    def _selected(self: Any, flat: list[Any]) -> CkptDataFrame:
        wanted: list[Any] = []
        for c in flat:
            wanted.extend(self._all_columns() if isinstance(c, str) and c == "*" else self._of_alias(c))
        if all(isinstance(c, str) and is_plain(c, self.columns) for c in wanted):
            return self._columns(wanted)
        windowed = with_windows(self, wanted)
        if windowed is not None:
            df, columns = windowed
            return without_window(df.select(*columns))
        wanted = for_data_rows_only(self._preview, self._nodes, self._in_spark(), wanted)
        control = [] if self._has_star(wanted) else [TAG, CTL]
        try:
            made = self._operation(
                "select", lambda df: df.select(*wanted, *control), check=True, computed=_one_by_one(wanted)
            )
        except AnalysisException as error:
            if error.getCondition() != "MISSING_GROUP_BY":
                raise
            _ = self._in_spark().select(*wanted).columns  # raises as Spark does
            return self.groupBy().agg(*wanted)
        made._wider = left_out(self, made, lambda rows, more: rows.select(*wanted, *_called(more.items())))
        return made

    def _all_columns(self: Any) -> list[Column]:
        names = self.columns
        # Behind a join, a name may come twice.
        return [everything()] if is_repeated(names, self._session.spark) else [F.col(quoted(n)) for n in names]

    def _of_alias(self: Any, column: Any) -> list[Any]:
        """What ``alias.*`` stands for, one by one: rows that come out of Python have the alias whole again, and not
        what was renamed behind it."""
        if self._alias is None or not (isinstance(column, str) and column.endswith(".*")):
            return [column]
        found = self._in_spark().select(column).columns
        once = not is_repeated(found, self._session.spark)
        return [F.col(f"{column[:-1]}{quoted(name)}") for name in found] if once else [column]

    def _has_star(self: Any, wanted: list[Any]) -> bool:
        """Whether some ``col("*")`` of Spark's stands for the control columns too."""
        return any(map(may_have_star, wanted)) and TAG in self._preview.select(*wanted).columns

    def _columns(self: Any, names: list[str], renamed: list[str] | None = None) -> CkptDataFrame:
        """Some of the columns, where the rows are; under other names if there are any."""
        parent = self._recipe
        wanted, called = [*names, TAG, CTL], [*(renamed or names), TAG, CTL]

        def in_spark(df: SparkDF) -> SparkDF:
            return df.select(*_called(zip(wanted, called, strict=True)))

        preview = in_spark(self._preview)

        def make(ctx: Any) -> Chain:
            project = Project(wanted, renamed and called)
            return ctx.chain(parent).either(project, in_spark, preview.schema, self._known_as(preview))

        made = self._made(Recipe(make, (parent,)), self._lineage, preview)
        made._ahead = behind_operation(self, made, lambda rows: rows._columns(names, renamed))
        new = renamed or names
        made._wider = left_out(self, made, lambda rows, more: rows._columns([*names, *more], [*new, *more.values()]))
        return made

    def selectExpr(self: Any, *expr: str | list[str]) -> CkptDataFrame:
        """:meth:`select` of SQL texts, as PySpark's: ``expr`` such as ``"*", "price * n as total"``, or a list."""
        return self.select(*[e if e == "*" else F.expr(e) for e in listed(expr)])

    def withColumn(self: Any, colName: str, col: Column) -> CkptDataFrame:
        """As PySpark's: expression ``col`` as column ``colName``. Raises as :meth:`select`."""
        return self.withColumns({colName: col})

    def withColumns(self: Any, *colsMap: dict[str, Column]) -> CkptDataFrame:
        """As PySpark's: ``colsMap`` is name -> expression. Raises as :meth:`select`."""
        assert len(colsMap) == 1
        (columns,) = colsMap
        if not isinstance(columns, dict):
            raise not_expected("colsMap", "dict", columns)
        wrong = [column for column in columns.values() if not isinstance(column, Column)]
        if wrong:
            raise not_expected("col", "Column", wrong[0])
        refuse_control(columns)
        if self._joined is not None:
            return self._joined.with_columns(columns)
        by_spark = with_file_columns(self, list(columns.values()))
        if by_spark is not None:
            return without_metadata(by_spark.withColumns(columns))
        told = dict(zip(columns, self._told_apart(list(columns.values())), strict=True))
        made = self._with_computed(told)
        made._reread = behind(self, made, lambda rows, _: rows.withColumns(columns))
        return made

    def _with_computed(self: Any, columns: dict[str, Column]) -> CkptDataFrame:
        windowed = with_windows(self, list(columns.values()))
        if windowed is not None:
            df, found = windowed
            return df.select(*replaced_by_name(self, dict(zip(columns, found, strict=True))))
        safe = for_data_rows_only(self._preview, self._nodes, self._in_spark(), list(columns.values()))
        columns = dict(zip(columns, safe, strict=True))
        made = self._operation(
            "withColumn",
            lambda df: df.withColumns(columns),
            check=True,
            computed=lambda names: {at: columns[name] for at, name in enumerate(names) if name in columns},
        )
        low = {name.lower() for name in self.columns}
        if self._wider is not None or any(name.lower() in low for name in columns):
            made._wider = behind_replaced(self, made, lambda rows: rows.withColumns(columns))
        return made

    def withColumnRenamed(self: Any, existing: str, new: str) -> CkptDataFrame:
        """As PySpark's: ``existing`` is called ``new``; nothing happens if there is no such column."""
        return self.withColumnsRenamed({existing: new})

    def withColumnsRenamed(self: Any, colsMap: dict[str, str]) -> CkptDataFrame:
        """As PySpark's: ``colsMap`` is old name -> new one."""
        if not isinstance(colsMap, dict):
            raise not_expected("colsMap", "dict", colsMap)
        refuse_control([*colsMap, *colsMap.values()])
        if self._joined is not None:
            return self._joined.renamed(colsMap)
        made = self._operation("withColumnsRenamed", lambda df: df.withColumnsRenamed(colsMap))
        made._wider = behind_replaced(self, made, lambda rows: rows.withColumnsRenamed(colsMap))
        made._reread = behind(self, made, lambda rows, _: rows.withColumnsRenamed(colsMap))
        return made

    def drop(self: Any, *cols: Any) -> CkptDataFrame:
        """As PySpark's: without ``cols``; nothing happens for those that are not there."""
        refuse_control([c for c in cols if isinstance(c, str)])
        if self._joined is not None:
            return self._joined.drop(list(cols))
        gone = self._told_apart([c for c in cols if not missing(self._attributes, c)])
        made = self._operation("drop", lambda df: df.drop(*gone))
        kept = made.columns
        made._wider = left_out(self, made, lambda rows, more: rows._columns([*kept, *more], [*kept, *more.values()]))
        made._reread = behind(self, made, lambda rows, more: rows._columns([*kept, *more]))
        return made

    def toDF(self: Any, *cols: str) -> CkptDataFrame:
        """As PySpark's: all columns under new names ``cols``, in order. Raises as Spark for too many or too few."""
        _ = self._in_spark().toDF(*cols).columns  # raises as Spark does
        refuse_control(cols)
        made = self._operation("toDF", lambda df: df.toDF(*cols, TAG, CTL))
        old = self.columns
        made._wider = left_out(self, made, lambda rows, more: rows._columns([*old, *more], [*cols, *more.values()]))
        return made

    def to(self: Any, schema: StructType) -> CkptDataFrame:
        """As PySpark's: the columns of ``schema``, by their names, in its order and cast to its types, fields of
        structs among them; null for what is not there. Raises as Spark does for what cannot be cast."""
        _ = self._in_spark().to(schema).columns  # raises as Spark does
        wanted = StructType([*schema.fields, *(self._preview.schema[name] for name in CONTROL_COLUMNS)])
        return self._operation("to", lambda df: df.to(wanted), check=True)


def _named(cols: list[Any], columns: list[str]) -> list[Any]:
    """``cols`` with what a ``"*"`` among them stands for."""
    stars = {"*": [quoted(name) for name in columns]}
    return [one for c in cols for one in stars.get(c if isinstance(c, str) else "", [c])]


def _one_by_one(wanted: list[Any]) -> Computed:
    """A column for each of ``wanted``, unless a star or a generator makes several."""
    columns = [F.col(c) if isinstance(c, str) else c for c in wanted]
    return lambda names: dict(enumerate(columns)) if len(names) == len(columns) else {}


def _called(names: Iterable[tuple[str, str]]) -> list[Column]:
    """Columns, and what each is to be called."""
    return [F.col(quoted(old)) if old == new else F.col(quoted(old)).alias(new) for old, new in names]
