"""The plain plugin through Spark Connect: a query with SQL in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.processes import environment, own_defaults

SCRIPT = """
import os, sys
from deltalake import DeltaTable
from pyspark.sql import SparkSession
import spark_ckpt

spark = SparkSession.builder.remote("local[2]").getOrCreate()

def reader(job):
    options = {"source": "rate-micro-batch", "numRows": "10", "rowsPerBatch": "4", "job": job, "uid": "numbers"}
    return spark.readStream.format("ckpt").options(**options).load()

def run(writer, path):
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return sorted(tuple(r.values()) for r in DeltaTable(path).to_pyarrow_table().to_pylist())

reader("plain").createOrReplaceTempView("numbers")
sql = spark.sql("SELECT value * 2 AS w, __ckpt_tag, __ckpt_ctl FROM numbers WHERE value > 6 OR __ckpt_ctl IS NOT NULL")
here = os.getcwd()
writer = sql.writeStream.format("ckpt").option("sinks", "delta,memory").option("memory.path", f"{here}/memory")
try:
    run(writer.option("delta.path", "lake/plain").queryName("plain"), "lake/plain")
except Exception as error:
    print("relative", "option path of sink 'delta' is relative, and Spark Connect" in str(error))
writer = writer.option("delta.path", f"{here}/lake/plain")
print("plain", run(writer.queryName("plain"), "lake/plain"))

print("jobs", spark_ckpt.job(sys.argv[1], "plain").verify())
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_plain_streams_and_sql_through_connect(tmp_path: Path) -> None:
    conf = f"spark.ckpt.dir {tmp_path}/jobs\nspark.sql.streaming.checkpointLocation {tmp_path}/locations\n"
    defaults = own_defaults(tmp_path, f"{conf}spark.sql.shuffle.partitions 2\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(tmp_path / "jobs")],
        cwd=tmp_path,
        env=environment(**defaults),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.splitlines()[-3:] == [
        "relative True",
        "plain [(14,), (16,), (18,)]",
        "jobs []",
    ]
