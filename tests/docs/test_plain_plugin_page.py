"""The page of the plain plugin runs, with the conf that it shows in ``spark-defaults.conf`` and nothing else set."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.processes import own_defaults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plain-plugin.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BEGIN = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
"""
MORE_ORDERS = """
open("orders/.2.json", "w").write('{"id": 4, "customer": "b", "amount": 40}\\n{"id": 5, "amount": 12}\\n')
import os; os.rename("orders/.2.json", "orders/2.json")
"""
LOOK = """
from deltalake import DeltaTable

def rows(path, key="id"):
    return sorted((tuple(r.values()) for r in DeltaTable(path).to_pyarrow_table().to_pylist()), key=str)

print("orders", rows("lake/orders"))
print("large", rows("lake/large"))
print("huge", sorted(tuple(r) for r in spark.read.parquet("huge").collect()))
print("totals", rows("lake/totals"))
print("few", few.isStreaming, few.columns)
"""


@pytest.mark.soak  # a start of Spark with settings of its own; tests/spark/test_plain_plugin.py does what it shows
@pytest.mark.timeout(600)
def test_the_pages_code_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    orders = [{"id": i, "customer": c, "amount": 10 * i} for i, c in ((1, "a"), (2, "b"), (3, "a"))]
    (tmp_path / "orders" / "1.json").write_text("".join(json.dumps(o) + "\n" for o in orders))
    shown = re.search(r"```\n# spark-defaults.conf.*?\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    settings = f"spark.sql.warehouse.dir {tmp_path}/warehouse\nspark.sql.shuffle.partitions 2\n"
    defaults = own_defaults(tmp_path, shown[1].replace("/data", str(tmp_path)) + settings)
    first, *others = BLOCK.findall(PAGE.replace("/data", str(tmp_path)))
    (tmp_path / "page.py").write_text("\n".join([BEGIN, first, MORE_ORDERS, *others, LOOK]))
    path = os.pathsep.join(map(str, [ROOT, ROOT / "python_datasource"]))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, **defaults},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.splitlines()[-6:] == [
        "2 []",
        "orders [(1, 'a', 10), (2, 'b', 20), (3, 'a', 30)]",
        "large [(4, 40, True), (5, 12, False)]",
        "huge [(4, 40)]",
        "totals [(1, 20), (2, 40)]",
        "few True ['value', '__ckpt_tag', '__ckpt_ctl']",
    ]
    with sqlite3.connect(tmp_path / "archive.db") as connection:
        assert connection.execute("SELECT * FROM orders ORDER BY id").fetchall() == [(4, 40), (5, 12)]
