"""The confs that a query needs while it starts are the session's no more when all have started."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from spark_ckpt.execution.session_confs import SessionConfs


class Conf(dict[str, str]):
    set = dict.__setitem__
    unset = dict.pop


def test_two_threads_that_start_queries_leave_the_session_as_it_was() -> None:
    before = {"spark.sql.adaptive.streaming.stateless.enabled": "true", "spark.other": "1"}
    spark: Any = SimpleNamespace(conf=Conf(before))
    entered, first_is_done = threading.Event(), threading.Event()

    def start() -> None:
        with SessionConfs(spark, "/there"):
            entered.set()
            first_is_done.wait()

    second = threading.Thread(target=start)
    with SessionConfs(spark, "/here"):
        assert spark.conf["spark.sql.streaming.unsupportedOperationCheck"] == "false"
        second.start()
        entered.wait(0.2)  # time to come in between, if it could
    first_is_done.set()
    second.join()
    assert entered.is_set()
    assert spark.conf == before
