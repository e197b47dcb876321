"""What is taken from texts of JSON by a path is what Spark takes, for any text."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from spark_ckpt.execution.lineage import Stays
from spark_ckpt.formats.get_json_object import GetJsonObject
from tests.generated.json_texts import NUMBERS, TEXTS, JsonWriter
from tests.spark.in_arrow import in_arrow

PATHS = (
    "$", "$.a", "$.a.b", "$['a']", "$['a b'].a", "$.a[0]", "$.a[1].b", "$[0]", "$[1][0]", "$.a[0][1]", "$.é", "$.A",
    "$.a[*]", "$.a[*].b", "$[*]", "$.a[*][*]", "$.a[*][0]", "$.a[0][*]", "$.a[*].b[*]", "$.a[*][*].b", "$[*][*][*]",
    "$.a[*].b[*].a", "$[0][*].a[*]", "$.a[*][*][*][*].b", "$.b[*].a[*][*]", "$.a-1", "$['a.b[0]']", "$.a[*][*].b[*]",
)  # fmt: skip
STAYS = ("", "a", "$.", "$.*", "$.a.*", "$..a", "$['*']", "$[-1]", "$.a[1:2]", "$. a", "$[' a']", "$.a[99999999999]",
         "$.a b", "$[a]", "$.*a", "$ .a", "$.a ")  # fmt: skip
NASTY = (
    "", " ", "null", "{", "[", "]", "5", "5x", "5 x", "-0", "1.50", '"x"', "'x'", '"x', "nul", "true", "truex", "[]",
    "{}", '{"a":1}x', '{"a":1,}', '{"a":1,"b":}', '{"a":1 "b":2}', '{"a":null,"a":2}', '{"a":1,"a":2}', "{'a':'b\"c'}",
    '{"a":NaN}', '{"a":-Infinity}', '{"b":+1,"a":1}', '{"a":1e400}', '{"a":[null]}', '{"a":[[1,[2,[]]],[],3]}',
    '{"a":"x\ty\nz\x00"}', '{"a\t":1,"a":2}', '{"a":{"b":"\\ud83d"}}', '{"a":"\\ud83d"}', '{"a":["\\ud83d","😀"]}',
    '{"a":"\\ud83d\\ude00"}', '{"a":["\\ud83d\\ude00", "\x01\\u001f/\\/\x7f\u2028"]}', '{"\\u0061":1}', '{"a":"\\\'"}',
    '{"a":[{"b":1},{"b":[2,3]},{"b":null},{}]}', '{"a":[[{"b":1}]],"a":[{"b":2}]}', '[{"a":[1]},{"a":[]}]', "\ufeff{}",
    '{"a":{"b":12345678901234567890123,"c":0.1e-7,"d":-0.0,"e":100000000.0}}', "[[1,2],[3],[]]", '[{"a":"x"}] ]',
    '{"a":' + "1" * 1000 + "}", '{"a":' + "1" * 1001 + "}",
    '{"a":[' + "[[1]]," * 600 + '"x"]}', '{"' + "n" * 60_000 + '":1,"a":2}', '{"a":1}\x00',
    '{"a":5}}', "[1,2", "/**/{}",
    '{"a":[[],[[]],{}]}', '{"a":[[[[{"b":1},{"b":2}]]]]}', '{"a":[0],"a":[[1,2],[3]]}', '{"a":[{"b":[1]},{"b":[2]}]}',
)  # fmt: skip

DEEP = ("[" * 1000 + "]" * 1000, "[" * 1001 + "]" * 1001)
"""Asked without ``[*]``: there Spark calls itself for each level, and a JVM that runs out of stack in a task exits."""


NAMES = ("a", "a", "b", "a b", "é", "a.b[0]", "\\u0061", "a-1", "A", "")


class FreeWriter(JsonWriter):
    """Of values without a type."""

    def any(self, depth: int = 4) -> str:
        r = self.random
        kind = r.randrange(10) if depth else 9
        if kind < 4:
            names = [
                r.choice(["a", "a", "b", "a b", "é", "a.b[0]", "\\u0061", "a-1", "A", ""])
                for _ in range(r.randrange(4))
            ]
            quotes = [r.choice(['"', '"', '"', '"', '"', "'"]) for _ in names]
            members = [f"{q}{name}{q}:{self.any(depth - 1)}" for q, name in zip(quotes, names, strict=True)]
            return "{" + r.choice([",", ", "]).join(members) + "}"
        if kind < 7:
            return "[" + ",".join(self.any(depth - 1) for _ in range(r.randrange(4))) + "]"
        return r.choice(
            ["null", "true", "false", r.choice(NUMBERS[:14]), r.choice(NUMBERS), '"x"', *[f'"{r.choice(TEXTS)}"'] * 3]
        )

    def text(self) -> str:
        r, text = self.random, self.any()
        for _ in range(r.choice([0, 0, 0, 0, 1, 1, 2])):
            text = self.damaged(text)
        return r.choice(["", "", " ", "\n"]) + text + r.choice(["", "", "", " x", "}", ",{}"])


def calls(paths: Sequence[str]) -> dict[str, Column]:
    text, of_bytes = F.col("r"), F.col("b").cast("string")
    found = {path: F.get_json_object(text, path) for path in paths}
    found |= {"length": F.json_array_length(text), "keys": F.json_object_keys(text)}
    found |= {f"bytes {path}": F.get_json_object(of_bytes, path) for path in paths[:2]}
    return found | {"keys of bytes": F.json_object_keys(of_bytes)}


def check(spark: SparkSession, texts: Sequence[str | None], ansi: bool = True, paths: Sequence[str] = PATHS) -> None:
    """Of texts and of bytes, some of which are no UTF-8."""
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    data = [t if t is None else t.encode()[:7] + b"\xed\xa0\x80\xff" * (n % 5 == 0) + t.encode()[7:]
            for n, t in enumerate(texts)]  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"r": pa.array(texts, pa.string()), "b": pa.array(data, pa.binary())})
    df = spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
    after = df.select(*[call.alias(name) for name, call in calls(paths).items()])
    operations = in_arrow(df, after)
    assert not isinstance(operations, Stays), operations
    [found] = operations[0](iter([batch]))
    expected = after.toArrow()
    for name, ours, theirs in zip(calls(paths), found.columns, expected.columns, strict=True):
        rows = zip(data if "bytes" in name else texts, ours.to_pylist(), theirs.to_pylist(), strict=True)
        differ = [(name, text, ours, theirs) for text, ours, theirs in rows if ours != theirs]
        assert differ[:2] == []


TWICE = (
    '{"a":null,"a":"x"}', '{"a":"x","a":null}', '{"a":"x","a":"y"}', '{"a":{"b":"x"},"a":{"b":"y"}}',
    '{"a":null,"a":{"b":"y"}}', '{"a":{"b":null,"b":"x"}}',
)  # fmt: skip


def test_what_arrow_finds_by_names_is_what_is_found_text_by_text() -> None:
    check_arrow(seed=1, count=60)


@pytest.mark.soak
def test_what_arrow_finds_in_many_texts_is_what_is_found_text_by_text() -> None:
    for seed in range(2, 22):
        check_arrow(seed, count=2000)


def check_arrow(seed: int, count: int) -> None:
    """Each in a batch with a plain one, which Arrow reads alone."""
    writer = FreeWriter(Random(seed))
    for path, plain in (("$.a", '{"a":"x"}'), ("$.a", '{"a":5}'), ("$.a.b", '{"a":{"b":true}}')):
        for text in [*NASTY, *DEEP, *TWICE, *(writer.text() for _ in range(count))]:
            alone, both = (GetJsonObject(path, False).column(pa.array(texts)) for texts in ([text], [plain, text]))
            slowly = GetJsonObject(path, False)._one_by_one(pa.array([text]))
            assert alone.to_pylist() == both.to_pylist()[1:] == slowly.to_pylist(), (path, text)


def test_what_a_path_finds_is_what_spark_finds(spark: SparkSession) -> None:
    writer = FreeWriter(Random(1))
    check(spark, [*NASTY, None, *(writer.text() for _ in range(400))])
    check(spark, DEEP, paths=[path for path in PATHS if "*" not in path])


@pytest.mark.soak
def test_what_a_path_finds_in_many_texts_is_what_spark_finds(spark: SparkSession) -> None:
    for seed in range(2, 12):
        writer = FreeWriter(Random(seed))
        check(spark, [writer.text() for _ in range(6000)], ansi=bool(seed % 2))


def check_stays(spark: SparkSession) -> None:
    df = spark.createDataFrame([("x", "$.a")], "r string, p string")
    for path in STAYS:
        found: Any = in_arrow(df, df.select(F.get_json_object("r", path)))
        assert f"get_json_object with the path {path!r} runs in Spark only" in getattr(found, "why", ""), (path, found)
    found = in_arrow(df, df.selectExpr("get_json_object(r, p)"))
    assert "get_json_object with a path that is no constant" in getattr(found, "why", ""), found


def test_paths_that_spark_may_read_in_another_way_stay_there(spark: SparkSession) -> None:
    check_stays(spark)
