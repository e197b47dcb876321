"""What a start reads is seen while an older driver may still write."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.start import JobPlan, read_facts
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.storage.job_paths import JobPaths
from tests.storage.whole_job import TOPOLOGY, WholeJob


class Overtaken(JobRecords):
    """An older driver completes ``late`` right behind the start's look at the completed ones."""

    late: CompletionRecord

    def completions(self) -> list[CompletionRecord]:
        found = super().completions()
        if self.late.checkpoint not in self.ids("checkpoints"):
            self.store.create(JobPaths.checkpoint(self.late.checkpoint), "checkpoint", self.late.to_json())
        return found


def test_what_an_older_driver_completes_meanwhile_is_open_or_complete_and_never_neither(tmp_path: Path) -> None:
    """Else the start would restore an older one, and the rows of this one come twice."""
    job = WholeJob(tmp_path)
    job.start()
    for checkpoint in (True, False, True):
        job.step(checkpoint)
    late = job.records.completions()[-1]
    job.records.store.delete(JobPaths.checkpoint(late.checkpoint))
    job.records.store.delete(JobPaths.committed(late.checkpoint))
    records = Overtaken(job.run.url, job.config)
    records.late = late
    plan = job.plan("auto", "elsewhere")
    facts = read_facts(records, plan, plan.spark_folder(plan.location), 99, "auto")
    assert late.checkpoint in facts.open_triggers
    assert late.checkpoint not in {c.checkpoint for c in facts.completions}


def test_a_start_that_goes_on_is_told_which_checkpoints_are_open(tmp_path: Path) -> None:
    """Its sources take those up, and give up what else is planned and has no trigger."""
    job = WholeJob(tmp_path)
    job.start()
    assert job.run.inherited == ()
    job.step(True)
    open_one = job._trigger()
    job.start()
    assert job.run.inherited == (open_one,)


def test_another_life_in_a_folder_that_was_removed_takes_no_number_of_the_one_before(tmp_path: Path) -> None:
    """Else a driver of before, if it still runs, would find its own number there and take the job for its own."""
    job = WholeJob(tmp_path)
    job.start()
    first = job.run.generation
    shutil.rmtree(tmp_path / "jobs")
    job.start(location="elsewhere")
    assert job.run.generation > first


class Moving(WholeJob):
    def plan(self, restore: str, location: str) -> JobPlan:
        own = super().plan(restore, location)
        return replace(own, own_location=lambda generation: f"{self.root}/spark-{generation}")


def test_a_start_with_the_location_as_ever_goes_on_where_a_changed_query_went(tmp_path: Path) -> None:
    job = Moving(tmp_path)
    job.start()
    job.step(True)
    job.topology = replace(TOPOLOGY, sources=("rows", "more"))
    job.start()
    changed = job.run.location
    assert changed == f"{tmp_path}/spark-{job.run.generation}"
    job.start()
    assert job.run.location == changed


def test_only_the_triggers_of_what_no_start_can_restore_go(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    for _ in range(2):
        job.step(True)
    kept = job.records.ids("triggers")
    given_up = job._trigger()
    assert {c.checkpoint for c in job.records.completions()} == set(kept)
    assert job.records.given_up_paths(given_up) == [JobPaths.trigger(given_up)]
