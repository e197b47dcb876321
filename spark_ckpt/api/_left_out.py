"""Filters that look at columns which a projection in front of them left out: Spark lets those through to the filter.

``orders.select("customer").where("amount > 10")`` is an example of Spark's own guide. Driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import missing, same, with_known
from spark_ckpt.plan.columns import free
from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.plan.trying import unlogged

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_LEFT_OUT = "__ckpt_left_out_"
Wider = Callable[[], "CkptDataFrame"]
"""Makes the same rows with the columns that were left out."""
Method = TypeVar("Method", bound=Callable[..., Any])


def left_out(
    df: CkptDataFrame, made: CkptDataFrame, again: Callable[[CkptDataFrame, dict[str, str]], CkptDataFrame]
) -> Wider | None:
    """For ``made``, a projection of ``df``. ``again(rows, more)`` is that projection of other rows, with columns
    ``more`` of them, too, under the names that those have in it."""
    if df._stream_side is not None:
        return None  # behind a join, a name alone may not say which column is meant

    def wider() -> CkptDataFrame:
        rows = df if df._wider is None else df._wider()
        handed_on, more = set(made._attributes.all), dict[str, str]()
        for name, attribute in zip(rows.columns, rows._attributes.all, strict=True):
            if attribute not in handed_on:
                more[name] = _free(name, [*made.columns, *more.values()])
        return with_attributes_of(made, _known_as(again(rows, more), rows, more))

    return wider


def behind_row_by_row(df: CkptDataFrame, again: Callable[[CkptDataFrame], CkptDataFrame]) -> Wider | None:
    """For ``again(df)``, which keeps all columns."""
    find = df._wider
    return find and (lambda: again(find()))


def lets_through(method: Method) -> Method:
    """Of a DataFrame's method that changes no column and looks at none: Spark lets others through it, too."""

    @wraps(method)
    def done(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self, *args, **kwargs)
        made._wider = behind_row_by_row(self, lambda rows: done(rows, *args, **kwargs))
        return made

    return cast(Method, done)


def in_front_of_left_out(df: Any, what: str, given: Sequence[Any]) -> CkptDataFrame | None:
    """``df`` behind its method ``what`` of columns ``given``, where a projection left out some. None: it has them, or
    nobody has."""
    if df._wider is None:
        return None
    if not _lacks(df, given) and plan_nodes(getattr(df._in_spark(), what)(*given))[0].name != "Project":
        return None
    rows = df._wider()
    if _lacks(rows, given):
        return None
    made = cast("CkptDataFrame", getattr(rows, what)(*given)._columns(df.columns))
    return made._with(same(df._attributes, range(len(df.columns)), df.columns))


def _lacks(df: Any, given: Sequence[Any]) -> bool:
    """Whether some of ``given`` is taken from a stream, and not among the columns."""
    return any(missing(df._attributes, column) for column in given if isinstance(column, Column))


def behind_replaced(
    df: CkptDataFrame, made: CkptDataFrame, again: Callable[[CkptDataFrame], CkptDataFrame]
) -> Wider | None:
    """For ``made``, which is ``again(df)``, where other columns may have the names of some: those get names of their
    own."""
    if df._stream_side is not None:
        return None

    def wider() -> CkptDataFrame:
        rows = df if df._wider is None else df._wider()
        handed_on, low, more = set(made._attributes.all), {n.lower() for n in made.columns}, dict[str, str]()
        for name, attribute in zip(rows.columns, rows._attributes.all, strict=True):
            if attribute not in handed_on and (name in df.columns or name.lower() in low):
                more[name] = _free(name, [*rows.columns, *made.columns, *more.values()])
        kept = rows._columns([*rows.columns, *more], [*rows.columns, *more.values()])
        return with_attributes_of(made, again(_known_as(kept, rows, more)))

    return wider


def _free(name: str, taken: Sequence[str]) -> str:
    low = {t.lower() for t in taken}
    return free(f"{_LEFT_OUT}{name}", taken) if name.lower() in low else name


def _known_as(made: CkptDataFrame, rows: CkptDataFrame, more: dict[str, str]) -> CkptDataFrame:
    """``made`` of ``rows``, some of whose columns it has under other names."""
    places = {made.columns.index(name): rows.columns.index(old) for old, name in more.items()}
    made._wider = None
    return made._with(with_known(made._attributes, rows._attributes, places))


def with_attributes_of(made: CkptDataFrame, wider: CkptDataFrame) -> CkptDataFrame:
    """``wider``, in which the columns of ``made`` are those."""
    places = {wider.columns.index(name): at for at, name in enumerate(made.columns)}
    return wider._with(with_known(wider._attributes, made._attributes, places))


def behind_missing(df: CkptDataFrame, condition: Column) -> CkptDataFrame | None:
    """``df`` filtered by ``condition`` in front of what left out, or replaced, columns of a stream that it asks for.
    None: it has them, or nobody has."""
    if df._wider is None or not missing(df._attributes, condition):
        return None
    rows = df._wider()
    return None if missing(rows._attributes, condition) else _filtered_in_front(df, rows, condition)


def filtered_in_front(df: CkptDataFrame, condition: Column) -> CkptDataFrame | None:
    """``df`` filtered by ``condition`` where its columns still are; None if ``df`` has them. Raises Spark's
    ``AnalysisException`` if nobody has."""
    if df._wider is None or _finds(df._preview, condition):
        return None
    rows = df._wider()
    if set(rows.columns) <= set(df.columns):
        raise InvalidInputError(
            f"where: {condition} is of columns that an operation in front left out, one that hides them here and not "
            "in Spark. Filter in front of it, or keep them until then"
        )
    return _filtered_in_front(df, rows, condition)


def _finds(rows: Any, condition: Column) -> bool:
    """Whether these have its columns. Of what is in front of an operator, the plan behind it tells nothing."""
    try:
        with unlogged():
            return plan_nodes(rows.where(condition))[0].name == "Filter"
    except AnalysisException:
        return False


def _filtered_in_front(df: CkptDataFrame, wider: CkptDataFrame, condition: Column) -> CkptDataFrame:
    made = wider.where(condition)._columns(df.columns)
    made._recipe = replace(made._recipe, also=df._recipe.numbers())
    return made._with(same(df._attributes, range(len(df.columns)), df.columns))
