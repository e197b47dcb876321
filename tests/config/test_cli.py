"""The command ``spark-ckpt`` over real job folders; Spark is not needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_ckpt.cli import app
from spark_ckpt.cli._statistics import statistics_text
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.monitoring.words import size_text
from spark_ckpt.protocol.records import CompletionRecord, TableRef, Topology
from spark_ckpt.storage.history import History, HistoryRow, UidSize
from spark_ckpt.storage.job_paths import id_name
from spark_ckpt.storage.record_store import RecordStore

TOPOLOGY = Topology(4, 4, ("in",), {}, ("out",))


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with the completed checkpoint 3, which names a manifest, and the aborted checkpoint 4."""
    url = tmp_path / "flights"
    records = JobRecords(str(url), JobConfig(dir=str(tmp_path)))
    done = CompletionRecord(
        checkpoint=3,
        kind="checkpoint",
        generation=1,
        origin=1,
        batch=7,
        batches_from=8,
        sources={"in": {"inner": {"row": 5}}},
        tables={"routes": TableRef(2, "manifests/routes/missing.json")},
        committables=(),
        topology=TOPOLOGY,
        triggered_ms=1_700_000_000_000,
        completed_ms=1_700_000_001_500,
    )
    records.store.create(f"checkpoints/{id_name(3)}", "checkpoint", done.to_json())
    history = History(f"{url}/history")
    size = {"routes": UidSize(keys=1234, size_bytes=2048, files=1)}
    history.append(
        HistoryRow(3, "checkpoint", "completed", 1_700_000_000_000, 1, 7, None, 1_700_000_001_500, state=size)
    )
    history.append(HistoryRow(4, "checkpoint", "expired", 1_700_000_010_000, 1, 9, reason="took longer than 1 min"))
    return tmp_path


def test_list_shows_every_checkpoint_with_its_outcome(job: Path) -> None:
    result = command("list", str(job), "flights")
    assert result.exit_code == 0
    assert "completed" in result.output
    assert "1.50 s" in result.output
    assert "routes 1,234" in result.output
    assert "took longer than 1 min" in result.output


def test_list_as_json_is_the_history_of_the_api(job: Path) -> None:
    rows = json.loads(command("list", str(job), "flights", "--json").output)
    assert [row["id"] for row in rows] == [3, 4]
    assert rows[0]["duration_ms"] == 1500
    assert rows[0]["state"]["routes"]["keys"] == 1234


@pytest.mark.parametrize("name", ["list", "verify"])
def test_a_job_that_does_not_exist_is_an_error(job: Path, name: str) -> None:
    result = command(name, str(job), "fligths")
    assert result.exit_code == 1
    assert "no job 'fligths'" in result.output
    assert "['flights']" in result.output


def test_list_of_a_job_without_checkpoints_says_so(tmp_path: Path) -> None:
    RecordStore(str(tmp_path / "nothing")).check_writable("nothing")
    result = command("list", str(tmp_path), "nothing")
    assert (result.exit_code, "no checkpoints" in result.output) == (0, True)


def test_show_prints_the_completion_record(job: Path) -> None:
    shown = json.loads(command("show", str(job), "flights", "3").output)
    assert (shown["checkpoint"], shown["sources"]) == (3, {"in": {"inner": {"row": 5}}})


def test_show_of_an_unknown_checkpoint_names_those_there_are(job: Path) -> None:
    result = command("show", str(job), "flights", "99")
    assert result.exit_code == 1
    assert "99" in result.output
    assert "[3]" in result.output


def test_verify_fails_and_names_what_is_missing(job: Path) -> None:
    result = command("verify", str(job), "flights")
    assert result.exit_code == 1
    assert "missing.json" in result.output


def test_verify_of_a_sound_job_succeeds(tmp_path: Path) -> None:
    RecordStore(str(tmp_path / "flights")).check_writable("flights")
    result = command("verify", str(tmp_path), "flights")
    assert (result.exit_code, "whole" in result.output) == (0, True)


def test_gc_of_a_job_without_garbage_removes_nothing(tmp_path: Path) -> None:
    RecordStore(str(tmp_path / "flights")).check_writable("flights")
    result = command("gc", str(tmp_path), "flights")
    assert (result.exit_code, "nothing to remove" in result.output) == (0, True)


