"""A completed checkpoint that one sink can never take: every start says so, until it is given up by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.spark.start import checked_sinks
from tests.spark.conftest import DEADLINE_S


class TwoSinks:
    """A Delta table, and a database table whose key is unique."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder, str(folder / "jobs")
        self.sql = {"url": f"sqlite:///{folder}/out.db", "table": "orders"}
        self.delta = {"path": f"{folder}/orders"}
        self._database("create table orders (k varchar primary key, v bigint)")

    def start(self, df: Any, **options: str) -> Any:
        writer = df.writeStream.format("sql").options(**self.sql).alsoTo("delta", **self.delta).queryName("orders")
        return writer.options(**options).trigger(availableNow=True).start()

    def _database(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.folder / "out.db")
        with connection:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found

    def rows(self) -> tuple[list[Any], list[Any]]:
        table = DeltaTable(self.delta["path"]).to_pyarrow_table().to_pylist()
        return sorted(self._database("select k, v from orders")), sorted((r["k"], r["v"]) for r in table)

    def staged(self) -> int:
        return int(self._database("select count(*) from spark_ckpt_stages")[0][0])

    def command(self, *words: str) -> Any:
        return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_a_commit_that_can_never_succeed_is_given_up_by_hand(ckpt: Any, new_input: Any, tmp_path: Path) -> None:
    out, data = TwoSinks(tmp_path), new_input("data", "k string, v long")
    data.add(("a", 1))
    assert out.start(data.stream(ckpt)).awaitTermination(DEADLINE_S)
    data.add(("a", 2), ("b", 3))
    with pytest.raises(
        Exception, match="checkpoint 2 of job 'orders' is complete, but its sink 'sql' could not commit"
    ):
        out.start(data.stream(ckpt)).awaitTermination(DEADLINE_S)
    for restore in ("auto", "none", "1"):
        with pytest.raises(
            InvalidInputError, match=r"UNIQUE constraint(?s:.)*spark-ckpt abandon DIR orders 2 --sink sql"
        ):
            out.start(data.stream(ckpt), restore=restore, checkpointLocation=str(tmp_path / f"spark-{restore}"))
    assert out.rows() == ([("a", 1)], [("a", 1)])

    refused = out.command("abandon", out.jobs, "orders", "1", "--sink", "sql")
    assert (refused.exit_code, "complete and not committed: 2 in 'delta' and 'sql'" in refused.output) == (1, True)
    assert out.command("abandon", out.jobs, "orders", "2", "--sink", "sql").exit_code == 0
    data.add(("c", 4))
    query = out.start(data.stream(ckpt), checkpointLocation=str(tmp_path / "spark-after"))
    assert query.awaitTermination(DEADLINE_S)

    assert out.rows() == ([("a", 1), ("c", 4)], [("a", 1), ("a", 2), ("b", 3), ("c", 4)])
    assert [(c["id"], c["reason"]) for c in query.checkpoints()] == [
        (1, None),
        (2, "given up in sink 'sql'"),
        (3, None),
    ]
    assert "given up in sink 'sql'" in out.command("list", out.jobs, "orders").output
    assert '"abandoned": [\n    "sql"\n  ]' in out.command("show", out.jobs, "orders", "2").output
    assert out.staged() == 1
    job = spark_ckpt.job(out.jobs, "orders", checked_sinks([("sql", dict(out.sql)), ("delta", dict(out.delta))]))
    assert len(job.gc()) == 1
    assert out.staged() == 0
    with pytest.raises(InvalidInputError, match="checkpoint 2 is committed in all its sinks"):
        job.abandon(2, sink="sql")
