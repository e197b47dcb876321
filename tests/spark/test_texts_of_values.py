"""What the sinks write as text, held against Spark's own: ``to_json``, casts to string, its readers of files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.formats._java_doubles import java_double
from spark_ckpt.formats.json_texts import json_texts
from spark_ckpt.sinks._arrow_text import texts_of_days
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import context, permit, stage_table

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
NAN, INFINITE = float("nan"), float("inf")
DAYS = [0, -1, 2_932_896, 2_932_897, -719_162, -719_163, -719_528, -719_529, 2**31 - 1, -(2**31), 18_263, -141_427]
MOMENTS = [0, -1, 2**63 - 1, -(2**63), 253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False]),
    "i": (pa.int32(), [0, -(2**31), 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 2**63 - 1]),
    "d": (pa.float64(), [0.0, 1.5, 0.1, NAN, INFINITE, -1e7, 9999999.0, 1e-3, 9.9e-4, 1e20, 5e-324]),
    "f": (pa.float32(), [0.1, 1e10, 1e-5, 16777216.0, 3.4028234663852886e38, -INFINITE, 1e-45]),
    "n": (pa.decimal128(38, 10), [Decimal("1E-10"), Decimal("0E-10"), Decimal("9" * 28 + ".9999999999")]),
    "s": (pa.string(), ["", 'a"\\/\x00\x1f\x7f\u2028é😀\n\t', "x" * 70_000]),
    "day": (pa.date32(), DAYS),
    "at": (UTC, MOMENTS),
    "shown": (LOCAL, MOMENTS),
    "bytes": (pa.binary(), [b"", bytes(range(256))]),
}  # fmt: skip
_ROWS = max(len(found) for _, found in VALUES.values()) + 1


@pytest.fixture(scope="module")
def values() -> pa.Table:
    """Each value in a row at least, and a row of nulls."""
    columns = []
    for kind, found in VALUES.values():
        given = [found[i % len(found)] for i in range(_ROWS - 1)] + [None]
        plain = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
        columns.append(pa.array(given, plain).cast(kind))
    return pa.table(columns, names=list(VALUES))


@pytest.fixture
def in_utc(spark: SparkSession) -> SparkSession:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def nested(rows: Any) -> Any:
    """Every value beside, inside of a struct, a list, and a map, and as the key of one."""
    columns = [F.struct("*").alias("flat")]
    for name, (kind, _) in VALUES.items():
        value = F.col(name)
        columns.append(F.struct(value.alias("v"), F.array(value, F.lit(None)).alias("l")).alias(f"s {name}"))
        columns.append(F.create_map(F.lit('k"'), value).alias(f"m {name}"))
        if not pa.types.is_binary(kind):
            key = F.when(value.isNotNull(), F.create_map(value, F.struct(F.lit(1).alias("q"))))
            columns.append(key.alias(f"k {name}"))
    return rows.select(F.struct(*columns).alias("all"))


def test_json_is_what_to_json_writes_for_every_type_and_place(in_utc: SparkSession, values: pa.Table) -> None:
    rows = nested(in_utc.createDataFrame(values))
    whole = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
    less, all_of_it = (F.to_json("all", {**whole, "ignoreNullFields": given}) for given in ("true", "false"))
    asked = rows.select("all", less.alias("less"), all_of_it.alias("j"))
    found = asked.toArrow()
    made = found["all"].combine_chunks()
    for nulls, column in ((True, "j"), (False, "less")):
        ours = json_texts(made, nulls).to_pylist()
        for mine, theirs in zip(ours, found[column].to_pylist(), strict=True):
            assert mine == _of_java_19(theirs)


def _of_java_19(text: str) -> str:
    """Older ones write some doubles and floats with a digit more."""
    return text.replace(java_double(5e-324, False), java_double(5e-324, True))


def test_days_are_written_as_spark_casts_them(in_utc: SparkSession, values: pa.Table) -> None:
    theirs = in_utc.createDataFrame(values.select(["day"])).selectExpr("cast(day as string) as t").toArrow()["t"]
    assert texts_of_days(values["day"]).to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_spark_reads_every_value_of_a_file(in_utc: SparkSession, values: pa.Table, tmp_path: Path, kind: str) -> None:
    """Far days are the names of folders, too."""
    held = values if kind != "csv" else values.drop_columns(["bytes"])
    held = held.append_column("p", held["day"])
    sink = create_sink("files", {"path": f"{tmp_path}/o", "fileFormat": kind, "partitionBy": "p"})
    sink.validate(held.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=held.schema), held))
    given = in_utc.createDataFrame(held)
    options = {"header": "true", "multiLine": "true", "escape": '"', "maxCharsPerColumn": "-1", "nullValue": "none"}
    options = options if kind == "csv" else {}
    read = in_utc.read.schema(given.schema).options(**options).format(kind).load(f"{tmp_path}/o")

    def texts(rows: Any) -> list[str]:
        whole = F.to_json(F.struct(*[F.col(n).cast("string").alias(n) for n in held.column_names]))
        # Spark's reader of CSV passes over a NUL, in files of its own writer, too.
        return sorted(r[0].replace("\\u0000", "") if kind == "csv" else r[0] for r in rows.select(whole).collect())

    assert texts(read) == texts(given)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_spark_reads_every_name_of_a_column_back(in_utc: SparkSession, tmp_path: Path, kind: str) -> None:
    """Dots, backticks, pairs that differ in case, and pairs that look alike; as a partition's, too."""
    in_utc.conf.set("spark.sql.caseSensitive", "true")
    names = ["host.name", "a`b", 'a"b', "id", "ID", "\u00e9", "e\u0301", " ", "=", "%41", "[x]"]
    held = pa.table([[f"value of {name}"] for name in names], names=names)
    if kind != "csv":
        held = held.append_column("host", pa.array([{"name": "inner", "x.y": "dotted", "Name": "upper"}]))
    held = held.append_column("p.`\u00e9/", pa.array(["in the folder"]))
    sink = create_sink("files", {"path": f"{tmp_path}/o", "fileFormat": kind, "partitionBy": "p.`\u00e9/"})
    sink.validate(held.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=held.schema), held))
    given = in_utc.createDataFrame(held)
    options = {"header": "true", "escape": '"', "enforceSchema": "false"} if kind == "csv" else {}
    read = in_utc.read.schema(given.schema).options(**options).format(kind).load(f"{tmp_path}/o")
    assert read.toArrow().select(held.column_names).to_pylist() == held.to_pylist()