@pytest.mark.parametrize("name", ["savepoint", "stop"])
def test_a_savepoint_of_a_job_that_does_not_run_is_refused_at_once_and_nothing_is_asked(job: Path, name: str) -> None:
    result = command(name, str(job), "flights", str(job / "savepoint"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("no driver of job 'flights' is heard of")
    assert list((job / "flights").glob("requests/*.json")) == []


@pytest.mark.parametrize("columns", [None, 30, 80])
def test_no_table_cuts_anything_and_all_fit_eighty_columns(job: Path, columns: int | None) -> None:
    uids = {f"operator_{i}_with_a_name": UidSize(keys=1_234_567 + i, size_bytes=2**30, files=1) for i in range(3)}
    long = HistoryRow(5, "savepoint", "completed", 1_700_000_020_000, 1, 12345, None, 1_700_003_601_500, state=uids)
    History(f"{job}/flights/history").append(long)
    env = {"COLUMNS": str(columns) if columns else None}
    for arguments in (["list"], ["stats"], ["stats", "--subtasks"]):
        shown = CliRunner().invoke(app, [arguments[0], str(job), "flights", *arguments[1:]], env=env)
        assert shown.exit_code == 0
        assert "…" not in shown.output
        assert columns != 80 or max(map(len, shown.output.splitlines())) <= 80
    listed = CliRunner().invoke(app, ["list", str(job), "flights"], env=env).output
    for uid, size in uids.items():
        assert f"{uid} {size.keys:,}" in " ".join(listed.split())
    assert "took longer than 1 min" in " ".join(listed.split())
    assert columns is not None or len(listed.splitlines()) == 5, "a line a checkpoint, for grep"


def test_the_statistics_of_large_checkpoints_fit_eighty_columns() -> None:
    def much(value: float) -> dict[str, float]:
        return dict.fromkeys(("min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max", "count"), value)

    ms = {name: much(36_000_000) for name in ("duration_ms", "alignment_ms", "commit_sinks_ms")}
    sizes = {name: much(2**40 - 1) for name in ("written_bytes", "full_bytes", "held_back_bytes")}
    metrics = {**ms, **sizes, "written_rows": much(99_999_999), "keys": much(99_999_999)}
    found = {"checkpoints": metrics, "operators": {"totals": {"all": metrics, "subtasks": {0: metrics}}}}
    lines = statistics_text(found, subtasks=True).splitlines()
    assert max(map(len, lines)) <= 80
    assert "totals 0" in lines


@pytest.mark.parametrize("option", ["hunter2", "=hunter2"])
def test_a_storage_option_without_a_name_is_refused_without_showing_it(tmp_path: Path, option: str) -> None:
    result = command("list", str(tmp_path), "flights", "--storage", option)
    assert result.exit_code == 1
    assert "NAME=VALUE" in result.output
    assert "hunter2" not in result.output


def test_storage_options_reach_the_configuration(tmp_path: Path) -> None:
    result = command("list", str(tmp_path), "flights", "--storage", "Key=hunter2")
    assert result.exit_code == 1
    assert "lower case" in result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**60, "1,048,576 TiB")],
)
def test_sizes_are_shown_in_binary_units(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    "command_line",
    [["gc"], ["verify"], ["list"], ["repair-history"], ["show", "1"], ["savepoint", "/nowhere"], ["stop", "/nowhere"],
     ["abandon", "1", "--sink", "s"]],
)  # fmt: skip
def test_a_job_that_does_not_exist_is_named_and_nothing_is_made_of_it(job: Path, command_line: list[str]) -> None:
    name, *rest = command_line
    result = command(name, str(job), "fligths", *rest)
    assert result.exit_code == 1
    assert "there is no job 'fligths'" in result.output
    assert "['flights']" in result.output
    assert [p.name for p in job.iterdir()] == ["flights"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_its_commands(shell: str) -> None:
    words = {"COMP_WORDS": "spark-ckpt resu", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "spark-ckpt resu"}
    asked = {**words, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_SPARK_CKPT_COMPLETE": f"complete_{shell}"}
    said = CliRunner().invoke(app, [], prog_name="spark-ckpt", env=asked)
    assert "resume" in said.output
