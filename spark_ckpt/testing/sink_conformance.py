"""What every two-phase sink must do, as tests to inherit.

::

    from spark_ckpt.testing.sink_conformance import SinkConformance, SinkTarget

    class MyTarget(SinkTarget): ...

    class TestMySink(SinkConformance):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(MySink, {"path": str(tmp_path)})

A sink that merges by key inherits :class:`MergeConformance` as well, one that takes change rows
:class:`ChangeConformance`, one that replaces all rows :class:`ReplaceConformance`. After zarr's store suite.
"""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from spark_ckpt.errors import CkptError, ConfigError, InvalidInputError
from spark_ckpt.protocol.life import identity
from spark_ckpt.sinks.base import Part
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.sinks.together import try_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.output_mode_conformance import ChangeConformance, MergeConformance, ReplaceConformance
from spark_ckpt.testing.sink_harness import (
    JOB,
    KILLED,
    SCHEMA,
    SINK,
    SinkTarget,
    commit_elsewhere,
    context,
    crash_in_commit,
    permit,
    stage,
    stage_table,
    table_of,
    typed_rows,
)
from spark_ckpt.types import CheckpointId, Committable, Epoch


class SinkConformance:
    """Contracts of every sink. ``target`` gives a new, empty target each time."""

    @pytest.fixture
    def target(self) -> SinkTarget:
        raise NotImplementedError("a conformance test gives the target it is for")

    def typed_rows(self) -> pa.Table:
        """Values that must come back as they went in. Override to leave out types the sink refuses."""
        return typed_rows()

    def test_staged_rows_are_invisible(self, target: SinkTarget) -> None:
        sink = target.validated()
        assert stage(sink, [(1, "a")])
        assert target.rows() == []
        assert target.leftovers()

    def test_a_commit_makes_all_rows_visible_and_leaves_nothing_staged(self, target: SinkTarget) -> None:
        sink = target.validated()
        sink.commit(permit(1), stage(sink, [(1, "a"), (2, "b")]))
        assert target.rows() == [(1, "a"), (2, "b")]
        assert target.leftovers() == []

    def test_committing_a_checkpoint_again_changes_nothing(self, target: SinkTarget) -> None:
        sink = target.validated()
        first, second = stage(sink, [(1, "a")], epoch=1), stage(sink, [(2, "b")], epoch=2, batch=2)
        sink.commit(permit(1), first)
        sink.commit(permit(1), first)
        sink.commit(permit(2), second)
        for again, staged in ((1, first), (2, second)):
            target.make().commit(permit(again), staged)
        assert target.rows() == [(1, "a"), (2, "b")]
        assert target.leftovers() == []

    def test_abort_leaves_no_trace_however_often(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = stage(sink, [(1, "a")])
        sink.abort(staged)
        target.make().abort(staged)
        assert (target.rows(), target.leftovers()) == ([], [])

    def test_abort_after_commit_touches_nothing(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = stage(sink, [(1, "a")])
        sink.commit(permit(1), staged)
        sink.abort(staged)
        assert target.rows() == [(1, "a")]

    def test_what_was_aborted_cannot_be_committed_any_more(self, target: SinkTarget) -> None:
        sink = target.validated()
        gone, there = stage(sink, [(1, "a")]), stage(sink, [(2, "b")], batch=2)
        sink.abort(gone)
        with pytest.raises(CkptError, match="missing"):
            sink.commit(permit(1), [*there, *gone])
        assert target.rows() == []

    def test_another_process_commits_with_options_and_committables_only(self, target: SinkTarget) -> None:
        staged = stage(target.validated(), [(1, "a"), (2, None)])
        assert commit_elsewhere(target, permit(1), staged) == 0
        assert sorted(target.rows()) == [(1, "a"), (2, None)]
        assert target.leftovers() == []

    def test_a_commit_killed_in_the_middle_is_finished_by_the_next_process(self, target: SinkTarget) -> None:
        sink = target.validated()
        steps: list[str] = []
        sink.on_step = steps.append
        sink.commit(permit(1), stage(sink, [(1, "a")]))
        staged = stage(sink, [(2, "b")], epoch=2) + stage(sink, [(3, "c")], epoch=2, batch=2)
        assert commit_elsewhere(target, permit(2), staged, stop_at=len(steps) // 2) in (0, KILLED)
        target.make().commit(permit(2), staged)
        assert target.rows() == [(1, "a"), (2, "b"), (3, "c")]
        assert target.leftovers() == []

    def test_a_crash_between_any_two_steps_of_a_commit_is_recovered_by_committing_again(
        self, target: SinkTarget
    ) -> None:
        target.validated()
        expected: list[tuple[int, str]] = []
        for checkpoint in range(1, 30):
            new = [(10 * checkpoint + i, f"r{i}") for i in range(3)]
            staged = [
                c for i, row in enumerate(new) for c in stage(target.make(), [row], checkpoint, 3 * checkpoint + i)
            ]
            crashed = crash_in_commit(target, permit(checkpoint), staged, checkpoint)
            target.make().commit(permit(checkpoint), staged)
            expected += new
            assert target.rows() == expected
            assert target.leftovers() == []
            if not crashed:
                return
        pytest.fail("commit has more than 30 steps for three committables")

    def test_tasks_batches_and_epochs_commit_together_in_order(self, target: SinkTarget) -> None:
        sink = target.validated()
        expected, staged = [], []
        for epoch, batch, partition in [(1, 1, 0), (1, 1, 1), (1, 2, 0), (2, 2, 1), (3, 12, 0)]:
            rows = [(epoch * 1000 + batch * 10 + partition, f"{epoch}")] * 2
            staged += stage(sink, rows, epoch, batch, partition)
            expected += rows
        sink.commit(permit(3), staged)
        assert target.rows() == expected
        assert target.leftovers() == []

    def test_tasks_stage_at_the_same_time(self, target: SinkTarget) -> None:
        target.validated()

        def task(partition: int) -> list[Committable]:
            return stage(target.make(), [(1000 * partition + i, "x") for i in range(200)], partition=partition)

        with ThreadPoolExecutor(6) as pool:
            staged = [c for done in pool.map(task, range(6)) for c in done]
        target.make().commit(permit(1), staged)
        assert sorted(k for k, _ in target.rows()) == [1000 * p + i for p in range(6) for i in range(200)]

    def test_two_drivers_committing_the_same_checkpoint_commit_it_once(self, target: SinkTarget) -> None:
        staged = stage(target.validated(), [(i, "x") for i in range(50)])
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: target.make().commit(permit(1), staged), range(4)))
        assert target.rows() == [(i, "x") for i in range(50)]

    def test_gc_removes_what_nobody_will_commit_and_respects_keep(self, target: SinkTarget) -> None:
        sink = target.validated()
        sink.commit(permit(1), stage(sink, [(1, "a")]))
        kept, _lost = stage(sink, [(2, "kept")], 2, 2), stage(sink, [(3, "lost")], 2, 2, 1)
        unfinished = sink.writer(context(2, 3))
        unfinished.write(table_of([(4, "never prepared")]).to_batches()[0])
        unfinished.close()
        foreign = Committable("another sink", Epoch(2), b"\x00 not ours")
        assert target.make().gc(JOB, [*kept, foreign])
        assert target.make().gc(JOB, [*kept, foreign]) == []
        sink.commit(permit(2), kept)
        assert target.rows() == [(1, "a"), (2, "kept")]
        assert target.leftovers() == []

    def test_gc_leaves_another_jobs_rows_alone(self, target: SinkTarget) -> None:
        sink = target.validated()
        other = stage_table(sink, context(1, 1, job="another job"), table_of([(1, "theirs")]))
        assert sink.gc(JOB, []) == []
        sink.commit(permit(1, "another job"), other)
        assert target.rows() == [(1, "theirs")]

    def test_jobs_and_sinks_with_the_same_checkpoint_number_do_not_meet(self, target: SinkTarget) -> None:
        sink = target.validated()
        for i, (job, name) in enumerate([("one", "s"), ("two", "s"), ("one", "t")]):
            sink.commit(permit(1, job), stage_table(sink, context(1, 1, job=job, sink=name), table_of([(i, job)])))
        assert sorted(target.rows()) == [(0, "one"), (1, "two"), (2, "one")]

    def test_a_second_life_of_the_job_commits_its_own_checkpoint_1(self, target: SinkTarget) -> None:
        for life, checkpoints in (("aaaa", (1, 2, 3)), ("bbbb", (1, 2))):
            job = identity(JOB, life)
            for k in checkpoints:
                sink = target.validated()
                staged = stage_table(sink, context(k, k, job=job), table_of([(len(target.rows()), life)]))
                for _ in range(2):
                    sink.commit(permit(k, job), staged)
        assert sorted(target.rows()) == [(0, "aaaa"), (1, "aaaa"), (2, "aaaa"), (3, "bbbb"), (4, "bbbb")]
        assert target.leftovers() == []

    def test_gc_of_one_life_leaves_the_other_alone(self, target: SinkTarget) -> None:
        """Two jobs of one name in two folders are two lives that may run at the same time."""
        sink = target.validated()
        one, two = identity(JOB, "aaaa"), identity(JOB, "bbbb")
        theirs = stage_table(sink, context(1, 1, job=one), table_of([(1, "theirs")]))
        assert sink.gc(two, []) == sink.gc(JOB, []) == []
        sink.commit(permit(1, one), theirs)
        assert target.rows() == [(1, "theirs")]

    def test_an_id_that_comes_again_with_other_rows_is_refused_instead_of_dropping_them(
        self, target: SinkTarget
    ) -> None:
        sink = target.validated()
        sink.commit(permit(1), stage(sink, [(1, "the job")]))
        with pytest.raises(CkptError, match="other contents"):
            sink.commit(permit(1), stage(sink, [(2, "a copy of its folder")]))
        assert target.rows() == [(1, "the job")]

    def test_a_commit_forgets_old_ones_and_no_checkpoint_lands_twice_or_not_at_all(self, target: SinkTarget) -> None:
        """Two are retained; each commit crashes at every step once and is done again, as a start would."""
        target.validated()
        staged: dict[int, list[Committable]] = {}
        for k in range(1, 7):
            staged[k] = stage(target.make(), [(k, f"v{k}")], k, k)
            allowed = permit(k, oldest=max(1, k - 1))
            crash_in_commit(target, allowed, staged[k], k)
            target.make().commit(allowed, staged[k])
            for again in staged:
                # The retained ones are known. The others nobody asks for but a driver that was halted for long.
                with suppress(*() if again >= k - 1 else (CkptError,)):
                    target.make().commit(permit(again, oldest=max(1, again - 1)), staged[again])
            assert target.rows() == [(i, f"v{i}") for i in staged]
            assert target.leftovers() == []
            assert (target.remembered() or 0) <= 2

    def test_what_a_stopped_jobs_sink_forgets_is_its_own_and_old(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = {k: stage(sink, [(k, "mine")], k, k) for k in (1, 2, 3)}
        theirs = stage_table(sink, context(1, 1, job="another job"), table_of([(4, "theirs")]))
        for k in staged:
            sink.commit(permit(k), staged[k])
        sink.commit(permit(1, "another job"), theirs)
        target.make().forget(JOB, CheckpointId(3))
        assert target.make().forget(JOB, CheckpointId(3)) == []
        assert target.remembered() in (None, 2)
        target.make().commit(permit(3), staged[3])
        target.make().commit(permit(1, "another job"), theirs)
        assert sorted(target.rows()) == [(1, "mine"), (2, "mine"), (3, "mine"), (4, "theirs")]

    def test_the_newest_checkpoint_is_told_and_never_forgotten(self, target: SinkTarget) -> None:
        sink = target.validated()
        if sink.newest_checkpoint(JOB, SINK) is None:
            pytest.skip("the target cannot say which checkpoint it shows")
        assert sink.newest_checkpoint(JOB, SINK) == 0
        staged = {k: stage(sink, [(k, "mine")], k, k) for k in (2, 5, 7)}
        assert target.make().newest_checkpoint(JOB, SINK) == 0, "nothing of what is staged is shown"
        for k in (2, 5):
            target.make().commit(permit(k, oldest=k), staged[k])
            assert target.make().newest_checkpoint(JOB, SINK) == k
        target.make().forget(JOB, CheckpointId(9))
        assert target.make().newest_checkpoint(JOB, SINK) == 5, "it may get no rows for long"
        for job, name in ((JOB, "another sink"), ("another job", SINK), (identity(JOB, "aaaa"), SINK)):
            assert target.make().newest_checkpoint(job, name) == 0
        theirs = stage_table(sink, context(9, 9, job=JOB, sink="another sink"), table_of([(9, "theirs")]))
        target.make().commit(permit(9), theirs)
        assert target.make().newest_checkpoint(JOB, SINK) == 5
        target.make().commit(permit(7), staged[7])
        assert target.make().newest_checkpoint(JOB, SINK) == 7

    def test_a_target_goes_back_to_a_checkpoint_or_says_why_it_cannot(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = {k: stage(sink, [(k, "mine")], k, k) for k in (2, 5, 7)}
        for k in staged:
            sink.commit(permit(k), staged[k])
        five = CheckpointId(5)
        try:
            told = target.make().to_undo(JOB, SINK, five)
        except InvalidInputError:
            with pytest.raises(InvalidInputError):
                target.make().roll_back(JOB, SINK, five)
            assert sorted(target.rows()) == [(2, "mine"), (5, "mine"), (7, "mine")]
            return
        assert told
        assert target.make().to_undo(JOB, SINK, CheckpointId(7)) == ""
        assert sorted(target.rows()) == [(2, "mine"), (5, "mine"), (7, "mine")], "asking changes nothing"
        for _ in range(2):
            target.make().roll_back(JOB, SINK, CheckpointId(6))
            assert target.make().to_undo(JOB, SINK, five) == ""
            assert sorted(target.rows()) == [(2, "mine"), (5, "mine")]
            assert target.make().newest_checkpoint(JOB, SINK) == 5
        with suppress(CkptError):
            target.make().commit(permit(7), staged[7])
        assert sorted(target.rows()) == [(2, "mine"), (5, "mine")], "what was undone stays so"
        sink.commit(permit(9), stage(sink, [(9, "mine")], 9, 9))
        assert sorted(target.rows()) == [(2, "mine"), (5, "mine"), (9, "mine")]
        target.make().roll_back(JOB, SINK, CheckpointId(2))
        assert target.rows() == [(2, "mine")]

    def test_the_rows_of_an_earlier_checkpoint_are_there_or_it_says_why_not(self, target: SinkTarget) -> None:
        sink = target.validated()
        for k in (2, 5, 7):
            sink.commit(permit(k), stage(sink, [(k, "mine")], k, k))
        try:
            found = {k: target.make().as_of(JOB, SINK, CheckpointId(k)) for k in (2, 4, 6, 7)}
        except InvalidInputError:
            pytest.skip("the target does not keep them, and says so")
        shown = {k: sorted(f.read().read_all()["k"].to_pylist()) for k, f in found.items()}
        assert shown == {2: [2], 4: [2], 6: [2, 5], 7: [2, 5, 7]}
        assert all(f.at for f in found.values())

    def test_a_writer_without_rows_stages_nothing(self, target: SinkTarget) -> None:
        sink = target.validated()
        assert stage_table(sink, context(1, 1)) == []
        assert stage_table(sink, context(1, 1), SCHEMA.empty_table(), SCHEMA.empty_table()) == []
        assert target.leftovers() == []

    def test_types_and_nulls_survive(self, target: SinkTarget) -> None:
        rows = self.typed_rows()
        sink = target.validated(rows.schema)
        staged = stage_table(sink, context(1, 1, schema=rows.schema), rows.slice(0, 1), rows.slice(1))
        sink.commit(permit(1), staged)
        found = target.read(rows.schema)
        position = found["id"].to_pylist()
        assert sorted(position) == rows["id"].to_pylist()
        assert found.take([position.index(i) for i in rows["id"].to_pylist()]).to_pylist() == rows.to_pylist()

    def test_more_rows_than_one_chunk_survive(self, target: SinkTarget) -> None:
        sink = target.validated()
        count = 150_000
        rows = pa.table([pa.array(range(count), pa.int64()), ["x"] * count], schema=SCHEMA)
        sink.commit(permit(1), stage_table(sink, context(1, 1), rows))
        assert target.read(SCHEMA)["k"].combine_chunks().sort() == rows["k"].combine_chunks()
        assert target.leftovers() == []

    def test_validating_again_keeps_what_is_staged_and_committed(self, target: SinkTarget) -> None:
        sink = target.validated()
        sink.commit(permit(1), stage(sink, [(1, "a")]))
        staged = stage(sink, [(2, "b")], 2, 2)
        target.validated().commit(permit(2), staged)
        assert target.rows() == [(1, "a"), (2, "b")]

    def test_asking_whether_rows_are_taken_shows_none_and_leaves_what_is_staged(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = stage(sink, [(1, "a")])
        before = target.leftovers()
        assert try_sinks({SINK: Part(sink, staged)}, Retry(1)).refused == ()
        assert (target.rows(), target.leftovers()) == ([], before)
        sink.commit(permit(1), staged)
        assert try_sinks({SINK: Part(sink, stage(sink, [(2, "b")], 2, 2))}, Retry(1)).refused == ()
        assert target.rows() == [(1, "a")]

    def test_secrets_show_nowhere(self, target: SinkTarget) -> None:
        sink = target.validated()
        staged = stage(sink, [(1, "a")])
        shown = [repr(sink), str(sink), *(repr(c) for c in staged)]
        sink.abort(staged)
        try:
            sink.commit(permit(1), staged)
        except CkptError as error:
            shown.append("".join(traceback.format_exception(error)))
        assert [s for s in target.secrets if any(s in text for text in shown)] == []

    def test_unknown_options_are_refused_with_the_valid_ones(self, target: SinkTarget) -> None:
        valid = create_sink(target.sink, target.options).OPTIONS
        with pytest.raises(ConfigError, match="no_such_option") as refused:
            create_sink(target.sink, {**target.options, "no_such_option": "1"})
        assert [name for name in valid if name not in str(refused.value)] == []

    def test_options_ignore_case_and_columns_projects(self, target: SinkTarget) -> None:
        wide = SCHEMA.insert(0, pa.field("unwanted", pa.list_(pa.int64())))
        sink = create_sink(target.sink, {**{k.upper(): v for k, v in target.options.items()}, "COLUMNS": "k, v"})
        sink.validate(wide)
        rows = table_of([(1, "a")]).add_column(0, wide.field(0), [[[1]]])
        sink.commit(permit(1), stage_table(sink, context(1, 1, schema=wide), rows))
        assert target.rows() == [(1, "a")]


__all__ = ["ChangeConformance", "MergeConformance", "ReplaceConformance", "SinkConformance", "SinkTarget", "typed_rows"]
