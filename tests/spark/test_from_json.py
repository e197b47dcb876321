"""JSON that the formats package reads is what Spark's from_json reads, value by value."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark_ckpt.execution.lineage import Stays
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_decode import JsonDecoder
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats.formats import FormatSpec
from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources.ddl import parse_ddl
from tests.formats.json_records import NASTY, SCHEMA
from tests.generated.json_texts import JsonWriter
from tests.spark.in_arrow import in_arrow

OTHERWISE = ('{"s":1.10}', '{"s":[1, "x"]}', '{"s":{"a": [1, 2]}}')
"""In a column of strings, JSON that is no string stays as it is written; from_json writes it anew, 1.1 for 1.10."""


HALF = (
    '{"i":1,"l":"x","s":"y"}', '{"i":"x","st":{"x":"no","t":"2020-01-01T00:00:00Z"},"s":"y"}', '{"a":[1,"x",3],"i":5}',
    '{"a":["x",{"i":7},[8]],"i":5}', '{"m":{"k":1,"j":"x"},"i":5}', '{"st":5,"i":6}', '{"st":[],"i":6}',
    '{"i":{"a":1},"l":2}', '{"i":[1],"l":2}', '{"l":2,"i":3000000000,"sh":40000}', '{"i":1,"l":', '{"i":1,"l":"x"',
    '{"i":1,"l":"x",}', '{"i":1 "l":2}', '[{"i":1}]', '[]', '"x"', "5", "null", "true", "{", "}", "", "  ", "x",
    '{"_bad":"mine","i":1}', '{"_bad":"mine","i":"x"}', '{"dec":"x","d":"y","b":"z","dt":"w","t":"v","bin":"?","i":1}',
    '{"i":1,"i":"x"}', '{"i":"x","i":1}', '{"d":"","i":1}',
)  # fmt: skip
"""Of which some fields can be read, or none."""


@pytest.mark.parametrize("schema", [f"{SCHEMA}, _bad string", "l long, _bad string, s string, i int", "i int, l long"])
def test_what_cannot_be_read_is_null_and_kept_as_text_as_in_permissive_from_json(
    spark: SparkSession, schema: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    records = [*NASTY, *HALF, None]
    rows = spark.createDataFrame(list(enumerate(records)), "n int, r string").coalesce(1)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    read = rows.select("n", F.from_json("r", schema, options).alias("v")).orderBy("n").toArrow()
    expected = [shown(row) for row in read.column("v").to_pylist()]
    kind = arrow_schema(StructType([StructField("v", parse_ddl(schema))])).field("v").type
    decoder = FormatSpec("json", corrupt="_bad").decoder(kind)
    found = decoder.decode([None if r is None else r.encode() for r in records])
    assert found.bad == {}
    values = [shown(v) for v in found.values.to_pylist()]
    differ = {r: (e, f) for r, e, f in zip(records, expected, values, strict=True) if e != f and r not in OTHERWISE}
    assert differ == {}


SCHEMAS = (
    "i int, s string, d double, t timestamp, st struct<x:int,y:string,u:struct<b:boolean,n:int>>",
    "a array<int>, sa array<struct<x:int,y:string,z:array<double>>>, dec decimal(10,2), dt date, f float, by tinyint",
    "m map<string,struct<x:int>>, s string, aa array<array<string>>, big decimal(38,10), n timestamp_ntz, l long",
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_texts_broken_anywhere_have_the_fields_that_spark_finds(spark: SparkSession, schema: str) -> None:
    check_generated(spark, schema, 250, seed=1)


@pytest.mark.soak
def test_many_broken_texts_have_the_fields_that_spark_finds(spark: SparkSession) -> None:
    for schema in SCHEMAS:
        for seed in range(2, 8):
            check_generated(spark, schema, 3000, seed)


def check_generated(spark: SparkSession, schema: str, count: int, seed: int) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    kind = arrow_schema(StructType([StructField("v", parse_ddl(f"{schema}, _bad string"))])).field("v").type
    writer = JsonWriter(Random(f"{seed} {schema}"))
    records = [writer.record(pa.struct(list(kind)[:-1])) for _ in range(count)]
    rows = spark.createDataFrame(pa.table({"r": pa.array(records, pa.string())})).coalesce(1)
    read = F.from_json("r", f"{schema}, _bad string", {"columnNameOfCorruptRecord": "_bad"})
    expected = rows.select(read.alias("v")).toArrow().column("v").combine_chunks()
    shortest = int(spark._jvm.java.lang.Runtime.version().feature()) >= 19  # type: ignore[union-attr]
    rules = Rules(TimeTexts("Europe/Paris"), as_written=False, shortest=shortest)
    found = JsonDecoder(kind, corrupt="_bad", rules=rules).decode([r.encode() for r in records]).values
    pairs = zip(records, numbers(expected).to_pylist(), numbers(found).to_pylist(), strict=True)
    assert [(text, e, f) for text, e, f in pairs if repr(e) != repr(f)][:3] == []


def numbers(array: pa.Array) -> pa.Array:
    """Times as numbers, some of which Python has no times for."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [numbers(array.field(n)) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[f.name for f in kind], mask=array.is_null())
    return (
        array.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()) if pa.types.is_temporal(kind) else array
    )


