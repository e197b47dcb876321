"""Makes the checkpoints of plain Spark that tests import. To be run with each version of PySpark, which has no
``spark_ckpt``; it needs pandas 2,
pyarrow and protobuf:

    PYTHONPATH=. python -m tests.spark_checkpoints.make tests/spark_checkpoints

leaves ``VERSION.tar.xz`` there: of each case the checkpoint behind the files of ``BEFORE``, and in ``expected.json``
what the query put out when it went on with those of ``BEHIND``.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tests.spark_checkpoints.plain_queries import (
    BEFORE,
    BEHIND,
    SCHEMA,
    aggregates,
    collected,
    joins,
    kinds,
    processor,
    rows,
    semi,
)

INPUT, LOCATION = "file:///INPUT", "file:/LOCATION"
"""In the checkpoints' logs and metadata, in place of the folder that was read, and of the checkpoint's own."""
_STATE = "org.apache.spark.sql.execution.streaming.state."
_STORE = "spark.sql.streaming.stateStore."
HDFS = {f"{_STORE}providerClass": f"{_STATE}HDFSBackedStateStoreProvider"}
SNAPSHOTS = {
    f"{_STORE}providerClass": f"{_STATE}RocksDBStateStoreProvider",
    f"{_STORE}rocksdb.changelogCheckpointing.enabled": "false",
}
CHANGELOG = {**SNAPSHOTS, f"{_STORE}rocksdb.changelogCheckpointing.enabled": "true"}


class Case(NamedTuple):
    query: Callable[[Any], Any]
    mode: str
    keys: str | None
    """Columns of which only the last row counts."""
    conf: dict[str, str]


CASES = {
    "aggregates-hdfs": Case(aggregates, "update", "k", HDFS),
    "aggregates-snapshots": Case(aggregates, "update", "k", SNAPSHOTS),
    "collected-snapshots": Case(collected, "update", "k", SNAPSHOTS),
    "kinds-hdfs": Case(kinds, "append", None, HDFS),
    "kinds-changelog": Case(kinds, "append", None, CHANGELOG),
    "joins-hdfs": Case(joins, "append", None, HDFS),
    "joins-changelog": Case(joins, "append", None, CHANGELOG),
    "semi-hdfs": Case(semi, "append", None, HDFS),
    "processor-changelog": Case(processor, "append", None, CHANGELOG),
}


def main(target: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in {"shuffle.partitions": "2", "session.timeZone": "America/New_York"}.items():
        builder = builder.config(f"spark.sql.{key}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    made = Path(target, f"{pyspark.__version__}.tar.xz")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(made, "w:xz") as packed:
        for name, case in CASES.items():
            for key, value in case.conf.items():
                spark.conf.set(key, value)
            _pack(packed, name, _run(spark, case, Path(folder, name)))
    spark.stop()


def _run(spark: SparkSession, case: Case, folder: Path) -> dict[str, bytes]:
    """Files by name."""
    files, location = folder / "input", folder / "location"
    files.mkdir(parents=True)

    def added(number: int, at: int) -> None:
        schema = to_arrow_schema(StructType.fromDDL(SCHEMA))
        columns = [pa.array(c, f.type) for c, f in zip(zip(*rows(at), strict=True), schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), files / f"{number:03d}.parquet")

    def put_out() -> list[tuple[Any, ...]]:
        seen: list[tuple[Any, ...]] = []
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))
        writer = case.query(stream).writeStream.outputMode(case.mode).option("checkpointLocation", str(location))
        writer = writer.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
        writer.trigger(availableNow=True).start().awaitTermination()
        return seen

    for number, at in enumerate(BEFORE):
        added(number, at)
        put_out()
    shutil.copytree(location, folder / "kept")
    for number, at in enumerate(BEHIND, len(BEFORE)):
        added(number, at)
    behind = put_out()
    found = behind if case.keys is None else list({row[0]: row for row in behind}.values())
    kept = [p for p in sorted((folder / "kept").rglob("*")) if p.is_file() and not p.name.startswith(".")]
    made = {str(p.relative_to(folder / "kept")): _moved(p.read_bytes(), folder) for p in kept}
    return {**made, "expected.json": json.dumps(sorted(map(repr, found)), indent=0).encode()}


def _moved(content: bytes, folder: Path) -> bytes:
    return content.replace(f"file://{folder}/input".encode(), INPUT.encode()).replace(
        f"file:{folder}/location".encode(), LOCATION.encode()
    )


def _pack(packed: tarfile.TarFile, case: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        entry = tarfile.TarInfo(f"{case}/{name}")
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main(sys.argv[1])
