"""The Python of the README and of the pages runs, block after block, in the order in which a page shows it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.kafka.sink_target import committed
from tests.kafka_server import shared_kafka

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN = [
    "sources",
    "sinks",
    "iceberg",
    "from-foreachbatch",
    "restore",
    "state",
    "changing-a-job",
    "writing-state",
    "from-plain-spark",
    "running",
    "writing-a-sink",
    "writing-a-source",
    "delta",
    "kafka",
    "methods",
]
"""Pages in an order in which one may build on another: state.md looks at the job of restore.md."""

PREAMBLE = """
import sqlite3
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import spark_ckpt
from spark_ckpt import agg

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ckpt.dir", "checkpoints")
    .config("spark.ckpt.interval", "1h")  # checkpoints are those that are asked for, and final ones
    .config("spark.ckpt.initialDelay", "1h")
    .config("spark.ckpt.retain", "5")
    .config("spark.ckpt.maxParallelism", "4")
    .getOrCreate()
)
"""
STREAMS = """
ckpt = spark_ckpt.enable(spark)
stream = ckpt.readStream.format("files").option("fileFormat", "json")
orders = stream.schema("id long, customer string, amount long").load("orders")
totals = orders.groupBy("customer").aggregate(n=agg.count(), total=agg.sum("amount")).uid("totals")
"""
README = """
s = "customer_id LONG, amount LONG"
spark.conf.set("spark.ckpt.dir", "readme/checkpoints")
{code}
assert not query.isActive
assert query.checkpoints()[-1]["outcome"] == "completed", query.checkpoints()
spark.conf.set("spark.ckpt.dir", "checkpoints")
"""
BEHIND = {
    "methods": """
query.processAllAvailable()
query.stop(drain=True)
found = set(DeltaTable("lake/totals_by_sql").to_pandas()[["customer", "total"]].itertuples(index=False, name=None))
assert found == {("a", 15), ("b", 30)}, found
""",
    "sinks": """
query.processAllAvailable()
query.checkpoint()
query.stop()
import os, shutil
os.remove("totals.db")
shutil.rmtree("checkpoints/orders")
""",
    "iceberg": """
stored = load_catalog("default", **lake).load_table("sales.orders").scan().to_arrow().to_pylist()
assert sorted(r["amount"] for r in stored) == [5, 10, 30], stored
copied = sqlite3.connect("copied.db").execute("SELECT id, customer, amount FROM orders ORDER BY 1").fetchall()
assert copied == [(1, "a", 10), (2, "b", 30), (3, "a", 5)], copied
assert [tuple(r) for r in spark.createDataFrame([], rows.schema).dtypes] == [("id", "bigint"), ("text", "string")]
""",
    "kafka": """
query.processAllAvailable()
query.checkpoint()
query.stop()
""",
    "delta": """
query.processAllAvailable()
query.checkpoint()
query.stop()
copied = sqlite3.connect("copy.db").execute("SELECT customer, name FROM customers ORDER BY 1").fetchall()
assert copied == [(1, "a"), (2, "b")], copied
""",
    "restore": "query.processAllAvailable() if query.isActive else None",
    "state": "assert [tuple(r.values()) for r in best.to_struct_array().to_pylist()] == [('b', 30), ('a', 15)]",
    "running": """
