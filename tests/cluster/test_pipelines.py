"""The plain plugin in a declarative pipeline, run by Spark's own runner: docs/plain-plugin.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import spark_ckpt
from spark_ckpt.spark_versions import spark_version
from tests.kill.processes import environment, own_defaults

RUNNER = Path(sys.prefix) / "bin/spark-pipelines"
SPEC = """
name: orders
storage: file://{folder}/storage
catalog: spark_catalog
database: default
libraries:
  - glob:
      include: flows/**
"""
FLOW = """
import spark_ckpt
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
JOB = {{"job": "orders", "checkpointLocation": "{folder}/location"}}

dp.create_sink("large_orders", "ckpt", {{**JOB, "sink": "delta", "path": "{folder}/lake"}})


@dp.append_flow(target="large_orders")
def large():
    orders = spark.readStream.format("ckpt").options(**JOB).option("source", "json")
    orders = orders.schema("id long, amount long, __ckpt_tag long, __ckpt_ctl binary").load("{folder}/in")
    return orders.where(f"amount > 10 OR {{spark_ckpt.CONTROL_ROW}}")
"""
IN_A_TABLE = FLOW.replace('@dp.append_flow(target="large_orders")\ndef large', "@dp.table\ndef in_a_table")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(spark_version() < (4, 2), reason="the plain plugin needs Spark 4.2"),
]


class Pipeline:
    """In a folder, with one file of orders."""

    def __init__(self, folder: Path, flow: str) -> None:
        for name in ("flows", "in"):
            (folder / name).mkdir()
        (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))
        (folder / "flows/large.py").write_text(flow.format(folder=folder))
        conf = f"spark.ckpt.dir {folder}/jobs\nspark.sql.shuffle.partitions 2\n"
        self._environment = environment(**own_defaults(folder, conf))
        self.folder = folder
        self.add(1, '{"id": 1, "amount": 5}\n{"id": 2, "amount": 50}\n')

    def add(self, number: int, rows: str) -> None:
        (self.folder / f"in/{number}.json").write_text(rows)

    def run(self, *arguments: str) -> tuple[int, str]:
        """The runner's exit code, and what it said."""
        done = subprocess.run(
            [str(RUNNER), "run", *arguments], cwd=self.folder, env=self._environment, text=True, timeout=400,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def rows(self) -> list[tuple[int, ...]]:
        table = DeltaTable(str(self.folder / "lake")).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())


def test_each_run_goes_on_and_a_full_refresh_reads_nothing_twice(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, FLOW)
    code, said = pipeline.run()
    assert code == 0, said[-6000:]
    assert pipeline.rows() == [(2, 50)]
    pipeline.add(2, '{"id": 3, "amount": 15}\n')
    code, said = pipeline.run("--full-refresh-all")
    assert code == 0, said[-6000:]
    assert pipeline.rows() == [(2, 50), (3, 15)]
    assert spark_ckpt.job(str(tmp_path / "jobs"), "orders").verify() == []


def test_a_flow_into_a_table_of_the_pipeline_ends_with_an_error_that_says_why(tmp_path: Path) -> None:
    """Spark writes the table; nothing takes the barriers there."""
    code, said = Pipeline(tmp_path, IN_A_TABLE).run()
    assert code != 0, said[-6000:]
    assert "and whether the writer is format('ckpt')" in said, said[-6000:]