def ours(records: list[str], schema: str) -> list[Any]:
    kind = arrow_schema(StructType([StructField("v", parse_ddl(schema))])).field("v").type
    found = FormatSpec("json").decoder(kind).decode([r.encode() for r in records])
    return ["bad" if at in found.bad else shown(v) for at, v in enumerate(found.values.to_pylist())]


def shown(value: Any) -> Any:
    return None if value is None else {k: repr(v) for k, v in value.items()}


@pytest.mark.parametrize("schema", [SCHEMA, "l long, s string, t timestamp, d double"])
def test_records_are_read_as_sparks_from_json_reads_them(spark: SparkSession, schema: str) -> None:
    """The second schema is one that Arrow reads; the first has a map, which is read one by one."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.createDataFrame([(n, record) for n, record in enumerate(NASTY)], "n int, r string").coalesce(1)
    options = {"columnNameOfCorruptRecord": "_bad"}
    read = rows.select("n", F.from_json("r", f"{schema}, _bad string", options).alias("v")).orderBy("n").toArrow()
    expected = []
    for row in read.column("v").to_pylist():
        bad = row is not None and row.pop("_bad") is not None
        expected.append("bad" if bad else shown(row))
    found = ours(list(NASTY), schema)
    differ = {r: (e, f) for r, e, f in zip(NASTY, expected, found, strict=True) if e != f and r not in OTHERWISE}
    assert differ == {}


DDL = "i int, s string, d double, t timestamp, dec decimal(10,2), st struct<x:int,y:string>, a array<int>, dt date"
CALLS = (
    "from_json({}, '{}')", "from_json({}, '{}, _corrupt_record string')", "from_json({}, '{}').st.x",
    "from_json({}, '{}').i + 1L", "size(from_json({}, '{}').a)", "from_json({}, '{}') is null",
    "from_json({}, '{}', map('timestampFormat', 'dd/MM/yyyy HH:mm', 'timeZone', 'Asia/Kolkata')).t",
)  # fmt: skip


def written() -> list[Column]:
    """With the forms of a schema that a text has not."""
    schema = parse_ddl("i int, st struct<x:int,y:string>, s string")
    bytes_ = F.col("b").cast("string")
    options = {"MODE": "permissive", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss"}
    return [F.from_json("r", schema), F.from_json(bytes_, schema.json()), F.from_json(bytes_, DDL, options)["t"]]


STAYS = {
    "from_json(r, 'array<int>')": "at the root",
    "from_json(r, 'm map<string,int>')": "from_json with map",
    "from_json(r, 'a int', map('allowComments', 'true'))": "from_json with option allowComments",
    "from_json(r, 'a int', map('mode', 'DROPMALFORMED'))": "from_json in mode DROPMALFORMED",
    "from_json(r, 'a int, _corrupt_record string')._corrupt_record": "for its column of corrupt records alone",
    "struct(from_json(r, 'a int, b int').a, from_json(r, 'a int, b int').b)": "a struct of fields of from_json",
    "from_json(r, 'a int', map('dateFormat', 'yy'))": "from_json with dateFormat 'yy'",
}


@pytest.mark.parametrize("ansi", [True, False])
def test_from_json_in_python_has_sparks_values(spark: SparkSession, ansi: bool) -> None:
    check_calls(spark, ansi)


def check_calls(spark: SparkSession, ansi: bool) -> None:
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    kind = arrow_schema(StructType([StructField("v", parse_ddl(DDL))])).field("v").type
    writer = JsonWriter(Random(ansi), harm=8)
    texts = [*(writer.record(kind) for _ in range(120)), "", None, " ", '{"i":1,"' + "n" * 50_001 + '":2,"s":"x"}']
    half = [None if t is None else t.encode()[:9] + b"\xed\xa0\x80\xff" * (n % 9 == 0) + t.encode()[9:]
            for n, t in enumerate(texts)]  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"r": pa.array(texts, pa.string()), "b": pa.array(half, pa.binary())})
    df = spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
    calls = [call.format("r", DDL) for call in CALLS]
    calls += [call.format("cast(b as string)", DDL) for call in CALLS if "corrupt" not in call]
    after = df.select(*[F.expr(call).alias(f"c{n}") for n, call in enumerate(calls)], *written())
    operations = in_arrow(df, after)
    assert not isinstance(operations, Stays), operations
    [found] = operations[0](iter([batch]))
    for call, ours_, theirs in zip([*calls, *map(str, written())], found.columns, after.toArrow().columns, strict=True):
        pairs = zip(texts, numbers(ours_).to_pylist(), numbers(theirs.combine_chunks()).to_pylist(), strict=True)
        assert [(call, *row) for row in pairs if repr(row[1]) != repr(row[2])][:2] == []


def test_what_may_differ_stays_in_spark(spark: SparkSession) -> None:
    check_stays(spark)


def check_stays(spark: SparkSession) -> None:
    df = spark.createDataFrame([("x",)], "r string")
    for call, why in STAYS.items():
        found = in_arrow(df, df.selectExpr(call))
        assert why in getattr(found, "why", ""), (call, found)
    spark.conf.set("spark.sql.json.enablePartialResults", "false")
    found = in_arrow(df, df.selectExpr("from_json(r, 'a int')"))
    spark.conf.unset("spark.sql.json.enablePartialResults")
    assert "enablePartialResults=false" in getattr(found, "why", "")


def test_a_stream_of_json_is_read_counted_and_fails_as_it_asks(ckpt: Any, new_input: Any, job: Any) -> None:
    source = new_input("input", "value binary")
    texts = [f'{{"k":"k{n % 3}","v":{n},"at":"2024-05-01T10:00:0{n % 10}Z"}}' for n in range(40)]
    source.add(*[(text.encode(),) for text in (*texts, '{"k":"k0","v":"x"}', '{"k":"k1","v":', "")])

    def counted(rows: Any, **options: str) -> Any:
        read = F.from_json(F.col("value").cast("string"), "k string, v long, at timestamp", options)
        return (
            rows.select(read.alias("j"))
            .select("j.*")
            .groupBy("k")
            .agg(F.count("v"), F.sum("v"), F.max(F.unix_micros("at")))
        )

    job.run(counted(source.stream(ckpt)), "k")
    expected = counted(source.table(ckpt.spark)).collect()
    assert sorted(job.rows(), key=repr) == sorted((tuple(row) for row in expected), key=repr)
    source.add((b'{"k":"k0","v":"x"}',))
    with pytest.raises(
        StreamingQueryException, match=r"\[MALFORMED_RECORD_IN_PARSING.*expected int64, found the string"
    ):
        job.run(counted(source.stream(ckpt), mode="FAILFAST"), "k")
