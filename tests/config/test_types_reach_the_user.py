"""What mypy tells a user who has the package installed: its types, and what is mistyped. Needs no Spark running."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import spark_ckpt
from tests.config.shown_code import all_shown_code
from tests.config.test_public_face import CLASSES, MODULES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # mypy and pytest bring it there

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"

USER = """
from __future__ import annotations

from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg

spark = SparkSession.builder.getOrCreate()
ckpt = spark_ckpt.enable(spark)
orders = ckpt.readStream.format("files").schema("customer string, amount long").load("/data/orders")
grouped = orders.where("amount > 0").groupBy("customer")
totals = grouped.aggregate(n=agg.count()).uid("totals")
writer = totals.writeStream
query = writer.format("delta").queryName("orders").trigger(availableNow=True).start("/lake/totals")

reveal_type(ckpt)  # spark_ckpt.api.session.CkptSession
reveal_type(ckpt.spark)  # pyspark.sql.session.SparkSession
reveal_type(ckpt.readStream)  # spark_ckpt.api.read.CkptDataStreamReader
reveal_type(orders)  # pyspark.sql.dataframe.DataFrame
reveal_type(orders.schema)  # pyspark.sql.types.StructType
reveal_type(orders["amount"])  # pyspark.sql.column.Column
reveal_type(orders.amount)  # pyspark.sql.column.Column
reveal_type(orders.columns)  # list[str]
reveal_type(orders.withWatermark("at", "1 hour").union(orders))  # pyspark.sql.dataframe.DataFrame
reveal_type(grouped)  # pyspark.sql.group.GroupedData
reveal_type(totals)  # pyspark.sql.dataframe.DataFrame
reveal_type(ckpt.writeStream(orders))  # spark_ckpt.api.write.CkptDataStreamWriter
reveal_type(agg.count())  # spark_ckpt.agg.AggSpec
reveal_type(writer)  # spark_ckpt.api.write.CkptDataStreamWriter
reveal_type(query)  # spark_ckpt.api.query.CkptQuery
reveal_type(query.isActive)  # bool
reveal_type(query.awaitTermination(10))  # bool | None
reveal_type(query.lastProgress)  # pyspark.sql.streaming.listener.StreamingQueryProgress | None
reveal_type(query.exception())  # pyspark.errors.exceptions.base.StreamingQueryException | None
reveal_type(query.checkpoints())  # spark_ckpt.jobs.checkpoints.Checkpoints
reveal_type(query.checkpoint())  # int
reveal_type(query.savepoint("/lake/savepoint"))  # int
reveal_type(query.stop(drain=True))  # int | None
reveal_type(query.job)  # spark_ckpt.jobs.job.Job
reveal_type(query.job.state_table("totals"))  # tuple[str, int]
reveal_type(spark_ckpt.job("/data/checkpoints", "orders"))  # spark_ckpt.jobs.job.Job
reveal_type(ckpt.streams.active)  # list[pyspark.sql.streaming.query.StreamingQuery]

spark_ckpt.enabel(spark)  # error: Module has no attribute "enabel"
spark_ckpt.enable("local[2]")  # error: Argument 1 to "enable"
ckpt.readstream  # error: "CkptSession" has no attribute "readstream"
ckpt.readStream.fromat("files")  # error: "CkptDataStreamReader" has no attribute "fromat"
ckpt.readStream.format(dict)  # error: Argument 1 to "format"
orders.gruopBy("customer")  # error: "Column" not callable
grouped.averge("amount")  # error: "GroupedData" has no attribute "averge"
grouped.aggregate(n="count").uid("totals")  # error: Argument "n" to "aggregate"
grouped.topN(3, "amount", rang="place")  # error: Unexpected keyword argument "rang" for "topN"
totals.uid(5)  # error: Argument 1 to "with_uid"
writer.tigger(availableNow=True)  # error: "CkptDataStreamWriter" has no attribute "tigger"
writer.format("delta").start().awaitTermination("soon")  # error: Argument 1 to "awaitTermination"
query.chekpoints()  # error: "CkptQuery" has no attribute "chekpoints"
query.savepoint()  # error: Missing positional argument "path"
query.job.savepiont("/lake/savepoint")  # error: "Job" has no attribute "savepiont"
ckpt.streams.actve  # error: "CkptStreams" has no attribute "actve"


