"""A target, or a job's folder, that is set back to an older copy while the job is stopped: no start goes on with a gap
or writes rows twice without a word, and each way out that the message names works."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, InvalidInputError, RetryableError
from spark_ckpt.jobs.compared_sinks import compare_sinks
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import record_sinks
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.jobs.start import JobPlan, begin, checked_sinks
from spark_ckpt.protocol.records import Topology
from spark_ckpt.storage.job_paths import JobPaths
from tests.sinks.sinks_job import SCHEMA, Job, Rows

COPIED, LAST = 2, 4
ROWS: Rows = [(k, f"of {k}") for k in range(1, LAST + 1)]
TARGETS = {"delta": ("delta",), "merged": ("merged",), "out.db": ("sql", "upserted"), "files": ("files",)}
"""What lies at each place: the sinks that write there."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def start(job: Job, **options: str) -> RunSpec:
    return job.start(retain="10", **options)


def run(job: Job, checkpoints: range | tuple[int, ...], **options: str) -> RunSpec:
    """One start, and a checkpoint of one row for each of these."""
    started = start(job, **options)
    for batch, k in enumerate(checkpoints):
        job.commit(started, [ROWS[k - 1]] if k <= LAST else [(k, f"of {k}")], batch)
    return started


def with_copies(job: Job, *names: str) -> Callable[[], None]:
    """The job at ``LAST``, and what puts copies of the time of ``COPIED`` in place of ``names``."""
    run(job, range(1, COPIED + 1))
    for name in names:
        copy(job.folder / name, job.folder / f"{name}.copy")
    run(job, range(COPIED + 1, LAST + 1))

    def set_back() -> None:
        for name in names:
            copy(job.folder / f"{name}.copy", job.folder / name)

    return set_back


def copy(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def refused(job: Job, **options: str) -> str:
    with pytest.raises(InvalidInputError) as error:
        start(job, **options)
    return str(error.value)


def restored_as_told(message: str) -> str:
    named = re.search(r"spark\.ckpt\.restore=(\w+) at an empty checkpointLocation", message)
    assert named, message
    return named[1]


def accepted_as_told(job: Job, message: str) -> None:
    calls = re.findall(r"`spark-ckpt accept DIR orders (\d+) --sink (\w+)`", message)
    assert calls, message
    for checkpoint, sink in calls:
        done = CliRunner().invoke(app, ["accept", job.jobs, "orders", checkpoint, "--sink", sink])
        assert done.exit_code == 0, done.output


# --- a target ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_is_set_back_is_refused_and_the_checkpoint_it_stands_at_gives_all_rows_once(
    job: Job, name: str
) -> None:
    with_copies(job, name)()
    before = job.rows()
    message = refused(job)
    for sink in TARGETS[name]:
        assert f"sink {sink!r} (" in message
        assert f"shows checkpoint {COPIED} as its newest: expected checkpoint {LAST}" in message
    assert job.rows() == before
    run(job, range(COPIED + 1, LAST + 2), restore=restored_as_told(message))
    assert restored_as_told(message) == str(COPIED)
    found = job.rows()
    for sink in TARGETS[name]:
        assert found[sink] == [*ROWS, (LAST + 1, f"of {LAST + 1}")]


def test_sinks_that_were_not_set_back_are_named_as_they_get_rows_again(job: Job) -> None:
    with_copies(job, "delta")()
    assert "sinks that were not set back (merged, sql, upserted, files) get rows since then again" in refused(job)


@pytest.mark.parametrize("restored", [COPIED, COPIED + 1])
def test_restore_of_a_delta_table_sets_it_back_though_its_transactions_stay(job: Job, restored: int) -> None:
    run(job, range(1, LAST + 1))
    table = DeltaTable(f"{job.folder}/delta")
    table.restore(restored)  # version K is that of checkpoint K
    message = refused(job)
    assert f"shows checkpoint {restored} as its newest: expected checkpoint {LAST}" in message
    run(job, range(restored + 1, LAST + 1), restore=restored_as_told(message))
    assert job.rows()["delta"] == ROWS


