"""Operations that a stream cannot have, or not exactly: refused by the ledger, with a message whose way works.

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

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from tests.generated.functions import keep_all
from tests.generated.operations import Operation
from tests.generated.static_joins import WORD, by_key


@dataclass(frozen=True)
class Refused(Operation):
    """``needs`` columns as the input has them, and adds those it ``gives``, or has them alone (``alone``).

    ``batch`` is None where Spark's own gives nothing to compare with, such as an offset: then the told way is compared.
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
        if not df.isStreaming:
            return self.told(df, self.uid) if self.batch is None else self.batch(df)
        with pytest.raises(InvalidInputError, match=f"(?s){self.said}"):
            spark_ckpt.enable(df.sparkSession).check(self.tried(df))
        return self.told(df, self.uid)


def _as_told(func: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    return lambda df, uid: func(df)


def _sql(text: str) -> Callable[[Any], Any]:
    """``text`` over the view ``v``."""

    def asked(df: Any) -> Any:
        df.createOrReplaceTempView("v")
        return df.sparkSession.sql(text)

    return asked


def _keys(df: Any) -> Any:
    return by_key(df).select("key")


def _joined(df: Any, how: str) -> Any:
    return df.join(by_key(df), F.col("k") == F.col("key"), how)


def _running(df: Any, uid: str, **wanted: Any) -> Any:
    return df.groupBy("k").aggregate(emit="rows", orderBy="id", **wanted).uid(uid)


def _over(made: Any) -> Any:
    return made.over(Window.partitionBy("k").orderBy("id"))


def _numbered(df: Any) -> Any:
    return df.withColumn("nth", _over(F.row_number()).cast("bigint"))


def _summed(df: Any) -> Any:
    return df.withColumn("so_far", _over(F.sum("id")))


_RECURSIVE = (
    "WITH RECURSIVE r AS (SELECT id, 1 AS d FROM v UNION ALL SELECT id, d + 1 FROM r WHERE d < 3) SELECT id, d FROM r"
)

FORMS = (
    Refused("offset", lambda df: df.offset(2), "Offset .* no end", _as_told(lambda df: df.where("id >= 2"))),
    Refused(
        "sample", lambda df: df.sample(True, 0.5), r"withReplacement.*fraction", _as_told(lambda df: df.sample(1.0))
    ),
    Refused(
        "sort",
        lambda df: df.orderBy("k"),
        "Sorting is not supported",
        _as_told(lambda df: df),
        lambda df: df.orderBy("k"),
    ),
    Refused(
        "row_number",
        _numbered,
        r"row_number\(\) OVER .* a filter behind it",
        lambda df, uid: _running(df, uid, nth=agg.count()),
        _numbered,
        gives={"nth": "bigint"},
        keyed=True,
    ),
    Refused(
        "running sum",
        _summed,
        r"sum\(id\) OVER .*For running values of a key write groupBy",
        lambda df, uid: _running(df, uid, so_far=agg.sum("id")),
        _summed,
        gives={"so_far": "bigint"},
        keyed=True,
    ),
    Refused(
        "rows of an aggregate",
        lambda df: df.groupBy("k").count(),
        r"use outputMode\('update'\).*aggregate\(\.\.\., emit=.rows",
        lambda df, uid: _running(df, uid, nth=agg.count()),
        _numbered,
        gives={"nth": "bigint"},
        keyed=True,
    ),
    Refused(
        "full join",
        lambda df: _joined(df, "full"),
        "FullOuter join.*streaming",
        _as_told(lambda df: _joined(df, "left")),
        gives=WORD,
        repeats=True,
    ),
    Refused(
        "left join of a table",
        lambda df: by_key(df).join(df, F.col("k") == F.col("key"), "left"),
        "LeftOuter join with a streaming DataFrame/Dataset on the right",
        _as_told(lambda df: _joined(df, "inner")),
        gives=WORD,
        repeats=True,
    ),
    Refused(
        "intersectAll",
        lambda df: df.select("k").intersectAll(_keys(df)),
        "Intersect All: .* write INTERSECT",
        _as_told(lambda df: df.select("k").intersect(_keys(df))),
        gives={"k": "int"},
        alone=True,
        keyed=True,
    ),
    Refused(
        "exceptAll",
        lambda df: df.select("k").exceptAll(_keys(df)),
        "Except All: .* write EXCEPT",
        _as_told(lambda df: df.select("k").subtract(_keys(df))),
        gives={"k": "int"},
        alone=True,
        keyed=True,
    ),
    Refused(
        "recursive WITH",
        _sql(_RECURSIVE),
        "UnionLoop .* compute the recursion over a table and join it",
        _as_told(lambda df: df.select("id").crossJoin(df.sparkSession.range(1, 4).selectExpr("cast(id as int) as d"))),
        _sql(_RECURSIVE),
        gives={"id": "bigint", "d": "int"},
        alone=True,
        repeats=True,
    ),
    Refused(
        "script",
        _sql("SELECT TRANSFORM(id) USING 'cat' AS (id bigint) FROM v"),
        "ScriptTransformation .* write mapInArrow",
        _as_told(lambda df: df.select("id").mapInArrow(keep_all, "id bigint")),
        gives={"id": "bigint"},
        alone=True,
    ),
)
