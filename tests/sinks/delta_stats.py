"""Statistics that Delta in Spark keeps of the same rows: recorded in ``delta_stats.json`` by :func:`recorded`.

To record anew: ``python -m tests.sinks.delta_stats``. A soak test holds what is recorded against Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

FILE = Path(__file__).with_suffix(".json")
_UTC = dt.timezone.utc
_HOST = pa.struct(
    [
        ("name", pa.string()),
        ("port", pa.int32()),
        ("deep", pa.struct([("a", pa.float64()), ("b", pa.list_(pa.int32()))])),
    ]
)
_INT = pa.int32()
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("host.name", pa.string()), ("host", _HOST), ("d", pa.float64()), ("f", pa.float32()),
        ("e", pa.float64()), ("dc", pa.decimal128(20, 3)), ("dl", pa.decimal128(38, 18)), ("dt", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("tn", pa.timestamp("us")), ("b", pa.bool_()), ("bin", pa.binary()),
        ("arr", pa.list_(_INT)), ("m", pa.map_(pa.string(), _INT)), ("st", pa.struct([("arr", pa.list_(_INT))])),
        ("by", pa.int8()), ("sh", pa.int16()),
    ]
)  # fmt: skip
_LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
_NONE = [None] * 8
ROWS: list[list[Any]] = [
    [1, "flat1", {"name": "s1", "port": 5, "deep": {"a": 1.5, "b": [1]}}, float("nan"), 0.5, -0.0, Decimal("123.450"),
     Decimal("1.000000000000000001"), dt.date(1900, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 123456, _UTC),
     dt.datetime(2024, 1, 1, 0, 0, 0, 123456), True, b"\1", [1, None], [("k", 1)], {"arr": [1]}, 1, 2],
    [2, "flat2", None, float("-inf"), float("inf"), 0.0, Decimal(-5), Decimal(-1), dt.date(9999, 12, 31),
     _LAST.replace(tzinfo=_UTC), _LAST, None, None, None, None, None, -1, None],
    [3, None, {"name": None, "port": 7, "deep": None}, 1.0, -0.25, 2.5, None, None, None, None, None, None, None, [],
     [], {"arr": None}, None, None],
]  # fmt: skip

_N, _C = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
PROPERTIES: dict[str, dict[str, str]] = {
    "none": {},
    "no columns": {_N: "0"},
    "three columns": {_N: "3"},
    "five columns": {_N: "5"},
    "all columns": {_N: "-1"},
    "a field": {_C: "host.name"},
    "a name with a dot": {_C: "`host.name`,DT"},
    "a struct, and a number that does not count": {_C: "host, sh", _N: "1"},
    "blanks": {_C: " host . port "},
    "nothing named": {_C: ""},
}


def rows() -> pa.Table:
    return pa.table([list(column) for column in zip(*ROWS, strict=True)], schema=SCHEMA)


def logged(table: Path) -> dict[str, Any]:
    """The statistics of the newest file that the log adds; decimals with all their digits."""
    found: dict[str, Any] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                found = json.loads(action["add"]["stats"], parse_float=Decimal)
    return found


def recorded(spark: SparkSession, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, (case, properties) in enumerate(PROPERTIES.items()):
        table = folder / str(number)
        frame = spark.createDataFrame(rows())
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in frame.schema)
        told = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
        spark.sql(
            f"create table delta.`{table}` ({columns}) using delta {f'tblproperties ({told})' if properties else ''}"
        )
        frame.coalesce(1).write.format("delta").mode("append").save(str(table))
        found[case] = logged(table)
    return json.loads(json.dumps(found, default=str))


def main() -> None:
    from tests.storage.delta_jars import delta_session

    with delta_session() as spark, tempfile.TemporaryDirectory() as folder:
        FILE.write_text(json.dumps(recorded(spark, Path(folder)), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
