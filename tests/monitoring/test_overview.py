"""A job's state, and how old what its sinks show is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.monitoring.overview import State, overview_of, rows_per_s
from spark_ckpt.monitoring.words import age_text, sparkline
from spark_ckpt.protocol.events import OperatorAck, SourceAck, TimeSeen
from spark_ckpt.protocol.records import BatchRecord, EndedRecord, Figures, PausedRecord
from tests.monitoring.facts_harness import MINUTE, NOW_MS, SECOND, complete, facts, heartbeat, row, start, trigger

PAUSED = PausedRecord(NOW_MS - MINUTE, "the warehouse moves")
STATES = {
    "a heartbeat": ({}, State.RUNNING, ""),
    "no start": ({"starts": (), "heard": None}, State.NEW, ""),
    "no heartbeat and no end": ({"heard": None}, State.CRASHED, "without a word"),
    "an end without an error": ({"heard": None, "ended": EndedRecord(1, NOW_MS)}, State.STOPPED, ""),
    "an end with one": (
        {"heard": None, "ended": EndedRecord(1, NOW_MS, "ConfigError", "no such topic")},
        State.FAILED,
        "ConfigError: no such topic",
    ),
    "an end with one of others": (
        {"heard": None, "ended": EndedRecord(1, NOW_MS, "ValueError")}, State.FAILED, "ValueError",
    ),
    "a start that waits": ({"waits": True}, State.WAITS, "approve"),
    "half a rollback": ({"starts": (start(to_set_back=("out",)),)}, State.ROLLING_BACK, "to be finished"),
    "a checkpoint open for a while": ({"open_triggers": (trigger(4, 59 * SECOND),)}, State.RUNNING, ""),
    "a checkpoint open for long": ({"open_triggers": (trigger(4, 61 * SECOND),)}, State.STUCK, "checkpoint 4 waits"),
    "one open for three long intervals": (
        {"starts": (start(settings={"interval": "1min"}),), "open_triggers": (trigger(4, 2 * MINUTE),)},
        State.RUNNING,
        "",
    ),
    "a commit that waits for long": ({"completions": (complete(4, 2 * MINUTE),)}, State.STUCK, "not committed in out"),
    "a pause": ({"paused": PAUSED}, State.PAUSED, "the warehouse moves"),
    "a pause of a job that does not run": (
        {"paused": PAUSED, "heard": None, "ended": EndedRecord(1, NOW_MS)}, State.STOPPED, "paused",
    ),
    "a pause and a checkpoint open for long": (
        {"paused": PAUSED, "open_triggers": (trigger(4, 61 * SECOND),)}, State.STUCK, "checkpoint 4 waits",
    ),
    "a commit that waits": ({"completions": (complete(4, SECOND),)}, State.RUNNING, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_a_job_is_in_the_state_that_its_folder_tells(name):
    what, state, why = STATES[name]
    found = overview_of(facts(**what))
    assert found.state is state
    assert why in found.why
    assert bool(found.why) == bool(why)


def test_who_keeps_a_checkpoint_open_is_named():
    acks = (SourceAck("in", 4, {}), OperatorAck("totals", 4, 0, {0: None, 1: None}))
    batch = BatchRecord(1, 9, 1, events=acks, barriers={4: 4})
    found = overview_of(facts(open_triggers=(trigger(4, 2 * MINUTE),), batches=(batch,)))
    assert "operator totals (2 of 4 key groups)" in found.why
    assert "source" not in found.why


def test_a_sink_is_behind_by_the_time_since_the_trigger_of_what_it_shows():
    found = overview_of(facts())
    assert [s.behind_ms for s in found.sinks] == [6 * SECOND, 6 * SECOND]
    assert found.behind_ms == 6 * SECOND
    waits = overview_of(facts(completions=(complete(3, 20 * SECOND), complete(4, SECOND))))
    out, copy = waits.sinks
    assert (out.behind_ms, out.waiting) == (21 * SECOND, (4,))
    assert copy.waiting == ()


def test_a_job_without_a_committed_checkpoint_is_behind_by_no_known_time():
    assert overview_of(facts(completions=(), committed=frozenset())).behind_ms is None


def test_a_sinks_event_time_is_the_watermark_of_what_it_shows():
    times = {2: (TimeSeen("totals", 5_000_000, 1),), 4: (TimeSeen("totals", 9_000_000, 2),)}
    found = overview_of(facts(batches=(BatchRecord(1, 4, 1, times=times),), history=(row(3),)))
    assert found.sinks[0].event_time_ms == 5_000


def test_what_cannot_be_read_is_told_and_the_rest_is_shown():
    found = overview_of(facts(problems=("history: no table",)))
    assert found.state is State.RUNNING
    assert found.facts.problems == ("history: no table",)


def test_a_driver_of_an_older_start_does_not_make_the_newest_one_run():
    assert overview_of(facts(starts=(start(1), start(2)), heard=None)).state is State.CRASHED
    assert overview_of(facts(starts=(start(1), start(2)), heard=heartbeat(2))).start == 2


def test_ages_and_bars_are_read_at_a_glance():
    assert [age_text(ms) for ms in (None, 0, 1500, 61_000, 3_600_000, 36_000_000, 864_000_000)] == [
        "", "0 ms", "1.5 s", "1.0 min", "1.0 h", "10 h", "10 d",
    ]  # fmt: skip
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 2, 8]) == "▂▃█"


def test_rows_a_second_are_those_of_the_last_minute_or_since_the_oldest_batch_that_is_known():
    at = {1: NOW_MS - 2 * MINUTE, 2: NOW_MS - 30 * SECOND, 3: NOW_MS - 10 * SECOND}
    rows = {1: {"in": 10_000}, 2: {"in": 400}, 3: {"in": 200}}
    assert rows_per_s(facts(batches=(BatchRecord(1, 3, 1, rows=rows, at=at),))) == {"in": 10.0}
    younger = BatchRecord(1, 3, 1, rows=rows, at={2: at[2], 3: at[3]})
    assert rows_per_s(facts(batches=(younger,))) == {"in": 200 / 30}, "when those of batch 2 were read is not known"
    assert rows_per_s(facts(batches=(BatchRecord(1, 3, 1, rows=rows),))) == {}
    assert rows_per_s(facts(batches=(younger,), heard=None)) == {}


def test_sources_tell_their_rate_and_what_they_have_not_read():
    batch = BatchRecord(1, 3, 1, at={3: NOW_MS - MINUTE}, figures=Figures(behind={"in": 7}))
    (source,) = overview_of(facts(batches=(batch,))).sources
    assert (source.rows_per_s, source.behind) == (None, 7)


def test_operators_tell_how_long_their_slowest_subtask_aligned():
    parts = {"totals": {"0": {"alignment_ms": 5}, "1": {"alignment_ms": 90}, "2": {}}}
    done = replace(complete(3, 5 * SECOND), tables={"totals": None})
    seen = overview_of(facts(completions=(done,), history=(row(3, phases={"operators": parts}),)))
    assert [o.alignment_ms for o in seen.operators] == [90]
