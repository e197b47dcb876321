"""State tables as the page shows them, and SQL over them: what it finds, and what it can never do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.monitoring import state_tables
from spark_ckpt.monitoring.sql_process import answer
from spark_ckpt.monitoring.state_tables import Rows, Table, head_of, look_up, query, tables_of
from tests.storage.whole_job import UID, WholeJob


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    made = WholeJob(tmp_path_factory.mktemp("state"))
    made.start()
    made.step(True)
    made.step(True)
    return made.job


def test_tables_have_their_keys_columns_and_rows_of_the_checkpoint_that_is_asked_for(job: Job) -> None:
    assert tables_of(job, 2) == (Table(UID, ("k",), (("k", "int64"), ("n", "int64"))),)
    assert [head_of(job, UID, k, 2) for k in (1, 2)] == [
        Rows(("k", "n"), (("1", "2"), ("0", "2")), True),
        Rows(("k", "n"), (("1", "3"), ("0", "3")), True),
    ]


def test_a_key_is_looked_up_by_its_text(job: Job) -> None:
    assert look_up(job, UID, 2, ["4"]).rows == (("4", "2"),)
    assert look_up(job, UID, 2, ["99"]).rows == ()
    with pytest.raises(InvalidInputError, match="int64"):
        look_up(job, UID, 2, ["x"])


def test_sql_sees_the_state_of_the_checkpoint_in_its_order(job: Job) -> None:
    found = query(job, 1, f"WITH c AS (SELECT k, n AS N, NULL AS x FROM {UID.upper()}) SELECT * FROM c ORDER BY k DESC")
    assert found.columns == ("k", "N", "x")
    assert found.rows[:2] == (("4", "1", None), ("3", "1", None))
    assert query(job, 1, "SELECT * FROM range(5000)").more
    assert len(query(job, 1, "SELECT * FROM range(5000)").rows) == state_tables.ROWS


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("COPY (SELECT 1) TO '{file}'", "expected one SELECT, found COPY"),
        ("ATTACH '{file}'", "expected one SELECT"),
        ("INSTALL httpfs", "expected one SELECT"),
        ("SET enable_external_access = true", "expected one SELECT"),
        ("SELECT 1; SELECT 2", "expected one SELECT, found SELECT and SELECT"),
        ("", "found nothing"),
        ("SELECT * FROM read_text('{file}')", "disabled by configuration"),
        ("SELECT * FROM '{file}'", "disabled by configuration"),
        ("SELECT * FROM read_csv('http://localhost:1/x')", "disabled by configuration"),
        ("SELECT * FROM asked", "does not exist"),
        ("SELEC 1", "syntax error"),
        ("SELECT count(*) FROM range(100000000) a, range(100000000) b", "more memory than the 64 MiB"),
    ],
)
def test_sql_reads_nothing_else_and_changes_nothing(job: Job, tmp_path: Path, sql: str, said: str) -> None:
    file = tmp_path / "there.csv"
    file.write_text("secret")
    asked = {"sql": sql.replace("{file}", str(file)), "checkpoint": 2, "rows": 9, "memory_bytes": 1 << 26}
    told = answer(job, asked)
    assert told.keys() == {"refused"}
    assert said in told["refused"]
    assert "secret" not in told["refused"]
    assert file.read_text() == "secret"


def test_what_is_refused_in_the_process_is_told_of_a_relative_folder_too(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(job.config.dir)
    monkeypatch.chdir(folder.parent)
    here = Job(replace(job.config, dir=folder.name), job.name)
    assert query(here, 2, f"SELECT count(*) FROM {UID}").rows == (("5",),)
    with pytest.raises(InvalidInputError, match="expected one SELECT, found COPY"):
        query(job, 2, "COPY (SELECT 1) TO '/nowhere'")


def test_a_query_that_takes_too_long_is_ended_and_says_so(job: Job) -> None:
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n % 7 FROM r) SELECT count(*) FROM r"
    with pytest.raises(InvalidInputError, match=r"longer than 0\.5 s and was ended"):
        query(job, 2, endless, seconds=0.5)
    assert query(job, 2, "SELECT 1").rows == (("1",),), "the next one is answered"