assert table.sort_values("customer").values.tolist() == [["a", 2, 15], ["b", 1, 30]], table
""",
}


def test_every_block_of_python_is_run_or_is_a_file_that_tests_run() -> None:
    with_code = {p.stem for p in DOCS.glob("*.md") if BLOCK.search(p.read_text())}
    # examples/payments/job.py, and tests/testing/test_testing_a_job_page.py
    assert with_code == {*RUN, "plain-plugin", "payments", "testing-a-job"}


@pytest.mark.timeout(1000)
def test_the_pages_code_runs(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "tmp").mkdir()  # where the sink memory keeps what has a name
    orders = [{"id": 1, "customer": "a", "amount": 10}, {"id": 2, "customer": "b", "amount": 30}]
    orders.append({"id": 3, "customer": "a", "amount": 5})
    (tmp_path / "orders" / "1.json").write_text("".join(json.dumps(o) + "\n" for o in orders))
    for name in ("orders", "products", "customers"):
        table, feed = pa.table({"customer": [1, 2], "name": ["a", "b"]}), {"delta.enableChangeDataFeed": "true"}
        write_deltalake(tmp_path / "lake" / name, table, configuration=feed if name == "customers" else None)
    events = sqlite3.connect(tmp_path / "events.db")
    events.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, text TEXT)")
    events.execute("INSERT INTO events (text) VALUES ('one'), ('two')")
    events.commit()
    events.close()
    kafka = shared_kafka()
    kafka.new_topic(name="orders")
    kafka.new_topic(2, name="totals")
    script = [PREAMBLE, README.format(code=code_of_the_readme(tmp_path / "readme")), STREAMS]
    for page in RUN:
        script.append(f"print('--- {page}', flush=True)")
        script += BLOCK.findall((DOCS / f"{page}.md").read_text())
        script.append(BEHIND.get(page, ""))
    code = "\n".join(script).replace("broker-1:9092,broker-2:9092", kafka.bootstrap)
    (tmp_path / "pages.py").write_text(code + "\nprint('--- end')\n")
    path = os.pathsep.join(map(str, [ROOT, ROOT / "python_datasource", ROOT / "tests" / "docs"]))
    done = subprocess.run(
        [sys.executable, "pages.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "--- end" in done.stdout
    check_readme(tmp_path / "readme")
    for file in ("before", "after", "totals"):
        assert customers(tmp_path / f"{file}.db") == [("a", 2, 15), ("b", 1, 30)]
    assert customers(tmp_path / "totals.db", "orders_copy") in ([], [("a", 2, 15), ("b", 1, 30)])
    in_kafka = {m.key(): json.loads(m.value()) for m in committed(kafka, "totals")}
    assert in_kafka == {
        b"a": {"customer": "a", "n": 2, "total": 15},
        b"b": {"customer": "b", "n": 1, "total": 30},
    }
    assert len(list((tmp_path / "arrow-orders").glob("*.arrow"))) == 1
    assert len(list((tmp_path / "events").glob("*.parquet"))) >= 1
    assert sorted(p.name for p in (tmp_path / "savepoints").iterdir()) == ["before-v2", "monday"]


def code_of_the_readme(folder: Path) -> str:
    """On local data, with local addresses in place of those it shows."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    code = block[1]
    for shown, local in (
        ("s3://lake/orders", f"{folder}/orders"),
        ("s3://lake/savepoints", f"{folder}/savepoints"),
        ("postgresql+psycopg://...", f"sqlite:///{folder}/totals.db"),
    ):
        assert shown in code
        code = code.replace(shown, local)
    (folder / "orders").mkdir(parents=True)
    pq.write_table(pa.table({"customer_id": [1, 2, 1, 3], "amount": [10, 20, 5, 0]}), folder / "orders" / "1.parquet")
    return code


def check_readme(folder: Path) -> None:
    connection = sqlite3.connect(folder / "totals.db")
    rows = connection.execute("SELECT customer_id, n, total FROM totals ORDER BY 1").fetchall()
    connection.close()
    assert rows == [(1, 2, 15), (2, 1, 20)]
    assert sorted(p.name for p in (folder / "savepoints").iterdir()) == ["before-v2", "last"]


def customers(database: Path, table: str = "") -> list[tuple[object, ...]]:
    connection = sqlite3.connect(database)
    try:
        table = table or ("orders" if database.name == "totals.db" else "totals")
        return connection.execute(f"SELECT customer, n, total FROM {table} ORDER BY 1").fetchall()
    finally:
        connection.close()
