"""Which of Spark's aggregate functions there are, and what computes them here."""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.kinds import COMOMENTS

KINDS = {
    "any": "max",
    "any_value": "first",
    "approx_count_distinct": "approx_count_distinct",
    "approx_percentile": "percentile_approx",
    "array_agg": "collect_list",
    "avg": "mean",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    "bitmap_and_agg": "bitmap_and_agg",
    "bitmap_construct_agg": "bitmap_construct_agg",
    "bitmap_or_agg": "bitmap_or_agg",
    "bool_and": "min",
    "bool_or": "max",
    "collect_list": "collect_list",
    "collect_set": "collect_set",
    "corr": "corr",
    "count": "count",
    "count_if": "count",
    "covar_pop": "covar_pop",
    "covar_samp": "covar_samp",
    "every": "min",
    "first": "first",
    "first_value": "first",
    "kurtosis": "kurtosis",
    "last": "last",
    "last_value": "last",
    "listagg": "collect_list",
    "max": "max",
    "max_by": "max_by",
    "mean": "mean",
    "median": "percentile",
    "min": "min",
    "min_by": "min_by",
    "mode": "mode",
    "percentile": "percentile",
    "percentile_approx": "percentile_approx",
    "percentile_cont": "percentile",
    "percentile_disc": "percentile_disc",
    "product": "product",
    **{name: name for name in COMOMENTS if name.startswith("regr_")},
    "regr_avgx": "mean",
    "regr_avgy": "mean",
    "regr_count": "count",
    "skewness": "skewness",
    "some": "max",
    "std": "stddev",
    "stddev": "stddev",
    "stddev_pop": "stddev_pop",
    "stddev_samp": "stddev",
    "string_agg": "collect_list",
    "sum": "sum",
    "try_avg": "try_mean",
    "try_sum": "try_sum",
    "var_pop": "var_pop",
    "var_samp": "variance",
    "variance": "variance",
}
"""Spark's name of a function -> the kind of :class:`spark_ckpt.agg.AggSpec`."""

OF_ONE_OF_TWO = {"regr_avgx": 1, "regr_avgy": 0}
"""Functions of one of their two arguments, where neither is null."""

PAIRED = ("min_by", "max_by", *COMOMENTS)
"""Kinds of two arguments."""

LISTED = ("listagg", "string_agg")
"""Functions whose result is computed of the list that is kept."""

OF_DOUBLES = ("product", "kurtosis", "skewness", "stddev", "stddev_pop", "var_pop", "variance", *COMOMENTS)
"""Kinds whose arguments Spark casts to double, and so do ours."""

DISTINCT = {
    **dict.fromkeys(("min", "max", "bit_and", "bit_or", "collect_set")),  # where it makes no difference
    **dict.fromkeys(("bitmap_construct_agg", "bitmap_or_agg", "bitmap_and_agg")),
    "collect_list": "collect_set",
    **{
        kind: f"{kind}_distinct"
        for kind in (
            "count",
            "sum",
            "mean",
            "try_sum",
            "try_mean",
            "interval_sum",
            "interval_mean",
            "try_interval_sum",
            "try_interval_mean",
            "bit_xor",
            *(k for k in OF_DOUBLES if k not in COMOMENTS),
        )
    },
}
"""Kind -> the kind of the same function with DISTINCT; None: the same."""


BY_ORDER = ("first", "first_value", "last", "last_value", "any_value")


def refuse_by_order(name: str) -> None:
    """Raises ``InvalidInputError`` for an aggregate that goes by the order of rows."""
    if name in BY_ORDER:
        raise InvalidInputError(
            f"observe: {name} would see control rows, and rows of a batch have no order here; use min or max"
        )
