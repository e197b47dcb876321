"""Methods of PySpark's DataFrame that look at each row alone, for a stream with control rows in it. Driver.

Each is Spark's own, told that control rows are none of its business: it leaves the control columns alone, keeps control
rows whatever its condition says, and makes one row of one. What is wrong with arguments Spark itself says, tried on the
preview without the control columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

from pyspark._globals import _NoValue
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from spark_ckpt.api._keeps_columns import keeps_columns
from spark_ckpt.api._left_out import behind_replaced, in_front_of_left_out, lets_through
from spark_ckpt.api._operation import HasOperation
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.attributes import refuse_foreign, renamed
from spark_ckpt.plan.columns import is_repeated, quoted, refuse_control
from spark_ckpt.plan.observed import of_data_rows
from spark_ckpt.plan.ordering import for_data_rows
from spark_ckpt.plan.spark_errors import not_expected
from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName, LiteralType

    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any

_VARIABLE = "__ckpt_variable"
_QUOTED_REGEX = re.compile(r"(?:(.+)\.)?`(.+)`", re.DOTALL)


class RowMethods(HasOperation):
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    @property
    def schema(self) -> StructType:
        raise NotImplementedError

    @property
    def columns(self) -> list[str]:
        raise NotImplementedError

    def _in_spark(self) -> SparkDF:
        """The preview as Spark would have it, without the control columns."""
        return self._preview.drop(*CONTROL_COLUMNS)

    # -- what it looks like ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """As PySpark's: ``DataFrame[id: bigint, v: string]``."""
        return f"DataFrame[{', '.join(f'{name}: {kind}' for name, kind in self.dtypes)}]"

    def isLocal(self) -> bool:
        """As PySpark's: false, as a stream's rows are not the driver's."""
        return False

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """As PySpark's: names and types of the columns."""
        return [(f.name, f.dataType.simpleString()) for f in self.schema.fields]

    def explain(self, extended: bool | str | None = None, mode: str | None = None) -> None:
        """As PySpark's: print Spark's plan, here over an empty table in place of the sources.

        ``extended`` and ``mode`` choose how much of it. ``query.explain()`` has the plan of the running query. Then
        come the filters and computed columns that can run in Python, beside their source or operator, and why others
        cannot.
        """
        print(  # noqa: T201
            "Spark's plan of the operations, with an empty table for the sources and for what runs in Python; "
            "query.explain() prints the plan of the running query."
        )
        self._preview.explain(extended, mode)
        if self._lineage.places:
            print("Where operations on single rows run:", *self._lineage.places, sep="\n  ")  # noqa: T201

    @lets_through
    def observe(self, observation: str, *exprs: Column) -> CkptDataFrame:
        """As PySpark's for streams: aggregates ``exprs`` over the rows of each batch, in its progress under that name.

        ``query.lastProgress.observedMetrics`` and listeners have them. They are of the data rows; a batch that is run
        again after a crash counts again, as in Spark. Raises ``InvalidInputError`` for an ``Observation``, which Spark
        has for batches only, for ``first``, ``last`` and ``any_value``, and on Spark Connect for SQL texts.
        """
        if not isinstance(observation, str):
            raise InvalidInputError(
                "Observation does not support streaming Datasets: give observe a name, and read the metrics of each "
                "batch from query.lastProgress.observedMetrics, or in a listener of ckpt.streams"
            )
        return self._operation(
            "observe",
            lambda df: of_data_rows(df, observation, exprs),
            check=True,
            stays="Spark gathers its metrics",
        )

    def colRegex(self, colName: str) -> Column:
        """As PySpark's: the columns whose names match, for :meth:`select`: ``colName`` is a regex in backticks."""
        if not isinstance(colName, str):
            raise not_expected("colName", "str", colName)
        found = _QUOTED_REGEX.fullmatch(colName)
        if found is None:
            return F.col(colName)
        before = f"{found[1]}." if found[1] else ""
        pattern = f"{before}`(?!(?:{TAG}|{CTL})$)(?:{found[2]})`"
        if type(self._preview).__module__.startswith("pyspark.sql.classic"):
            column: Column = self._preview.colRegex(pattern)
            return column
        from pyspark.sql.connect.column import Column as ConnectColumn
        from pyspark.sql.connect.expressions import UnresolvedRegex

        return ConnectColumn(UnresolvedRegex(pattern))

    # -- values that are missing or to be replaced --------------------------------------------------------------

    @property
    def na(self) -> CkptNaFunctions:
        """As PySpark's: ``na.fill``, ``na.drop`` and ``na.replace``."""
        return CkptNaFunctions(self)

    @keeps_columns("value", "subset", visible=True)
    def fillna(
        self, value: LiteralType | dict[str, LiteralType], subset: str | Sequence[str] | None = None
    ) -> CkptDataFrame:
        """As PySpark's: ``value`` instead of nulls (and NaN) in the columns of its type, or of ``subset``.

        A dict is column -> value.
        """
        refuse_control(value if isinstance(value, dict) else _listed(subset))
        names = subset if subset is not None or isinstance(value, dict) else self._quoted()
        if names is not subset and self._is_repeated():
            return self._operation("fillna", lambda df: _each_filled(df, value), check=True)
        made = self._operation("fillna", lambda df: df.fillna(value, names), check=True)
        made._wider = behind_replaced(cast("CkptDataFrame", self), made, lambda rows: rows.fillna(value, names))
        return made

    @keeps_columns("subset", visible=True, by_all=True)
    def dropna(
        self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None
    ) -> CkptDataFrame:
        """As PySpark's: without rows that have a null (or NaN) in any column, or ``how="all"``.

        ``thresh``: without those that have fewer values than that, whatever ``how`` says. ``subset``: the columns that
        count.
        """
        refuse_control(_listed(subset))
        _ = self._in_spark().dropna(how, thresh, subset).columns  # raises as Spark does
        names = self._quoted() if subset is None else _listed(subset)
        least = thresh if thresh is not None else 1 if how == "all" else len(names)
        kinds = self._preview.select(*[F.col(name) for name in names]).schema.fields
        there = [F.when(_is_there(F.col(name), f.dataType), 1).otherwise(0) for name, f in zip(names, kinds)]
        enough = reduce(add, there, F.lit(0)) >= least
        return self._filtered("dropna", enough)

    @keeps_columns("subset", visible=True)
    def replace(self, to_replace: Any, value: Any = _NoValue, subset: Any = None) -> CkptDataFrame:
        """As PySpark's: ``value`` instead of ``to_replace``, or by a dict of old -> new, in the columns of their type.

        ``subset``: only in these columns.
        """
        refuse_control(_listed(subset))
        names = self._quoted() if subset is None else subset
        given = () if value is _NoValue else (value,)
        made = self._operation("replace", lambda df: df.replace(to_replace, *given, subset=names), check=True)

        def again(rows: Any) -> CkptDataFrame:
            return cast("CkptDataFrame", rows.replace(to_replace, *given, subset=names))

        made._wider = behind_replaced(cast("CkptDataFrame", self), made, again)
        return made

    # -- more rows ----------------------------------------------------------------------------------

    def unpivot(
        self,
        ids: ColumnOrName | Sequence[ColumnOrName],
        values: ColumnOrName | Sequence[ColumnOrName] | None,
        variableColumnName: str,
        valueColumnName: str,
    ) -> CkptDataFrame:
        """As PySpark's: a row for each of the columns ``values``, its name and its value, beside the columns ``ids``.

        ``values=None``: all columns but ``ids``.
        """
        rows = self._in_spark()
        shown = rows.unpivot(ids, values, variableColumnName, valueColumnName).columns  # raises as Spark does
        first = rows.unpivot(ids, values, _VARIABLE, valueColumnName).select(_VARIABLE).limit(1).collect()

        def unpivoted(df: SparkDF) -> SparkDF:
            # A row for each value of a control row, too: it goes on with the first of them. An id may have the name
            # that the variable is to have.
            several = df.unpivot([*_several(ids), TAG, CTL], values, _VARIABLE, valueColumnName)
            kept = several.where(F.col(CTL).isNull() | (F.col(_VARIABLE) == F.lit(first[0][0])))
            return kept.toDF(*shown[:-2], TAG, CTL, *shown[-2:])

        return self._operation("unpivot", unpivoted, check=True)

    melt = unpivot

    # -- what changes no row -------------------------------------------------------------------------------------

    @keeps_columns("columnName")
    def withMetadata(self, columnName: str, metadata: dict[str, Any]) -> CkptDataFrame:
        """As PySpark's: column ``columnName`` with ``metadata``."""
        refuse_control([columnName])
        made = self._operation("withMetadata", lambda df: df.withMetadata(columnName, metadata))

        def again(rows: Any) -> CkptDataFrame:
            return cast("CkptDataFrame", rows.withMetadata(columnName, metadata))

        made._wider = behind_replaced(cast("CkptDataFrame", self), made, again)
        return made

    @keeps_columns()
    @lets_through
    def hint(self, name: str, *parameters: Any) -> CkptDataFrame:
        """As PySpark's: tell Spark's planner ``name`` and ``parameters``."""
        return self._operation("hint", lambda df: df.hint(name, *parameters), check=True)

    @keeps_columns("numPartitions", "cols")
    @lets_through
    def repartition(self, numPartitions: int | ColumnOrName, *cols: ColumnOrName) -> CkptDataFrame:
        """As PySpark's: ``numPartitions`` tasks from here on, rows with the same ``cols`` in the same of them."""
        return self._repartitioned("repartition", numPartitions, *cols)

    @keeps_columns("numPartitions", "cols")
    @lets_through
    def repartitionByRange(self, numPartitions: int | ColumnOrName, *cols: ColumnOrName) -> CkptDataFrame:
        """As PySpark's: tasks from here on have ranges of ``cols``. Spark samples them: it runs what is in front of it,
        back to the last shuffle, twice in each batch, as in its own streams."""
        return self._repartitioned("repartitionByRange", numPartitions, *cols)

    def _repartitioned(self: Any, what: str, *cols: Any) -> CkptDataFrame:
        cols = tuple(renamed(self._attributes, c) if isinstance(c, Column) else c for c in cols)
        wider = in_front_of_left_out(self, what, cols)
        if wider is not None:
            return wider
        given = [self._for_data_rows(c) for c in cols]
        return cast("CkptDataFrame", self._operation(what, lambda df: getattr(df, what)(*given), check=True))

    def _for_data_rows(self: Any, given: Any) -> Any:
        if isinstance(given, Column):
            refuse_foreign(self._attributes, given)
        return for_data_rows(self._preview, self._nodes, given) if isinstance(given, Column) else given

    @keeps_columns("partitionIdCol")
    @lets_through
    def repartitionById(self, numPartitions: int, partitionIdCol: ColumnOrName) -> CkptDataFrame:
        """As PySpark's: ``numPartitions`` tasks from here on; ``partitionIdCol``, an int, says which of them a row goes
        to, modulo their number."""
        if isinstance(partitionIdCol, Column):
            refuse_foreign(cast(Any, self)._attributes, partitionIdCol)
        _ = self._in_spark().repartitionById(numPartitions, partitionIdCol).columns  # raises as Spark does
        given = F.col(partitionIdCol) if isinstance(partitionIdCol, str) else partitionIdCol
        place = F.when(F.col(CTL).isNull(), given).otherwise(F.lit(0))  # for control rows any task will do
        return self._operation("repartitionById", lambda df: df.repartitionById(numPartitions, place), check=True)

    @keeps_columns()
    @lets_through
    def coalesce(self, numPartitions: int) -> CkptDataFrame:
        """As PySpark's: at most ``numPartitions`` tasks from here on, without a shuffle."""
        return self._operation("coalesce", lambda df: df.coalesce(numPartitions), check=True)

    def _is_repeated(self: Any) -> bool:
        return is_repeated(self.columns, self._session.spark)

    def _quoted(self) -> list[str]:
        return [quoted(name) for name in self.columns]


