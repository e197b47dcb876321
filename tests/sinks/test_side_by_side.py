"""Sinks of different classes are waited for at the same time; those of one class take turns."""

from __future__ import annotations

import threading

import pytest

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.base import Part
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.sinks.side_by_side import Call, side_by_side
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.sinks.together import commit_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import SCHEMA, permit, stage


def test_sinks_of_different_classes_wait_together():
    all_are_there = threading.Barrier(3, timeout=60)
    done = side_by_side([Call(all_are_there.wait, cls) for cls in (DeltaSink, KafkaSink, SqlSink)])
    assert sorted(o.value for o in done) == [0, 1, 2]


def test_sinks_of_one_class_take_turns():
    running, most = [], []

    def action():
        running.append(1)
        most.append(len(running))
        threading.Event().wait(0.01)
        running.pop()

    side_by_side([Call(action, DeltaSink) for _ in range(4)])
    assert most == [1, 1, 1, 1]


def test_a_sink_that_does_not_say_so_is_called_by_the_thread_that_asks():
    classes = (MemorySink, DeltaSink, MemorySink, FilesSink)
    done = side_by_side([Call(threading.get_ident, cls) for cls in classes])
    here = threading.get_ident()
    assert [o.value == here for o in done] == [True, False, True, False]


def test_what_one_raises_keeps_no_other_from_being_done():
    def fail():
        raise ValueError("no")

    done = side_by_side([Call(fail, DeltaSink), Call(lambda: "done", SqlSink), Call(lambda: "done", DeltaSink)])
    assert [o.value for o in done] == [None, "done", "done"]
    assert isinstance(done[0].error, ValueError)
    assert side_by_side([]) == []


def test_an_error_of_one_sink_is_told_in_its_place_and_the_others_are_committed(tmp_path):
    sinks = [MemorySink({"path": f"{tmp_path}/{name}"}) for name in "abc"]
    for sink in sinks:
        sink.validate(SCHEMA)
    staged = [stage(sink, [(1, "a")]) for sink in sinks]
    sinks[1].abort(staged[1])
    told = commit_sinks(permit(1), [Part(sink, names) for sink, names in zip(sinks, staged)], Retry(1))
    assert [type(error) for error in told] == [type(None), CorruptStorageError, type(None)]
    assert [memory.read(f"{tmp_path}/{name}").num_rows for name in "abc"] == [1, 0, 1]


def test_what_ends_the_process_is_not_kept_back():
    with pytest.raises(KeyboardInterrupt):
        side_by_side([Call(_interrupted, DeltaSink), Call(lambda: 1, SqlSink)])


def _interrupted():
    raise KeyboardInterrupt
