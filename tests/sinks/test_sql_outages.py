"""The ``sql`` sink's tasks and a server that is away, or whose answer is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import RetryableError
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_harness import context, permit, stage, stage_table, table_of
from tests.lost_answer import LostAnswer
from tests.postgres_server import PASSWORD, PostgresServer
from tests.servers import Missed
from tests.sinks.sql_harness import make, new_database, run, said


def test_a_task_waits_for_a_server_that_is_away(tmp_path: Path, caplog: Any) -> None:
    server = PostgresServer().start()
    try:
        url = server.new_database()
        sink, hasty = make(url), make(url)
        with Missed(server) as missed:
            staged = stage(sink, [(1, "a")])
        assert "it is asked again for 30 s" in missed.said
        sink.commit(permit(1), staged)
        config = JobConfig.from_options({"spark.ckpt.dir": str(tmp_path), "spark.ckpt.retry.timeout": "300ms"})
        hasty.place = JobPlace(str(tmp_path), config)
        server.kill()
        with pytest.raises(RetryableError, match="staging rows of epoch 2") as error:
            stage(hasty, [(2, "b")], 2, 2)
        server.restart()
        assert "it is asked again for 0.3 s" in caplog.text
        assert PASSWORD not in said(error.value) + caplog.text
        assert run(url, "SELECT k, v FROM t") == [(1, "a")]
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["postgresql", pytest.param("mariadb", marks=pytest.mark.soak)])
def test_rows_are_staged_once_when_the_answer_to_a_commit_is_lost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first transaction of a task, and of a later one."""
    monkeypatch.setattr("spark_ckpt.sinks.sql._writer._CHUNK_ROWS", 1)
    direct = sa.make_url(new_database(kind, tmp_path))
    url = direct.render_as_string(hide_password=False)
    make(url)
    assert direct.port is not None
    for nth in (1, 2, 3):
        with LostAnswer(direct.port, b"COMMIT", nth) as between:
            beside = direct.set(port=between.port).render_as_string(hide_password=False)
            sink = SqlSink({"url": beside, "table": "t"})
            rows = [table_of([(nth, f"v{n}")]) for n in range(3)]
            staged = stage_table(sink, context(nth, nth), *rows)
            assert between.lost
        SqlSink({"url": url, "table": "t"}).commit(permit(nth), staged)
    assert run(url, "SELECT k, v FROM t ORDER BY k, v") == [(k, f"v{n}") for k in (1, 2, 3) for n in range(3)]
