"""What Spark Connect's client takes an expression for: types, and casts spelt out, before Spark is asked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.connect import expressions as E

from spark_ckpt.expressions.tree import Tree
from spark_ckpt.plan._connect_forms import FORMS
from spark_ckpt.plan._connect_scope import Scope, without_texts
from spark_ckpt.plan._connect_trees import Settings, Trees, Typed
from spark_ckpt.plan._in_arrow import StaysError
from spark_ckpt.plan._json_in_arrow import JsonSession
from spark_ckpt.plan._sql_expressions import read

UTC = pa.timestamp("us", "UTC")
STRUCT = pa.struct([("x", pa.int32()), ("Y", pa.string())])
COLUMNS = {
    "i": pa.int32(), "l": pa.int64(), "d": pa.float64(), "f": pa.float32(), "m": pa.decimal128(10, 2), "s": pa.string(),
    "day": pa.date32(), "at": UTC, "st": STRUCT, "a.b": pa.int32(), "xs": pa.list_(pa.int32()),
}  # fmt: skip


def typed(text: str, ansi: bool = True) -> Typed:
    settings = Settings(ansi, "America/New_York", "CORRECTED", not ansi, False, lambda: JsonSession({}, False))
    tree = without_texts(E.SQLExpression(text), lambda one: read(one, settings.zone))
    return Trees(Scope(list(COLUMNS), list(COLUMNS.values()), False), settings, {}, FORMS).typed(tree)


def written(text: str, ansi: bool = True) -> str:
    return str(typed(text, ansi).written).replace("system.builtin.", "").replace("CallFunction", "")


CASTS = {
    "i = l": "('`=`', CAST(`i` AS BIGINT), `l`)",
    "I < 1": "('`<`', `i`, 1)",
    "m > 1": "('`>`', `m`, CAST(CAST(1 AS DECIMAL(1,0)) AS DECIMAL(10,2)))",
    "m = l": "('`=`', CAST(`m` AS DECIMAL(22,2)), CAST(CAST(`l` AS DECIMAL(20,0)) AS DECIMAL(22,2)))",
    "m < d": "('`<`', CAST(`m` AS DOUBLE), `d`)",
    "f >= i": "('`>=`', CAST(`f` AS DOUBLE), CAST(`i` AS DOUBLE))",
    "s = 12": "('`=`', CAST(`s` AS BIGINT), CAST(12 AS BIGINT))",
    "day >= '2024-01-01'": "('`>=`', `day`, CAST(2024-01-01 AS DATE))",
    "at < day": "('`<`', `at`, CAST(`day` AS TIMESTAMP))",
    "l in (1, i)": "('`in`', CAST(`l` AS BIGINT), CAST(1 AS BIGINT), CAST(`i` AS BIGINT))",
    "l between 1 and 2": "('`between`', `l`, CAST(1 AS BIGINT), CAST(2 AS BIGINT))",
    "i between 1 and l": "('`between`', `i`, 1, `l`)",
    "m between 1 and '2'": "('`between`', `m`, CAST(CAST(1 AS DECIMAL(1,0)) AS DECIMAL(10,2)), 2)",
    "nanvl(d, 1D)": "('`nanvl`', `d`, 1.0)",
    "lower(i)": "('`lower`', CAST(`i` AS STRING))",
    "ST.y = `a.b` || 'x'": "('`=`', `st`['y'], ('`concat`', CAST(`a.b` AS STRING), x))",
    "array_contains(xs, 1Y)": "('`array_contains`', `xs`, CAST(1 AS INT))",
}


def test_every_cast_is_spelt_out() -> None:
    assert {text: written(text) for text in CASTS} == CASTS


def test_without_ansi_texts_are_read_as_what_stands_beside_them() -> None:
    assert written("s = 12", ansi=False) == "('`=`', CAST(`s` AS INT), 12)"
    assert written("f >= i", ansi=False) == "('`>=`', `f`, CAST(`i` AS FLOAT))"


STAYS = {
    "md5(s) = ''": "md5 runs in Spark only",
    "exists(xs, x -> x > 0)": "the text 'exists(xs, x -> x > 0)' is left to Spark",
    "nothing = 1": "nothing is not a column of these rows",
    "s.x = 1": "s.x is not a column of these rows",
    "st = i": "int32 and struct<x: int32, Y: string> together",
    "i between 1 and st": "int32 and struct<x: int32, Y: string> together",
    "nanvl(d, f)": "nanvl of double and float",
    "array_contains(xs, l)": "int64 in list<item: int32>",
    "isnan(i)": "isnan of int32",
    "s like l": "Like with something other than a constant",
    "xs is null and day": "cast of date32[day] to bool",
}


@pytest.mark.parametrize("text", STAYS)
def test_what_is_not_sure_stays_in_spark(text: str) -> None:
    with pytest.raises(StaysError) as found:
        typed(text)
    assert str(found.value) == STAYS[text]


def test_python_functions_stay_in_spark() -> None:
    from pyspark.sql.connect.functions import lit, udf

    called = udf(len)(lit(1))._expr
    with pytest.raises(StaysError, match="a Python function runs in Spark only"):
        Trees(
            Scope([], [], False), Settings(True, "UTC", "", False, False, lambda: JsonSession({}, False)), {}, FORMS
        ).typed(called)


def test_a_name_is_found_behind_an_alias_and_dots_are_names_or_fields() -> None:
    trees: dict[str, Tree] = {text: typed(text).tree for text in ("o.i", "i", "st.x", "o.st.x", "`a.b`", "`I`")}
    assert trees["o.i"] == trees["i"] == trees["`I`"]
    assert trees["st.x"] == trees["o.st.x"] != trees["`a.b`"]
