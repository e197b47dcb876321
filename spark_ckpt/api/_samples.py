"""``sample``, ``sampleBy`` and ``df.stat`` of a checkpointed stream. Driver only.

Rows are drawn anew with every batch, as all that is random is in Spark's streams; control rows are not drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._keeps_columns import keeps_columns
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.types import CTL

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName

    from spark_ckpt.api.dataframe import CkptDataFrame

_FREQUENT = 'the values that are frequent are the first of groupBy("v").count()'
_STATISTIC = (
    "it is a batch's: agg(F.percentile_approx(...)), agg(F.corr(...)) and agg(F.covar_samp(...)) are a stream's, and "
    "describe and summary; or read the sink. sampleBy is there"
)


class Samples:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    @keeps_columns()
    def sample(
        self: Any,
        withReplacement: float | bool | None = None,
        fraction: int | float | None = None,
        seed: int | None = None,
    ) -> CkptDataFrame:
        """As PySpark's: each row with a chance of ``fraction``; ``sample(False, 0.1)`` is the same as ``sample(0.1)``.

        ``seed`` is taken, but rows are drawn anew with every batch, as all that is random is in Spark's streams. Raises
        ``InvalidInputError`` for ``withReplacement=True``.
        """
        _ = self._in_spark().sample(withReplacement, fraction, seed).columns  # raises as Spark does
        if isinstance(withReplacement, float):  # Spark takes sample(fraction, seed), too
            return _drawn(self, "sample", F.lit(withReplacement), seed if fraction is None else int(fraction))
        if withReplacement:
            raise InvalidInputError(
                "sample(withReplacement=True) is not there on a checkpointed stream: it draws rows several times, "
                "control rows among them; use sample(fraction)"
            )
        return _drawn(self, "sample", F.lit(fraction), seed)

    @keeps_columns("col")
    def sampleBy(
        self: Any, col: ColumnOrName, fractions: Mapping[Any, float], seed: int | None = None
    ) -> CkptDataFrame:
        """As PySpark's: each row with the chance that ``fractions`` gives to its value of ``col``, none if it is not
        there. ``seed`` as in :meth:`sample`. Raises as Spark does for chances that are none."""
        _ = self._in_spark().sampleBy(col, fractions, seed).columns  # raises as Spark does
        column = F.col(col) if isinstance(col, str) else col
        (column,) = self._told_apart([column])
        kind = self._preview.select(column).schema.fields[0].dataType
        chance = F.lit(0.0)
        for value, fraction in fractions.items():
            if _comparable(kind, value):
                chance = F.when(column == F.lit(value), F.lit(float(fraction))).otherwise(chance)
        return _drawn(self, "sampleBy", chance, seed)

    @property
    def stat(self: Any) -> CkptStatFunctions:
        """As PySpark's, as far as streams have it: ``df.stat.sampleBy``."""
        return CkptStatFunctions(self)


class CkptStatFunctions(Hinting):
    """``df.stat``: ``sampleBy``."""

    _ways: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("approxQuantile", "corr", "cov", "crosstab"), _STATISTIC),
        "freqItems": _FREQUENT,
    }

    def __init__(self, df: CkptDataFrame) -> None:
        self._df = df

    def sampleBy(self, col: ColumnOrName, fractions: Mapping[Any, float], seed: int | None = None) -> CkptDataFrame:
        """``df.sampleBy``."""
        return self._df.sampleBy(col, fractions, seed)


def _drawn(df: CkptDataFrame, what: str, chance: Column, seed: int | None) -> CkptDataFrame:
    drawn = F.rand(random.getrandbits(62) if seed is None else seed) < chance
    return df._operation(what, lambda rows: rows.where(F.col(CTL).isNotNull() | drawn), check=True)


def _comparable(kind: T.DataType, value: Any) -> bool:
    """Values of other kinds are never equal in Spark's ``sampleBy``; in an expression it would cast one of them."""
    if isinstance(value, bool):
        return isinstance(kind, T.BooleanType)
    if isinstance(value, int | float):
        return isinstance(kind, T.NumericType)
    return isinstance(kind, T.StringType) == isinstance(value, str)
