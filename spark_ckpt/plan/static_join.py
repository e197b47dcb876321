"""A stream joined with a static DataFrame, so that each control row comes out exactly once. Driver.

A control row matches nothing: the condition says that it is not for them, or their key is null. So a left outer and a
left anti join keep each of them once. An inner join is a left outer join with a column that tells which rows found
something, and a filter behind it; a semi join asks row by row whether there is something, with the static side in a
subquery. Rows may be shuffled in between: order and place mean nothing to a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import aliased, control_last, is_case_sensitive, quoted, user_columns
from spark_ckpt.plan.condition import Name, conjuncts, replaced, shape
from spark_ckpt.plan.fails_on_nulls import data_rows_only, with_values_in_control_rows
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.trying import unlogged
from spark_ckpt.runtime.static_join import ANTI, INNER, LEFT, SEMI
from spark_ckpt.types import CONTROL_COLUMNS, CTL

SparkDF = Any

_MATCH, _OUTER = "__ckpt_match", "__ckpt_left_"
_KINDS = {
    **dict.fromkeys(("inner", "cross"), INNER),
    **dict.fromkeys(("left", "leftouter"), LEFT),
    **dict.fromkeys(("semi", "leftsemi"), SEMI),
    **dict.fromkeys(("anti", "leftanti"), ANTI),
}
_IN_SPARKS_WORDS = {
    **dict.fromkeys(
        ("right", "rightouter"),
        "RightOuter join with a streaming DataFrame/Dataset on the left and a static DataFrame/DataSet on the right "
        "not supported",
    ),
    **dict.fromkeys(
        ("outer", "full", "fullouter"),
        "FullOuter joins with streaming DataFrames/Datasets on the left and a static DataFrame/Dataset on the right is "
        "not supported",
    ),
}


def join_kind(how: str | None) -> str | None:
    """Which join ``how`` is, by any of Spark's names; None if it is none. Raises ``InvalidInputError``."""
    plain = "inner" if how is None else str(how).lower().replace("_", "")
    if plain in _IN_SPARKS_WORDS:
        raise unsupported(
            f"{_IN_SPARKS_WORDS[plain]}: that none of a stream's rows matches is known when it has ended. inner, left, "
            "left_semi, left_anti and cross work"
        )
    return _KINDS.get(plain)


@dataclass(frozen=True)
class StaticJoin:
    """``on``: names that both sides have, a condition, or None for every row with every row. ``safe``: the condition,
    if it fails on nulls, as one that does not fail on control rows. ``alias``: what all columns of the stream are known
    by; None: some are known by one name and some by another, behind a join. ``valued``: those that may have a value in
    control rows, which they lose here (:func:`may_have_values`)."""

    kind: str
    on: list[str] | Column | None
    safe: Column | None = None
    alias: str | None = None
    valued: tuple[str, ...] = ()

    def __call__(self, left: SparkDF, right: SparkDF) -> SparkDF:
        """``left`` has control rows, ``right`` has none."""
        if self.kind == SEMI:
            return self._semi(left, right)
        if self.kind == ANTI:
            return control_last(self._outer(left, right, "left_anti"))
        if self.kind == LEFT:
            return control_last(self._outer(left, right, "left"))
        return _matched(self._outer(left, right.withColumn(_MATCH, F.lit(True)), "left"))

    def condition(self, left: SparkDF) -> list[str] | Column | None:
        """What plain Spark is given to join by, without a word of control rows."""
        return _bound(self.on, left) if isinstance(self.on, Column) else self.on

    def _outer(self, left: SparkDF, right: SparkDF, how: str) -> SparkDF:
        if isinstance(self.on, list):
            nulls = {name: data_rows_only(F.col(quoted(name))) for name in self.valued}
            keyed = left.withColumns(nulls) if nulls else left
            return (keyed if self.alias is None else aliased(keyed, self.alias)).join(right, self.on, how)
        is_data = F.col(CTL).isNull()
        return left.join(right, is_data if self.on is None else _bound(self._safe, left) & is_data, how)

    def _semi(self, left: SparkDF, right: SparkDF) -> SparkDF:
        if isinstance(self.on, list):
            # New columns: behind a semi join table["k"] is not there.
            keys = right.select(*[F.col(quoted(name)).alias(name) for name in self.on]).distinct()
            return replace(self, kind=INNER)(left, keys)
        if self.on is None:
            return left.where(F.col(CTL).isNotNull() | right.exists())
        _ = left.join(right, _bound(self.on, left), "left_semi").columns  # raises as Spark does
        return _existing(left, right, self._safe)

    @property
    def _safe(self) -> Column:
        assert isinstance(self.on, Column)
        return self.on if self.safe is None else self.safe


