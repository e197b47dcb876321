"""User hooks hear of every trigger, snapshot, completion and abort, wherever it happens."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from keeping_hooks import folder
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark import cloudpickle
from recording_hooks import told  # as the workers import it, by the path that conftest adds

import spark_ckpt
from spark_ckpt.api import _watching
from spark_ckpt.errors import ConfigError
from spark_ckpt.monitoring.folder import look_at
from spark_ckpt.monitoring.otel import Telemetry
from tests.spark.conftest import Input, Job, named, wait_until
from tests.spark.test_alignment import BOTH_ONCE, Crossing

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_hooks_are_told_of_triggers_snapshots_completions_and_aborts(
    ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    crossing = Crossing(ckpt, new_input, job)
    options = {"job": f"hooks-{uuid.uuid4().hex}", "hooks": "recording_hooks:Recording", "tolerableFailures": "1"}
    query = crossing.start(alignment__maxBufferedBytes="1", **options)
    crossing.cross(query)
    wait_until(lambda: query.checkpoints(), query)
    query.stop()
    crossing.finish(**options)
    assert job.rows() == BOTH_ONCE, "the hook that raises at every snapshot changes nothing"

    file = told(options["job"])
    heard = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    assert [(what, k) for what, k, _ in heard if what != "snapshot"] == [
        ("trigger", 1),
        ("abort", 1),
        ("trigger", 2),
        ("complete", 2),
    ]
    by_what = {what: info for what, _, info in heard}
    assert by_what["abort"]["cause"] == "declined"
    assert "held back" in by_what["abort"]["reason"]
    assert by_what["trigger"]["kind"] == by_what["complete"]["kind"] == "final"
    assert by_what["complete"]["duration_ms"] >= 0
    snapshots = [(k, info["uid"], info["partition"]) for what, k, info in heard if what == "snapshot"]
    assert sorted(set(snapshots)) == [(2, "totals", 0), (2, "totals", 1)]
    assert sum(info["keys"] for what, _, info in heard if what == "snapshot") == 2


def test_hooks_get_back_what_they_kept_after_a_restart_and_from_a_savepoint(
    ckpt: Any, new_input: Callable[[str, str], Input], job: Job, tmp_path: Path
) -> None:
    data, name = new_input("in", "v long"), f"keeping-{uuid.uuid4().hex}"
    options = {"job": name, "hooks": "keeping_hooks:Keeping", "tolerableFailures": "1"}
    mode, restored = folder(name) / "mode", folder(name) / "restored"
    data.add((1,))
    mode.write_text("raise")
    query = job.run(data.stream(ckpt), **options)
    found = [(c["id"], c["outcome"], c["reason"]) for c in query.checkpoints()]
    assert found == [
        (1, "failed", "on_trigger raised KeyError; the driver's log says more"),
        (2, "completed", None),
    ]
    assert job.rows() == [(1,)]

    query = job.start(data.stream(ckpt), now=False, **options)
    assert restored.read_text() == f"2 {name} 2\n"
    query.stop(savepoint=str(tmp_path / "savepoint"))
    shutil.rmtree(tmp_path / "jobs")
    other = {"restore": str(tmp_path / "savepoint"), "job": f"{name}.next"}
    with pytest.raises(ConfigError, match=r"checkpoint 4 holds state of the hooks 'keeping': expected them in .* none"):
        job.run(data.stream(ckpt), **other)
    data.add((2,))
    job.run(data.stream(ckpt), **{**options, **other})
    assert job.rows() == [(1,), (2,)]
    assert restored.read_text().splitlines()[1:] == [f"5 {name} 3"], "the savepoint was checkpoint 3 of the other job"
    (newest,) = spark_ckpt.job(str(tmp_path / "jobs"), other["job"]).completed()[-1:]
    assert newest.hook is not None
    assert newest.hook.state == f"{name}.next {newest.checkpoint}".encode()
    shutil.rmtree(folder(name))


class Counting:
    """Counts the rows of each key; writes down which checkpoints it hears of, and raises for the first."""

    def __init__(self, heard: str) -> None:
        self.heard = heard

    def __call__(self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        n = (state.get[0] if state.exists else 0) + sum(len(f) for f in frames)
        state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        with open(self.heard, "a") as out:
            out.write(f"{checkpoint}\n")
        if checkpoint == 1:
            raise RuntimeError("a broken listener")


def test_functions_hear_of_complete_checkpoints_in_every_task_of_every_operator(
    ckpt: Any, new_input: Callable[[str, str], Input], job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v long")
    data.add(("a", 1), ("b", 2))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    def counts() -> Any:
        def counted(df: Any, key: str, uid: str, heard: str) -> Any:
            return (
                df.groupBy(key)
                .applyInPandasWithState(Counting(heard), "k string, n long", "n long", "append", "NoTimeout")
                .uid(uid)
            )

        return counted(counted(data.stream(ckpt), "k", "x", first).select("k", "n"), "k", "y", second)

    query = job.start(counts(), now=False)
    query.processAllAvailable()  # and checkpoint 1
    data.add(("a", 3))
    query._query.processAllAvailable()
    query.stop(savepoint=str(tmp_path / "savepoint"))
    assert [Path(f).read_text() for f in (first, second)] == ["1\n1\n"] * 2, "once in each of two tasks; it raises"
    data.add(("a", 4))
    job.run(counts(), checkpointLocation=str(tmp_path / "elsewhere"))
    assert [Path(f).read_text().splitlines()[2:] for f in (first, second)] == [["2", "2"]] * 2
    assert job.rows() == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


def test_a_driver_tells_metrics_traces_and_a_line_a_checkpoint_while_its_query_runs(
    ckpt: Any, new_input: Callable[[str, str], Input], job: Job, monkeypatch: Any, caplog: Any
) -> None:
    reader, exporter, tracers = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])
    telemetry = Telemetry(_watching._running.samples, meters.get_meter("t"), tracers.get_tracer("t"))
    monkeypatch.setattr(_watching, "_telemetry", [telemetry])  # providers of a process are set once for all tests
    caplog.set_level(logging.INFO, "spark_ckpt")
    rows = new_input("in", "k STRING, v BIGINT")
    rows.add(("a", 1), ("b", 2))
    counts = named(rows.stream(ckpt, uid="in").groupBy("k").count(), "counts")
    query = job.start(counts, "k", now=False, mode="update", metrics__port="0", otel="true", interval="1h")
    port = next(iter(_watching._endpoints.values())).port
    query.processAllAvailable()
    spans = wait_until(exporter.get_finished_spans, query)

    def told() -> dict[str, float]:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        more = ("source", "part")
        return {" ".join([s.name, *(s.labels[n] for n in more if n in s.labels)]): s.value for s in samples}

    found = wait_until(lambda: (m := told()).get("spark_ckpt_checkpoint_duration_seconds_count") and m, query)
    assert found["spark_ckpt_source_rows_total in"] == 2
    assert found["spark_ckpt_state_keys"] == 2
    assert found["spark_ckpt_sink_rows_total"] == 2
    assert {n for n in found if n.startswith("spark_ckpt_batch_time_seconds")} == {
        f"spark_ckpt_batch_time_seconds {part}" for part in ("source", "rows", "state", "sink", "spark")
    }
    root = next(s for s in spans if s.name == "checkpoint")
    assert {s.parent.span_id for s in spans if s is not root} == {root.context.span_id}  # of less than 1 ms is no bar

    def hits() -> int:
        """A process tells what it counted at the end of a task of the sink, and the next one may be another process."""
        rows.add(("a", 1))
        query.processAllAvailable()
        return max(b.figures.asked.get("hit", 0) for b in look_at(query.job).facts.batches)

    wait_until(hits, query)
    line = next(r for r in caplog.records if "checkpoint 1 took" in r.getMessage())
    assert (line.job, line.checkpoint, line.trace_id) == ("job", 1, format(root.context.trace_id, "032x"))
    query.stop()
    wait_until(lambda: not _watching._endpoints)
    with pytest.raises((urllib.error.URLError, ConnectionError)):  # closed, or about to be
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
    meters.shutdown()