class Half(spark_ckpt.TwoPhaseSink):
    def writer(self, ctx: spark_ckpt.WriterContext) -> spark_ckpt.SinkWriter:
        reveal_type(ctx.partition)  # int
        raise NotImplementedError

    def commit(self, permit: str, committables: object) -> None:  # error: Argument 1 of "commit" is incompatible
        pass


Half({})  # error: Cannot instantiate abstract class "Half"
"""

SHOWN = """
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

import spark_ckpt
from spark_ckpt import CallContext, agg

spark = SparkSession.builder.getOrCreate()
ckpt = spark_ckpt.enable(spark)
ddl = "customer string, amount long, at timestamp"
orders = ckpt.readStream.format("files").schema(ddl).load("/data/orders")
rows = orders
query = orders.writeStream.format("delta").start("/lake/orders")
job = query.job
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy, with no configuration but ``--strict`` and our plugin, says of the user's files: by file and line."""
    folder = tmp_path_factory.mktemp("user")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        # As pip would put it there: mypy believes such a package only if it has py.typed.
        shutil.copytree(ROOT / package, folder / "site" / Path(package).name, ignore=shutil.ignore_patterns("*.pyc"))
    (folder / "user.py").write_text(USER)
    (folder / "mypy.ini").write_text("[mypy]\nplugins = spark_ckpt.mypy\n")
    shown = all_shown_code([spark_ckpt, *MODULES, *CLASSES])
    functions = [f"\n\ndef {name}() -> None:\n{textwrap.indent(code, '    ')}\n" for name, code in shown.items()]
    (folder / "shown.py").write_text(SHOWN + "".join(functions))
    tutorial = dict(
        re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    )
    for name, code in tutorial.items():
        (folder / name).write_text(code)
    # PySpark is most of the work, and the same every time.
    cache = ROOT / ".mypy_cache" / "user"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--strict", "--no-warn-unused-ignores",
         f"--cache-dir={cache}", "--hide-error-context", "--no-error-summary", "user.py", "shown.py", *tutorial],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder / "site")}, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    found: dict[str, dict[int, str]] = {name: {} for name in ("user.py", "shown.py", *tutorial)}
    for line in done.stdout.splitlines():
        match = re.match(r"(\w+\.py):(\d+): (?:note: Revealed type is \"(.*)\"|(error: .*))", line)
        if match:
            found[match[1]].setdefault(int(match[2]), match[3] or match[4])
    return found


def test_each_step_has_its_type_and_what_is_mistyped_is_an_error(said: dict[str, dict[int, str]]) -> None:
    lines = USER.splitlines()
    expected = {n: line.split("  # ")[1] for n, line in enumerate(lines, 1) if "  # " in line}
    found = {n: said["user.py"].get(n, "nothing") for n in expected}
    assert {n: f for n, f in found.items() if not f.startswith(expected[n])} == {}
    assert [said["user.py"][n] for n in said["user.py"].keys() - expected.keys()] == []


def test_the_code_that_docstrings_show_passes(said: dict[str, dict[int, str]]) -> None:
    assert said["shown.py"] == {}


def test_the_files_of_the_tutorial_pass(said: dict[str, dict[int, str]]) -> None:
    """They are run with the soak tests only. They need no annotations."""
    found = {name: lines for name, lines in said.items() if name not in ("user.py", "shown.py")}
    assert "job.py" in found
    told = {(name, line, text) for name, lines in found.items() for line, text in lines.items()}
    assert {one for one in told if "Need type annotation" not in one[2]} == set()