def test_a_target_that_was_emptied_is_refused_and_a_start_from_nothing_fills_it(job: Job) -> None:
    run(
        job,
        range(1, LAST + 1),
    )
    for name in TARGETS:
        path = job.folder / name
        path.unlink() if path.is_file() else shutil.rmtree(path)
    message = refused(job)
    assert message.count("shows no checkpoint of this job") == len(job.sinks)
    assert restored_as_told(message) == "none"
    run(job, range(1, LAST + 1), restore="none")
    assert all(rows == ROWS for rows in job.rows().values())


def test_a_gap_that_is_accepted_stays_and_holds_for_this_set_back_only(job: Job) -> None:
    set_back = with_copies(job, "delta")
    set_back()
    accepted_as_told(job, refused(job))
    start(job)  # stopped before its first checkpoint: still accepted
    run(job, (LAST + 1,))
    assert job.rows()["delta"] == [*ROWS[:COPIED], (LAST + 1, f"of {LAST + 1}")]
    set_back()
    assert f"shows checkpoint {COPIED} as its newest: expected checkpoint {LAST + 1}" in refused(job)


def test_only_a_checkpoint_that_had_rows_for_a_sink_is_expected_in_it(job: Job) -> None:
    """Its record may be dropped long ago."""
    started = job.start(retain="1")
    for batch, into in enumerate(((), None, ("sql",), ("sql",), ())):
        job.commit(started, [(batch, "x")], batch, into)
    started = job.start(retain="1")
    assert [c.checkpoint for c in job.handle.completed()] == [5]
    job.commit(started, [(5, "y")], 0, ("sql",))
    assert job.handle.gc() is not None
    job.start(retain="1")
    shutil.rmtree(job.folder / "files")
    message = refused(job)
    assert "sink 'files'" in message
    assert "expected checkpoint 2, which the job committed there" in message
    assert re.search(r"of the checkpoints that are retained \[[56, ]+\], none is one where 'files' stood", message)


def test_a_sink_that_comes_to_the_query_later_has_nothing_to_show(job: Job) -> None:
    all_sinks, job.sinks = job.sinks, job.sinks[:2]
    run(job, (1, 2))
    job.sinks = all_sinks
    run(job, (3,))
    assert job.rows()["files"] == ROWS[2:3]
    job.sinks = job.sinks[:1]
    run(job, (4,))
    job.sinks = all_sinks
    run(job, (5,))