def for_data_rows(condition: Column, left: SparkDF, right: SparkDF) -> Column:
    """``condition`` as one that is not computed for control rows, which match nothing. What it compares for equality,
    it still does: Spark looks that up."""
    return reduce(and_, [_part_for_data_rows(part, left, right) for part in conjuncts(condition)])


def _part_for_data_rows(part: Column, left: SparkDF, right: SparkDF) -> Column:
    op, args = shape(part) or ("", [])
    of_right = [_can_be_of(right, _bound(arg, left)) for arg in args]
    if op not in ("=", "<=>") or of_right.count(True) != 1:
        return data_rows_only(part)
    one, other = (arg if right_one else data_rows_only(arg) for arg, right_one in zip(args, of_right, strict=True))
    return one == other if op == "=" else one.eqNullSafe(other)


def may_have_values(preview: SparkDF, names: list[str], alias: str | None) -> tuple[str, ...]:
    """The columns of ``preview`` that a join by ``names`` has to null in control rows: a null equals nothing.

    What is computed anew is no more known by the alias that it had. Where all columns have one, they get it again, and
    whatever may have a value in control rows is without it there from now on. So behind a join, what may have one was
    computed behind it, and has no alias in Spark either.
    """
    sensitive, columns = is_case_sensitive(preview.sparkSession), user_columns(preview.columns)
    keys = [column_named(columns, quoted(name), sensitive) for name in names]
    asked = columns if alias is not None else [name for name in keys if name is not None]
    return tuple(with_values_in_control_rows(preview, asked))


def _matched(joined: SparkDF) -> SparkDF:
    kept = joined.where(F.col(CTL).isNotNull() | F.col(_MATCH).isNotNull())
    return control_last(kept.drop(_MATCH))


def _bound(condition: Column, left: SparkDF) -> Column:
    """``stream["k"]`` is a column of the stream, whether the static side has a ``k`` or not."""
    return replaced(condition, lambda name: left[name.text] if name.of_stream else None)


def _existing(left: SparkDF, right: SparkDF, condition: Column) -> SparkDF:
    """In the subquery, names are those of ``right``: what is meant to be of ``left`` gets a name of its own there."""
    outer: dict[str, Column] = {}

    def of_left(name: Name) -> Column | None:
        if not name.of_stream and _is_in(right, name.text):
            return None
        alias = f"{_OUTER}{len(outer)}"
        outer[alias] = F.col(name.text)
        return F.col(alias).outer()

    found = right.where(replaced(condition, of_left)).exists()
    wide = left.withColumns(outer) if outer else left
    return control_last(wide.where(F.col(CTL).isNotNull() | found).drop(*outer))


def _is_in(df: SparkDF, name: str) -> bool:
    return _can_be_of(df, F.col(name))


def _can_be_of(df: SparkDF, column: Column) -> bool:
    try:
        with unlogged():
            return bool(df.select(column).columns)
    except PySparkException:
        return False


def refuse_right_side(right: SparkDF) -> None:
    """Raises ``InvalidInputError`` for what is no static DataFrame, or has columns that barriers have."""
    refuse_no_dataframe("join", right)
    if right.isStreaming:
        raise InvalidInputError(
            "join expects a static DataFrame, found a stream of Spark's own, whose rows have no barriers; read it with "
            "ckpt.readStream"
        )
    taken = [c for c in right.columns if c in (*CONTROL_COLUMNS, _MATCH)]
    if taken:
        raise InvalidInputError(f"the static side has columns {taken}, reserved for the barriers; rename them")


def refuse_no_dataframe(what: str, right: Any) -> None:
    """Raises ``InvalidInputError`` for what is no DataFrame of Spark's."""
    if not issubclass(type(right), DataFrame):  # streams say that they are some
        raise InvalidInputError(f"{what} expects a static DataFrame, found {type(right).__name__}")
