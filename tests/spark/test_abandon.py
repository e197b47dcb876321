"""A sink that cannot take what a checkpoint authorised: the ways out of the message, followed to the letter."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import spark_ckpt
import spark_ckpt.sinks.memory
from spark_ckpt.cli import app
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.sql.sink import SqlSink
from tests.spark.conftest import DEADLINE_S, Input, wait_until

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int32())])


class Conflict:
    """A query into a table, and into a sink that takes all. The first commit of the table is refused, and not its
    rows: nothing shows that before the checkpoint is complete."""

    def __init__(self, ckpt: Any, data: Input, folder: Path) -> None:
        self.ckpt, self.data, self.folder = ckpt, data, folder
        self._engine = sa.create_engine(f"sqlite:///{folder}/out.db", poolclass=sa.NullPool)
        self.do("create table out (k integer, v integer)")
        SqlSink({"url": f"sqlite:///{folder}/out.db", "table": "out"}).validate(SCHEMA)
        self.do(
            "create trigger closed before insert on spark_ckpt_ledger when new.checkpoint = 1 "
            "begin select raise(abort, 'the books are closed'); end"
        )
        data.add((1, 10), (2, 20))

    def do(self, statement: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.text(statement))

    def start(self, now: bool = True) -> Any:
        writer = self.data.stream(self.ckpt).writeStream.format("sql").queryName("orders")
        writer = writer.options(url=f"sqlite:///{self.folder}/out.db", table="out")
        writer = writer.alsoTo("memory", path=f"{self.folder}/memory").options(interval="1ms", initialDelay="0s")
        return (writer.trigger(availableNow=True) if now else writer).start()

    def fail(self) -> str:
        """A running query, of which the commit fails; then a start. Returns what both say."""
        query = self.start(now=False)
        wait_until(lambda: not query.isActive)
        running = str(query.exception())
        assert "the books are closed" in running
        with pytest.raises(InvalidInputError) as starting:
            self.start()
        for said in (running, str(starting.value)):
            assert "checkpoint 1 of job 'orders' is complete, but its sink 'sql' could not commit it" in said
            assert "Repair what stands in its way and start again" in said
        return running

    def finish(self) -> Any:
        self.data.add((3, 30))
        query = self.start()
        assert query.awaitTermination(DEADLINE_S)
        return query

    def rows(self) -> tuple[list[Any], list[Any]]:
        with self._engine.connect() as connection:
            table = [tuple(row) for row in connection.execute(sa.text("select k, v from out order by k"))]
        memory = sorted(tuple(r.values()) for r in spark_ckpt.sinks.memory.read(f"{self.folder}/memory").to_pylist())
        return table, memory


@pytest.fixture
def conflict(ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path) -> Conflict:
    return Conflict(ckpt, new_input("in", "k int, v int"), tmp_path)


EVERYTHING = [(1, 10), (2, 20), (3, 30)]


@pytest.mark.smoke
def test_what_stood_in_the_way_is_repaired_and_the_next_start_commits(conflict: Conflict) -> None:
    conflict.fail()
    conflict.do("drop trigger closed")
    query = conflict.finish()
    assert conflict.rows() == (EVERYTHING, EVERYTHING)
    assert {(c["outcome"], c["reason"]) for c in query.checkpoints()} == {("completed", None)}


def by_command(said: str, folder: Path) -> None:
    (found,) = set(re.findall(r"`spark-ckpt (abandon DIR [^`]*)`", said))
    done = CliRunner().invoke(app, [str(folder / "jobs") if word == "DIR" else word for word in shlex.split(found)])
    assert done.exit_code == 0, done.output


def in_python(said: str, folder: Path) -> None:
    (found,) = set(re.findall(r"in Python `([^`]*)`", said))
    eval(found, {"spark_ckpt": spark_ckpt, "dir": str(folder / "jobs")})  # noqa: S307 - our own message


@pytest.mark.parametrize("give_up", [by_command, pytest.param(in_python, marks=pytest.mark.soak)])
def test_what_is_given_up_in_one_sink_is_committed_in_the_others(
    conflict: Conflict, give_up: Callable[[str, Path], None], tmp_path: Path
) -> None:
    give_up(conflict.fail(), tmp_path)
    query = conflict.finish()
    assert conflict.rows() == ([(3, 30)], EVERYTHING)
    first, *later = [(c["id"], c["outcome"], c["reason"]) for c in query.checkpoints()]
    assert first == (1, "completed", "given up in sink 'sql'")
    assert {row[1:] for row in later} == {("completed", None)}
    query.stop()
    assert any("2 rows" in name for name in query.job.gc()), "what was staged for it is collected"
    assert conflict.rows() == ([(3, 30)], EVERYTHING)