def test_another_target_on_purpose_begins_empty(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    run(job, (1, 2))
    job.sinks = tuple(
        checked_sinks([("delta", {"path": f"{job.folder}/elsewhere"})])[0] if s.id == "delta" else s for s in job.sinks
    )
    for _ in range(2):  # stopped before its first checkpoint, and again
        start(job)
        assert "sink 'delta' wrote to DeltaSink(" in caplog.text
    run(job, (3,))
    shutil.rmtree(job.folder / "elsewhere")
    assert "shows no checkpoint of this job: expected checkpoint 3" in refused(job)


def test_going_back_on_purpose_finds_sinks_that_show_more_and_that_is_well(job: Job) -> None:
    run(job, range(1, LAST + 1))
    run(job, (LAST + 1,), restore=str(COPIED))
    run(job, (LAST + 2,))
    assert job.rows()["delta"] == sorted([*ROWS, (5, "of 5"), (6, "of 6")])


def test_what_was_given_up_by_hand_is_not_expected(job: Job) -> None:
    records = JobRecords(run(job, (1, 2, 3)).url, start(job).config)
    # As if it had stopped behind the completion, and the dump that was restored had no staged rows.
    records.store.delete(JobPaths.committed(3))
    job.query("delete from spark_ckpt_ledger where checkpoint = 3 and sink = 'sql'")
    with pytest.raises(CkptError, match=r"(?s)could not commit it.*spark-ckpt abandon"):
        start(job)
    job.handle.abandon(3, sink="sql")
    start(job)
    start(job)
    run(job, (4,))
    start(job)


# --- the job's folder --------------------------------------------------------------------------------------------


def test_a_folder_that_is_set_back_is_refused_and_the_newer_one_goes_on(job: Job) -> None:
    run(job, range(1, COPIED + 1))
    copy(Path(job.jobs), job.folder / "older")
    run(job, range(COPIED + 1, LAST + 1))
    copy(Path(job.jobs), job.folder / "newer")
    copy(job.folder / "older", Path(job.jobs))
    for options in ({}, {"restore": "1"}, {"restore": "none"}):
        message = refused(job, **options)
        assert f"shows checkpoint {LAST}, and the job's folder knows checkpoint {COPIED} as its newest" in message
    copy(job.folder / "newer", Path(job.jobs))
    run(job, (LAST + 1,))
    assert all(rows == [*ROWS, (5, "of 5")] for rows in job.rows().values())


def test_an_older_folder_that_is_accepted_counts_on_behind_what_sinks_show(job: Job) -> None:
    """Else Delta would take its checkpoints for done, and drop their rows."""
    run(job, range(1, COPIED + 1))
    copy(Path(job.jobs), job.folder / "older")
    run(job, range(COPIED + 1, LAST + 1))
    copy(job.folder / "older", Path(job.jobs))
    accepted_as_told(job, refused(job))
    started = start(job)
    assert [job.commit(started, [row], i) for i, row in enumerate(ROWS[COPIED:])] == [LAST + 1, LAST + 2]
    twice = sorted([*ROWS, *ROWS[COPIED:]])
    job.check(twice, ROWS)
    start(job)


# --- the plain plugin, whose reader starts the job and does not know its sinks ------------------------------------


class Plain(Job):
    """Its writer compares, in each of its processes, before it commits anything."""

    def start(self, **options: str) -> RunSpec:
        self.starts += 1
        config = JobConfig.from_options({"dir": self.jobs, "job": "orders", "maxParallelism": "1", **options})
        topology = Topology(1, 1, ("source0",), {}, ())
        location = f"{self.folder}/spark-{self.starts}"
        started = begin(JobPlan("orders", config, location, topology, (), pa.schema([]), sinks_known=False))
        for spec in self.sinks:
            spec.make().validate(SCHEMA)
        compare_sinks(started, self.sinks)
        record_sinks(JobRecords(started.url, config), self.sinks)
        return started


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    return Plain(tmp_path)


def test_the_plain_plugin_refuses_a_target_that_is_set_back_and_restores_or_goes_on_as_told(plain: Plain) -> None:
    set_back = with_copies(plain, "delta")
    set_back()
    before = plain.rows()
    message = refused(plain)
    assert f"shows checkpoint {COPIED} as its newest: expected checkpoint {LAST}" in message
    assert plain.rows() == before
    run(plain, range(COPIED + 1, LAST + 1), restore=restored_as_told(message))
    assert plain.rows()["delta"] == ROWS
    set_back()
    accepted_as_told(plain, refused(plain))
    run(plain, (LAST + 1,))
    assert plain.rows()["delta"] == [*ROWS[:COPIED], (LAST + 1, f"of {LAST + 1}")]


def test_the_plain_plugin_counts_on_behind_an_accepted_folder_with_the_next_start(plain: Plain) -> None:
    """Its reader has begun to count before the writer can look."""
    run(plain, range(1, COPIED + 1))
    copy(Path(plain.jobs), plain.folder / "older")
    run(plain, range(COPIED + 1, LAST + 1))
    copy(plain.folder / "older", Path(plain.jobs))
    accepted_as_told(plain, refused(plain))
    with pytest.raises(RetryableError, match=f"ids up to {LAST} count as taken"):
        start(plain)
    started = start(plain)
    assert [plain.commit(started, [row], i) for i, row in enumerate(ROWS[COPIED:])] == [LAST + 1, LAST + 2]
    plain.check(sorted([*ROWS, *ROWS[COPIED:]]), ROWS)


def test_what_nobody_can_mean_is_not_accepted(job: Job) -> None:
    run(job, (1,))
    for checkpoint, sink in ((1, "detla"), (-1, "delta")):
        with pytest.raises(InvalidInputError, match="expected one of its sinks"):
            job.handle.accept(checkpoint, sink=sink)