class CkptNaFunctions(Hinting):
    """``df.na``: the same methods by other names."""

    def __init__(self, df: RowMethods) -> None:
        self._df = df

    def fill(
        self, value: LiteralType | dict[str, LiteralType], subset: str | Sequence[str] | None = None
    ) -> CkptDataFrame:
        """``df.fillna``."""
        return self._df.fillna(value, subset)

    def drop(
        self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None
    ) -> CkptDataFrame:
        """``df.dropna``."""
        return self._df.dropna(how, thresh, subset)

    def replace(self, to_replace: Any, value: Any = _NoValue, subset: Any = None) -> CkptDataFrame:
        """``df.replace``."""
        return self._df.replace(to_replace, value, subset)


def _each_filled(df: SparkDF, value: Any) -> SparkDF:
    """All columns but the control columns, of which several have one name."""
    names = df.columns
    places = [name if name in CONTROL_COLUMNS else f"c{at}" for at, name in enumerate(names)]
    filled = df.toDF(*places).fillna(value, [name for name in places if name not in CONTROL_COLUMNS])
    return filled.toDF(*names)


def _is_there(column: Column, kind: Any) -> Column:
    there = column.isNotNull()
    return there & ~F.isnan(column) if isinstance(kind, FloatType | DoubleType) else there


def _listed(subset: Any) -> list[str]:
    if subset is None:
        return []
    if not isinstance(subset, str | list | tuple):
        raise not_expected("subset", "list, str or tuple", subset)
    return [subset] if isinstance(subset, str) else [name for name in subset if isinstance(name, str)]


def _several(columns: Any) -> list[Any]:
    return list(columns) if isinstance(columns, list | tuple) else [columns]
