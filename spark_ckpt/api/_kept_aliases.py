"""An alias stands in front of columns, also where an operator hands them on: ``a.alias("x")``, then ``x.k``. Driver.

As in Spark it counts first: ``x.k`` is no field of a column that is called ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.api._joined_rows import aliased, is_behind_table
from spark_ckpt.plan.columns import quoted, unquoted, user_columns
from spark_ckpt.plan.condition import Name, parts_of
from spark_ckpt.plan.qualifiers import qualifiers
from spark_ckpt.plan.trying import unlogged

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


def handed_on(
    made: CkptDataFrame, before: CkptDataFrame, places: Mapping[int, int], joined: JoinedNames | None = None
) -> CkptDataFrame:
    """``made`` by an operator that puts out columns of ``before``, at ``places`` by those where they were, with what
    aliases stand in front of these. ``joined``: whose names of their own the columns have."""
    joined = joined or before._joined
    if joined is not None:
        return aliased(made, joined.aliases_at(places))
    if is_behind_table(before):
        found = qualifiers(before._preview).aliases
        stood = {alias: tuple((n, places[at]) for n, at in columns if at in places) for alias, columns in found.items()}
        return aliased(made, stood)
    own = ((name, before.columns.index(name)) for name in qualified_columns(before) if name in before.columns)
    return aliased(made, {str(before._alias): tuple((name, places[at]) for name, at in own if at in places)})


def without_alias(df: CkptDataFrame, name: str) -> tuple[CkptDataFrame, str]:
    """The rows in which the column, or field, that ``name`` is has a name of its own, and that: without the alias, if
    one stands in front."""
    first, *others = [unquoted(part) for part in parts_of(name)] or [name]
    if not others:
        return df, name
    joined = df._joined
    if joined is not None:
        found = joined.known(Name(name)) if joined.has_alias(Name(name)) else None
        return (df, name) if found is None else (joined.unique, _text(joined.unique.columns[found[0]], *found[1]))
    return df, _text(*others) if others[0].lower() in _stood(df, first) else name


def _stood(df: CkptDataFrame, alias: str) -> set[str]:
    """The columns, in small letters, that the alias stands in front of, and whose names alone say the same."""
    if df._alias is not None or not is_behind_table(df):
        return (
            {column.lower() for column in qualified_columns(df)} if str(df._alias).lower() == alias.lower() else set()
        )
    low = [column.lower() for column in df.columns]
    found = qualifiers(df._preview).aliases
    names = {name.lower() for known in found if known.lower() == alias.lower() for name, _ in found[known]}
    return {name for name in names if low.count(name) == 1}


def bare_key(df: CkptDataFrame, key: Any) -> Any:
    """A text that is a column behind an alias, as that column."""
    return without_alias(df, key)[1] if isinstance(key, str) and df._joined is None else key


def _text(*parts: str) -> str:
    return ".".join(map(quoted, parts))


def qualified_columns(df: CkptDataFrame) -> list[str]:
    """The columns that the alias stands in front of: not those that were computed behind it."""
    try:
        with unlogged():
            return [] if df._alias is None else user_columns(df._preview.select(f"{quoted(df._alias)}.*").columns)
    except AnalysisException:  # all were
        return []
