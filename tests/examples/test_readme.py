"""The README's code runs, on local data, with local addresses in place of those it shows."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")

PREAMBLE = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ckpt.dir", {ckpt!r})
    .config("spark.ckpt.interval", "1s")
    .config("spark.ckpt.maxParallelism", "4")
    .getOrCreate()
)
s = "customer_id LONG, amount LONG"
"""
EPILOGUE = """
assert not query.isActive
assert query.checkpoints()[-1]["outcome"] == "completed", query.checkpoints()
"""


def test_the_readmes_code_runs_as_it_stands(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    code = PREAMBLE.format(ckpt=f"{tmp_path}/ckpt") + block[1] + EPILOGUE
    for shown, local in (
        ("s3://lake/orders", f"{tmp_path}/orders"),
        ("s3://lake/savepoints", f"{tmp_path}/savepoints"),
        ("postgresql+psycopg://...", f"sqlite:///{tmp_path}/totals.db"),
    ):
        assert shown in code
        code = code.replace(shown, local)
    (tmp_path / "orders").mkdir()
    orders = pa.table({"customer_id": [1, 2, 1, 3], "amount": [10, 20, 5, 0]})
    pq.write_table(orders, tmp_path / "orders" / "1.parquet")
    (tmp_path / "readme.py").write_text(code)
    path = os.pathsep.join([str(ROOT), str(ROOT / "python_datasource")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, tmp_path / "readme.py"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout.decode()[-5000:]
    connection = sqlite3.connect(tmp_path / "totals.db")
    rows = connection.execute("SELECT customer_id, n, total FROM totals ORDER BY 1").fetchall()
    connection.close()
    assert rows == [(1, 2, 15), (2, 1, 20)]
    assert sorted(p.name for p in (tmp_path / "savepoints").iterdir()) == ["before-v2", "last"]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/configuration.md"])
def test_links_lead_to_files_that_are_there(document: str) -> None:
    path = ROOT / document
    broken = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert broken == []


def test_every_make_target_named_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(
        re.findall(r"^make ([a-z]+)|`make ([a-z]+)", README + (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    )
    assert {a or b for a, b in named} <= targets


def test_continuous_integration_runs_the_readmes_command() -> None:
    assert "make test" in README
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
