"""Each finding of ``spark-ckpt doctor`` has a job that it is found in, and one like it that it is not found in."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.sink_records import SinkEntry
from spark_ckpt.jobs.unnamed import unnamed_files
from spark_ckpt.monitoring.findings import CHECKS, Severity, findings_of
from spark_ckpt.monitoring.folder import look_at
from spark_ckpt.monitoring.overview import overview_of
from spark_ckpt.protocol.records import BatchRecord, EndedRecord, FailingSink, Figures, PausedRecord
from spark_ckpt.sinks.memory import MemorySink
from tests.monitoring.facts_harness import (
    MINUTE,
    NOW_MS,
    SECOND,
    TOPOLOGY,
    complete,
    facts,
    heartbeat,
    row,
    start,
    trigger,
)
from tests.storage.whole_job import WholeJob


def _subtasks(*rows: int) -> dict[str, Any]:
    parts = {n: {"written_rows": {"mean": mean}} for n, mean in enumerate(rows)}
    return {"operators": {"totals": {"all": {}, "subtasks": parts}}}


def _alike(**values: Any) -> tuple[Any, ...]:
    return tuple(row(k, **values) for k in range(20))


DAY = 24 * 60 * MINUTE
KAFKA = start(topology=replace(TOPOLOGY, reads={"in": "kafka orders"}))
WAITING = {"heard": None, "completions": (complete(3, SECOND),), "committed": frozenset()}


def _batch(behind: int) -> BatchRecord:
    """Of a source that read 1,000 rows a second in the last minute."""
    at = {1: NOW_MS - MINUTE, 2: NOW_MS}
    return BatchRecord(1, 2, 1, rows={2: {"in": 60_000}}, at=at, figures=Figures(behind={"in": behind}))


def _kafka_sink(timeout_ms: int, **options: str) -> SinkEntry:
    return SinkEntry("out", "kafka", "a:B", {"kafka.transaction.timeout.ms": str(timeout_ms), **options})


def _failing(checkpoint: int) -> FailingSink:
    at_ms = NOW_MS - MINUTE
    return FailingSink("out", "delta /lake/out", checkpoint, 12, at_ms, at_ms + SECOND, "ConnectionRefusedError")


FOUND = {
    "crashed": ({"heard": None}, {"heard": None, "ended": EndedRecord(1, NOW_MS)}),
    "failed": (
        {"heard": None, "ended": EndedRecord(1, NOW_MS, "ConfigError", "x")},
        {"heard": None, "ended": EndedRecord(1, NOW_MS)},
    ),
    "waits": ({"waits": True}, {}),
    "paused": ({"paused": PausedRecord(NOW_MS - MINUTE, "the warehouse moves")}, {}),
    "rollback": ({"starts": (start(to_set_back=("out",)),)}, {}),
    "stuck-commit": ({"completions": (complete(4, 2 * MINUTE),)}, {"completions": (complete(4, SECOND),)}),
    "stuck-checkpoint": ({"open_triggers": (trigger(4, 2 * MINUTE),)}, {"open_triggers": (trigger(4, SECOND),)}),
    "failing": (
        {"history": tuple(row(k, outcome="expired", reason="10 min") for k in range(3))},
        {"history": (row(0, outcome="expired"), row(1, outcome="expired"), row(2))},
    ),
    "growing-alignment": (
        {"history": tuple(row(k, alignment_ms=100 if k < 10 else 2500) for k in range(20))},
        {"history": _alike(alignment_ms=2500)},
    ),
    "growing-duration": (
        {"history": tuple(row(k, took_ms=500 if k < 10 else 2500) for k in range(20))},
        {"history": tuple(row(k, took_ms=100 if k < 10 else 900) for k in range(20))},
    ),
    "longer-than-interval": ({"history": _alike(took_ms=11 * SECOND)}, {"history": _alike(took_ms=9 * SECOND)}),
    "near-timeout": ({"history": _alike(took_ms=9 * MINUTE)}, {"history": _alike(took_ms=7 * MINUTE)}),
    "endless-state": (
        {"history": tuple(row(k, keys=100 + 10 * k) for k in range(20))},
        {"history": tuple(row(k, keys=100 + 10 * (k % 15)) for k in range(20))},
    ),
    "skew": ({"statistics": _subtasks(2000, 10, 12)}, {"statistics": _subtasks(2000, 1900, 1800)}),
    "stale": ({"completions": (complete(3, 9 * MINUTE),)}, {"completions": (complete(3, 40 * SECOND),)}),
    "pause-above-interval": (
        {"starts": (start(settings={"minPause": "11s"}),)},
        {"starts": (start(settings={"minPause": "10s"}),)},
    ),
    "timeout-below-interval": (
        {"starts": (start(settings={"timeout": "9s"}),)},
        {"starts": (start(settings={"timeout": "10s"}),)},
    ),
    "clock": ({"heard": heartbeat(ahead_ms=6 * SECOND)}, {"heard": heartbeat(ahead_ms=4 * SECOND)}),
    "lagging": (
        {"starts": (KAFKA,), "batches": (_batch(behind=700_000),)},
        {"starts": (KAFKA,), "batches": (_batch(behind=500_000),)},
    ),
    "slow-sink": (
        {"history": _alike(took_ms=4000, phases={"driver": {"commit_sinks_ms": 2500}})},
        {"history": _alike(took_ms=4000, phases={"driver": {"commit_sinks_ms": 1900}})},
    ),
    "failing-sink": (
        {"completions": (complete(4, SECOND),), "failing": (_failing(4),)},
        {"completions": (complete(4, SECOND),), "failing": (_failing(4),), "abandoned": frozenset({(4, "out")})},
    ),
    "retried-sink": (
        {"failing": (_failing(3),), "committed": frozenset({3, 12})},
        {"failing": (_failing(3),), "committed": frozenset({3, 13})},
    ),
    "transaction-timeout": (
        {"sinks": (_kafka_sink(15 * SECOND),), "history": _alike(took_ms=3 * SECOND)},
        {"sinks": (_kafka_sink(15 * SECOND),), "history": _alike(took_ms=1 * SECOND)},
    ),
    "open-transaction": (
        {**WAITING, "sinks": (_kafka_sink(15 * MINUTE, staging="kafka"),)},
        {**WAITING, "sinks": (_kafka_sink(15 * MINUTE, staging="durable"),)},
    ),
    "source-forgets": (
        {"starts": (KAFKA,), "heard": None, "completions": (complete(3, 4 * DAY),)},
        {"starts": (KAFKA,), "heard": None, "completions": (complete(3, 3 * DAY),)},
    ),
    "unnamed-files": ({"unnamed": {"totals": 12}}, {"unnamed": {"totals": 2}}),
    "unreadable": ({"problems": ("history: damaged",)}, {}),
}


def _codes(what: dict[str, Any]) -> list[str]:
    return [f.code for f in findings_of(overview_of(facts(**what)))]


@pytest.mark.parametrize("code", FOUND)
def test_a_finding_is_found_where_it_is_and_nowhere_else(code):
    there, not_there = FOUND[code]
    assert code in _codes(there)
    assert code not in _codes(not_there)


def test_nothing_is_found_in_a_job_that_runs_well():
    assert _codes({"history": _alike()}) == []


def test_every_check_has_a_case():
    assert len(CHECKS) <= len(FOUND)
    found = {f.code for there, _ in FOUND.values() for f in findings_of(overview_of(facts(**there)))}
    assert found >= set(FOUND)


def test_a_state_that_ends_by_itself_may_grow():
    ends = replace(TOPOLOGY, operators={"totals": {"timeout": "EventTimeTimeout"}})
    grown = {"history": tuple(row(k, keys=100 + 10 * k) for k in range(20))}
    assert "endless-state" not in _codes({**grown, "starts": (start(topology=ends),)})


def test_errors_come_first_and_say_what_to_do():
    found = findings_of(overview_of(facts(heard=None, starts=(start(settings={"timeout": "9s"}),))))
    assert [f.severity for f in found] == [Severity.ERROR, Severity.WARNING]
    assert all(f.todo for f in found)


def test_a_savepoint_is_no_slow_sink_and_a_drained_job_needs_no_source():
    slow = {"took_ms": 4000, "phases": {"driver": {"commit_sinks_ms": 2500}}}
    saved = tuple(replace(row(k, **slow), kind="savepoint") for k in range(20))
    assert "slow-sink" not in _codes({"history": saved})
    ended = {"starts": (KAFKA,), "heard": None, "ended": EndedRecord(1, NOW_MS)}
    assert "source-forgets" in _codes({**ended, "completions": (complete(3, 9 * DAY),)})
    assert "source-forgets" not in _codes({**ended, "completions": (complete(3, 9 * DAY, drained=True),)})


def test_only_files_that_are_old_and_that_nobody_names_are_counted(tmp_path):
    job = WholeJob(tmp_path)
    job.start()
    job.step(checkpoint=True)
    (folder,) = (job.folder / "state").iterdir()
    (folder / "left.parquet").write_bytes(b"x")
    assert unnamed_files(job.records, min_age_s=0.0) == {"counts": 1}
    assert unnamed_files(job.records) == {}
    assert look_at(job.job, listing=True).facts.unnamed == {}
    long_ago = time.time() - 2 * 86_400
    for file in folder.glob("*.parquet"):
        os.utime(file, (long_ago, long_ago))
    assert look_at(job.job, listing=True).facts.unnamed == {"counts": 1}
    assert look_at(job.job).facts.unnamed == {}


class Sulking(MemorySink):
    """Fails as often as ``left`` says, with a text that nobody may see."""

    left: ClassVar[int] = 0

    def commit(self, permit: Any, committables: Any) -> None:
        if Sulking.left:
            Sulking.left -= 1
            raise ConnectionError("no way to db, password=hunter2")
        super().commit(permit, committables)


class JobWithSulking(WholeJob):
    def _sinks(self):
        first, second = super()._sinks()
        return replace(first, cls=Sulking), second


def test_a_sink_that_fails_is_told_while_it_does_and_for_some_checkpoints_behind(tmp_path):
    job = JobWithSulking(tmp_path, **{"retry.timeout": "1s", "retry.firstPause": "1ms"})
    job.start()
    job.step(checkpoint=True)
    assert look_at(job.job).facts.failing == ()
    Sulking.left = 3
    job.step(checkpoint=True)
    told = {f.code: f for f in findings_of(look_at(job.job))}
    assert "sink appended, which writes to MemorySink(" in told["retried-sink"].what
    assert "failed 3 times at checkpoint 2, the last at" in told["retried-sink"].what
    assert told["retried-sink"].what.endswith("UTC by ConnectionError")
    Sulking.left = 1_000_000
    with pytest.raises(CkptError):
        job.step(checkpoint=True)
    tries = 1_000_000 - Sulking.left
    (failing,) = look_at(job.job).facts.failing
    assert (failing.sink, failing.checkpoint, failing.tries) == ("appended", 3, tries)
    told = {f.code: f for f in findings_of(look_at(job.job))}
    assert f"does not take checkpoint 3: it failed {tries} times since" in told["failing-sink"].what
    assert "retried-sink" not in told
    assert not [f for f in (tmp_path / "jobs").rglob("*.json") if "hunter2" in f.read_text()]
    Sulking.left = 1
    job.start()  # it commits what is complete; tries are counted on
    (failing,) = look_at(job.job).facts.failing
    assert (failing.checkpoint, failing.tries) == (3, tries + 1)
    assert {"failing-sink", "retried-sink"} & {f.code for f in findings_of(look_at(job.job))} == {"retried-sink"}
