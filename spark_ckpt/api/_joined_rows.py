"""Rows whose names do not say which column is meant, where each column gets a name of its own. Driver.

Behind a join of streams it has one already; behind a projection in which names come twice, and where aliases, or ids of
a table's columns, have to be known further on, it gets one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spark_ckpt.api._joined_columns import Qualified
from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.plan.attributes import same
from spark_ckpt.plan.columns import is_repeated
from spark_ckpt.plan.join_columns import unlike
from spark_ckpt.plan.join_itself import WithItself
from spark_ckpt.plan.qualifiers import qualifiers
from spark_ckpt.types import CONTROL_COLUMNS

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


def joined_names(df: CkptDataFrame) -> JoinedNames | None:
    """Rows with the columns that ``df`` shows, right behind a join or where a projection has names twice. None: its
    names alone say which column is meant."""
    if df._joined is not None:
        return df._joined._of(list(range(len(df._joined.shown))), len(df._joined.shown))
    if not is_repeated(df.columns, df._session.spark):
        return None
    names, places = unlike(df.columns, 0), range(len(df.columns))
    unique = df._operation("names of their own", lambda rows: rows.toDF(*names, *CONTROL_COLUMNS))
    unique._with(same(df._attributes, places, names))
    return _by_names(unique, df)


def _by_names(unique: CkptDataFrame, shown: CkptDataFrame | None = None) -> JoinedNames:
    """Of rows whose columns have names of their own; ``shown`` has what its user calls them."""
    shown = shown or unique
    attributes = (unique._attributes, unique._attributes)
    no_join = WithItself(unique._session.spark, attributes, (frozenset(), frozenset()), (), both=False)
    return JoinedNames(unique, tuple(shown.columns), (), shown._attributes.place, no_join)


def behind_table(df: CkptDataFrame) -> JoinedNames | None:
    """As :func:`joined_names`, and behind a join with a table, for what goes on where Spark does not know that:
    aliases, and the table's columns."""
    if df._joined is not None or not is_behind_table(df):
        return joined_names(df)
    found, made = qualifiers(df._preview), joined_names(df) or _by_names(df)
    return replace(made, aliases=found.aliases, hiding=found.hiding)


def aliased(
    rows: CkptDataFrame,
    aliases: dict[str, Qualified],
    tables: tuple[Any, ...] = (),
    lost: tuple[Any, ...] = (),
) -> CkptDataFrame:
    """``rows``, some of whose columns aliases stand in front of."""
    if not any(aliases.values()):
        return rows
    made = joined_names(rows) or _by_names(rows)
    return replace(made, aliases=aliases, tables=tables, lost=lost).frame()


def called(rows: CkptDataFrame, names: list[str]) -> CkptDataFrame:
    """``rows``, whose columns have names of their own, by ``names``, of which some may come twice."""
    if rows.columns == names:
        return rows
    if rows._joined is None and not is_repeated(names, rows._session.spark):
        renamed = rows._columns(rows.columns, names)
        return renamed._with(same(rows._attributes, range(len(names)), names))
    made = rows._joined or _by_names(rows)
    unique = made._renamed([*unlike(names, 0), *made.unique.columns[len(names) :]])
    return replace(made, unique=unique, shown=tuple(names)).frame()


def is_behind_table(df: CkptDataFrame) -> bool:
    """Where classic Spark knows aliases of the stream and of the table."""
    return df._stream_side is not None and hasattr(df._preview, "_jdf")
