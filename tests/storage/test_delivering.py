"""The thread that hands committed checkpoints to functions: order, errors, ends, fencing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.jobs.delivering import Deliverer, Function
from spark_ckpt.sinks.deliveries import Deliveries, DeliverySink
from spark_ckpt.testing.sink_harness import JOB, SCHEMA, SINK, permit, stage

PATIENCE_S = 60.0


class Query:
    """What is asked of Spark's query; the test is the query."""

    def __init__(self) -> None:
        self.isActive, self.lastProgress, self.stopped = True, None, threading.Event()

    def batch(self) -> None:
        self.lastProgress = {"batchId": (self.lastProgress or {"batchId": -1})["batchId"] + 1}

    def stop(self) -> None:
        self.isActive = False
        self.stopped.set()


class Place:
    """A folder of deliveries, a query, and what the function was called with."""

    def __init__(self, path: Path) -> None:
        self.sink = DeliverySink({"path": str(path), "schema": "{}"})
        self.sink.validate(SCHEMA)
        self.path, self.query, self.calls = str(path), Query(), []
        self.newer = False

    def commit(self, *checkpoints: int) -> None:
        for k in checkpoints:
            self.sink.commit(permit(k), stage(self.sink, [(k, "v")], k, k))
        self.query.batch()

    def start(self, func: Callable[[int], None] | None = None) -> Deliverer:
        waiting = Deliveries(self.path, {}, JOB, SINK)
        made = Deliverer([Function("f", waiting, func or self.calls.append, "CONDITION")], lambda: self.newer)
        self.query = Query()
        made.start(self.query)
        return made

    def waiting(self) -> list[int]:
        return Deliveries(self.path, {}, JOB, SINK).waiting()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "d")


def test_checkpoints_are_delivered_in_order_while_the_query_runs_and_the_last_ones_when_it_ends(place: Place) -> None:
    place.commit(1, 2)  # of an earlier start
    made = place.start()
    made.settle(PATIENCE_S)
    assert place.calls == [1, 2]
    place.commit(4)
    made.settle(PATIENCE_S)
    assert place.calls == [1, 2, 4]
    place.commit(5, 6)
    place.query.stop()
    assert made.wait(PATIENCE_S)
    assert (place.calls, made.is_active, made.failed) == ([1, 2, 4, 5, 6], False, None)


def test_nothing_is_looked_for_between_two_batches(place: Place) -> None:
    made = place.start()
    made.settle(PATIENCE_S)
    looks: list[int] = []
    waiting = made._functions[0].deliveries
    asked = waiting.waiting
    waiting.waiting = lambda: looks.append(1) or asked()  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        made._wake.set()
    place.query.stop()
    assert made.wait(PATIENCE_S)
    assert len(looks) == 1


def test_a_function_that_raises_ends_the_query_with_the_users_file_and_line_and_is_called_again(place: Place) -> None:
    def fails(checkpoint: int) -> None:
        if checkpoint == 2:
            raise ZeroDivisionError("so it goes")

    made = place.start(fails)
    place.commit(1, 2, 3)
    assert made.wait(PATIENCE_S)
    assert place.query.stopped.is_set()
    assert isinstance(made.error, ZeroDivisionError)
    assert made.failed is not None
    line = fails.__code__.co_firstlineno + 2
    assert f"function of 'f' failed with checkpoint 2 ({__file__}:{line}, in fails): ZeroDivisionError" in made.failed
    with pytest.raises(CheckpointFailedError, match="committed, but not delivered"):
        made.settle(PATIENCE_S)
    again = place.start()
    again.settle(PATIENCE_S)
    assert place.calls == [2, 3]
    place.query.stop()
    assert again.wait(PATIENCE_S)


def test_a_process_that_ends_in_the_function_is_followed_by_one_that_calls_it_again(place: Place) -> None:
    entered, never = threading.Event(), threading.Event()

    def hangs(checkpoint: int) -> None:
        entered.set()
        never.wait(PATIENCE_S)

    place.commit(1)
    first = place.start(hangs)
    assert entered.wait(PATIENCE_S)
    second = place.start()
    second.settle(PATIENCE_S)
    assert place.calls == [1]
    place.query.stop()
    assert second.wait(PATIENCE_S)
    never.set()
    del first


def test_a_newer_start_delivers_alone(place: Place) -> None:
    place.commit(1)
    place.newer = True
    made = place.start()
    assert made.wait(PATIENCE_S)
    assert (place.calls, made.failed, place.waiting()) == ([], None, [1])


def test_a_function_may_stop_its_own_query_or_ask_it_for_a_checkpoint(place: Place) -> None:
    made: list[Any] = []
    ready = threading.Event()

    def stops(checkpoint: int) -> None:
        ready.wait(PATIENCE_S)
        place.query.stop()
        assert not made[0].wait()
        made[0].settle(PATIENCE_S)

    place.commit(1)
    made.append(place.start(stops))
    ready.set()
    assert made[0].wait(PATIENCE_S)
    assert (made[0].failed, place.waiting()) == (None, [])


def test_a_session_that_is_gone_ends_it_without_an_error(place: Place) -> None:
    class Gone(Query):
        @property
        def lastProgress(self) -> Any:
            raise RuntimeError("the JVM has ended")

        @lastProgress.setter
        def lastProgress(self, _: Any) -> None: ...

    place.commit(1)
    made = Deliverer(
        [Function("f", Deliveries(place.path, {}, JOB, SINK), place.calls.append, "CONDITION")], lambda: False
    )
    made.start(Gone())
    assert made.wait(PATIENCE_S)
    assert (place.calls, made.failed) == ([], None)


def test_a_function_that_takes_too_long_for_who_waits_is_left_alone(place: Place) -> None:
    go_on = threading.Event()
    place.commit(1)
    made = place.start(lambda k: place.calls.append(k) if go_on.wait(PATIENCE_S) else None)
    with pytest.raises(CheckpointFailedError, match="still at work"):
        made.settle(0.01)
    assert not made.wait(0.01)
    go_on.set()
    made.settle(PATIENCE_S)
    assert place.calls == [1]
    place.query.stop()
    assert made.wait(PATIENCE_S)
