"""Operations of Spark that could lose a barrier: refused when they are built, with a message whose way works.

On a plain batch DataFrame such an operation is what the user wrote; on a stream it is tried, must be refused with the
right message, and is then done as the message tells. So it can stand in any chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.api.dataframe import CkptDataFrame
from spark_ckpt.errors import InvalidInputError
from tests.generated.functions import odd_ids_in_pandas
from tests.generated.operations import Operation

CTL = "__ckpt_ctl"


@dataclass(frozen=True)
class Refused(Operation):
    """``needs`` columns as the input has them, and adds those it ``gives``, or has them alone (``alone``).

    ``batch`` is None where Spark's own gives nothing to compare with, such as a limit: then the told way is compared.
    ``repeats``: a row may come out several times.
    """

    name: str
    tried: Callable[[Any], Any]
    said: str
    told: Callable[[Any, str], Any]
    batch: Callable[[Any], Any] | None = None
    needs: tuple[str, ...] = ("id", "k")
    gives: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    keyed: bool = False
    repeats: bool = False
    uid: str = "u0"

    def __repr__(self) -> str:
        return f".transform({self.name})"

    def apply(self, df: Any) -> Any:
        if not isinstance(df, CkptDataFrame):
            return self.told(df, self.uid) if self.batch is None else self.batch(df)
        with pytest.raises(InvalidInputError, match=f"(?s){self.said}"):
            self.tried(df)
        return self.told(df, self.uid)


def _inside(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda df: df.transformSpark(func)


def _as_told(func: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    return lambda df, uid: func(df)


# -- the told ways ---------------------------------------------------------------------------------------------------


def _static(df: Any) -> Any:
    rows = [(0, "zero"), (2, "two"), (2, "two again"), (9, "nine")]
    spark = df._session.spark if isinstance(df, CkptDataFrame) else df.sparkSession
    return spark.createDataFrame(rows, "key int, word string")


def _join(df: Any, how: str) -> Any:
    static = _static(df)
    return df.join(static, df["k"] == static["key"], how)


def _numbered(df: Any, key: str, uid: str, name: str) -> Any:
    return df.groupBy(key).aggregate(emit="rows", orderBy="id", **{name: agg.count()}).uid(uid)


def _batch_numbered(df: Any, key: str, name: str) -> Any:
    return df.withColumn(name, F.row_number().over(Window.partitionBy(key).orderBy("id")).cast("bigint"))


def _is_control(df: Any) -> Any:
    return F.col(CTL).isNotNull() if CTL in df.columns else F.lit(False)


def _inside_both(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda df: df.transformSpark(func) if isinstance(df, CkptDataFrame) else func(df)


_WORD = {"key": "int", "word": "string"}
_CONTROL = ("__ckpt_tag", CTL)
_ID_AND_CONTROL = "id bigint, __ckpt_tag bigint, __ckpt_ctl binary"


FORMS = (
    Refused(
        "limit", _inside(lambda df: df.limit(5)), "GlobalLimit.*row by row", _as_told(lambda df: df.where("id < 5"))
    ),
    Refused("offset", _inside(lambda df: df.offset(2)), "Offset.*row by row", _as_told(lambda df: df.where("id >= 2"))),
    Refused("sample", _inside(lambda df: df.sample(0.5)), "Sample.*sample.0.1", _as_told(lambda df: df.sample(1.0))),
    Refused(
        "sort",
        _inside(lambda df: df.orderBy("k")),
        "Sort.*no order",
        _as_told(lambda df: df),
        lambda df: df.orderBy("k"),
    ),
    Refused(
        "dropDuplicates",
        _inside(lambda df: df.dropDuplicates(["k"])),
        r"Deduplicate.*dropDuplicates\(\[.k.\]\)",
        lambda df, uid: df.dropDuplicates(["k"]).uid(uid).select("k"),
        lambda df: df.dropDuplicates(["k"]).select("k"),
        gives={"k": "int"},
        alone=True,
        keyed=True,
    ),
    Refused(
        "row_number",
        lambda df: df.withColumn("nth", F.row_number().over(Window.partitionBy("k").orderBy("id"))),
        "Window.*emit=.rows.*orderBy",
        lambda df, uid: _numbered(df, "k", uid, "nth"),
        lambda df: _batch_numbered(df, "k", "nth"),
        gives={"nth": "bigint"},
        keyed=True,
    ),
    Refused(
        "na.drop",
        _inside(lambda df: df.na.drop(subset=["s"])),
        r"Filter atleastnnonnulls.*drops.*dropna\(",
        _as_told(lambda df: df.dropna(subset=["s"])),
        lambda df: df.na.drop(subset=["s"]),
        ("id", "s"),
    ),
    Refused(
        "na.fill",
        _inside(lambda df: df.na.fill(0, subset=["k", "__ckpt_tag"])),
        "computes __ckpt_tag anew.*fillna",
        _as_told(lambda df: df.na.fill(0, subset=["k"])),
    ),
    Refused(
        "where",
        _inside(lambda df: df.where("k > 0")),
        "Filter.*drops.*__ckpt_ctl",
        _as_told(_inside_both(lambda df: df.where((F.col("k") > 0) | _is_control(df)))),
    ),
    Refused(
        "inner join",
        _inside(lambda df: _join(df, "inner")),
        r"Join Inner.*join\(static",
        _as_told(lambda df: df.join(_static(df), F.col("k") == F.col("key"))),
        lambda df: _join(df, "inner"),
        gives=_WORD,
        repeats=True,
    ),
    Refused(
        "left join",
        _inside(lambda df: _join(df, "left")),
        r"Join LeftOuter.*join\(static",
        _as_told(lambda df: df.join(_static(df), F.col("k") == F.col("key"), "left")),
        lambda df: _join(df, "left"),
        gives=_WORD,
        repeats=True,
    ),
    Refused(
        "cross join",
        _inside(lambda df: df.crossJoin(_static(df))),
        r"Join Cross.*join\(static",
        _as_told(lambda df: df.crossJoin(_static(df))),
        lambda df: df.crossJoin(_static(df)),
        gives=_WORD,
        repeats=True,
    ),
    Refused(
        "aggregate",
        _inside(lambda df: df.groupBy("k", *_CONTROL).count()),
        "Aggregate.*groupBy.*aggregate",
        lambda df, uid: _numbered(df, "k", uid, "nth"),
        lambda df: _batch_numbered(df, "k", "nth"),
        gives={"nth": "bigint"},
        keyed=True,
    ),
    Refused(
        "union",
        _inside(lambda df: df.union(df)),
        "Union.*stream.union",
        _as_told(lambda df: df.union(df)),
        repeats=True,
    ),
    Refused(
        "mapInPandas",
        _inside(lambda df: df.select("id", *_CONTROL).mapInPandas(odd_ids_in_pandas, _ID_AND_CONTROL)),
        "MapInPandas.*drops",
        _as_told(lambda df: df.select("id").mapInPandas(odd_ids_in_pandas, "id bigint")),
        gives={"id": "bigint"},
        alone=True,
    ),
)
