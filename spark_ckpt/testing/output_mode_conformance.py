"""What sinks must do that merge by key, take change rows or replace all rows, as tests to inherit: by the names that
:mod:`spark_ckpt.testing.sink_conformance` gives them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_ckpt.errors import CkptError, ConfigError
from spark_ckpt.sinks.base import Part
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.sinks.together import commit_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import (
    CHANGES,
    SCHEMA,
    SinkTarget,
    context,
    crash_in_commit,
    permit,
    stage,
    stage_changes,
    stage_table,
)


class MergeConformance:
    """Contracts of a sink that merges by key. ``merge_target`` merges by ``k``."""

    @pytest.fixture
    def merge_target(self) -> SinkTarget:
        raise NotImplementedError("a conformance test gives the target it is for")

    def test_the_last_row_of_a_key_wins_within_and_across_checkpoints(self, merge_target: SinkTarget) -> None:
        sink = merge_target.validated()
        staged = stage(sink, [(1, "old"), (2, "b"), (1, "newer")], 1, 1)
        staged += stage(sink, [(3, "x"), (1, "newest")], 1, 2) + stage(sink, [(3, None)], 2, 10)
        sink.commit(permit(2), staged)
        assert sorted(merge_target.rows()) == [(1, "newest"), (2, "b"), (3, None)]
        sink.commit(permit(3), stage(sink, [(2, "c"), (4, "d")], 3, 11))
        assert sorted(merge_target.rows()) == [(1, "newest"), (2, "c"), (3, None), (4, "d")]
        assert merge_target.leftovers() == []

    def test_committing_an_older_merge_again_does_not_bring_old_rows_back(self, merge_target: SinkTarget) -> None:
        sink = merge_target.validated()
        first = stage(sink, [(1, "old")], 1, 1)
        sink.commit(permit(1), first)
        sink.commit(permit(2), stage(sink, [(1, "new")], 2, 2))
        merge_target.make().commit(permit(1), first)
        assert merge_target.rows() == [(1, "new")]

    def test_a_crash_between_any_two_steps_of_a_merge_is_recovered(self, merge_target: SinkTarget) -> None:
        merge_target.validated()
        for checkpoint in range(1, 30):
            staged = stage(
                merge_target.make(), [(1, f"v{checkpoint}"), (checkpoint + 1, "new")], checkpoint, checkpoint
            )
            crashed = crash_in_commit(merge_target, permit(checkpoint), staged, checkpoint)
            merge_target.make().commit(permit(checkpoint), staged)
            assert sorted(merge_target.rows()) == [(1, f"v{checkpoint}"), *((i + 2, "new") for i in range(checkpoint))]
            assert merge_target.leftovers() == []
            if not crashed:
                return
        pytest.fail("a merge has more than 30 steps")

    def test_both_zeros_of_floating_numbers_are_one_key(self, merge_target: SinkTarget) -> None:
        """As in Spark, where a key of groupBy is one group for 0.0 and -0.0."""
        floating = pa.schema([pa.field("k", pa.float64()), pa.field("v", pa.string())])
        sink = merge_target.validated(floating)
        for checkpoint, rows in ((1, [(0.0, "a"), (1.5, "b"), (-0.0, "c")]), (2, [(-0.0, "d")]), (3, [(0.0, "e")])):
            keys, values = ([row[i] for row in rows] for i in (0, 1))
            ctx = context(checkpoint, checkpoint, schema=floating)
            sink.commit(permit(checkpoint), stage_table(sink, ctx, pa.table([keys, values], schema=floating)))
        found = merge_target.read(floating)
        assert sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == [(0.0, "e"), (1.5, "b")]

    def test_keys_must_be_columns(self, merge_target: SinkTarget) -> None:
        with pytest.raises(CkptError, match="mergeKeys"):
            merge_target.make().validate(pa.schema([pa.field("other", pa.int64())]))


class ChangeConformance:
    """Contracts of a sink that makes changes by key. ``change_target`` merges by ``k``, and its option
    ``changeColumn`` is ``op``."""

    @pytest.fixture
    def change_target(self) -> SinkTarget:
        raise NotImplementedError("a conformance test gives the target it is for")

    def test_the_last_change_of_a_key_is_what_counts(self, change_target: SinkTarget) -> None:
        sink = change_target.validated(CHANGES)
        rows = [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c"), ("-U", 1, "a"), ("+U", 1, "a2"), ("-D", 2, "b")]
        sink.commit(permit(1), stage_changes(sink, rows))
        assert sorted(change_target.rows()) == [(1, "a2"), (3, "c")]
        staged = stage_changes(sink, [("-D", 1, "a2"), ("-D", 3, "c"), ("+I", 2, "new")], 2, 2)
        staged += stage_changes(sink, [("+I", 3, "again"), ("-U", 2, "new")], 2, 3)
        staged += stage_changes(sink, [("-D", 9, "never there"), ("+U", 4, None)], 3, 4)
        sink.commit(permit(3), staged)
        assert sorted(change_target.rows()) == [(3, "again"), (4, None)]
        assert change_target.leftovers() == []

    def test_a_checkpoint_of_removals_only(self, change_target: SinkTarget) -> None:
        sink = change_target.validated(CHANGES)
        sink.commit(permit(1), stage_changes(sink, [("+I", 1, "a"), ("+I", 2, None)]))
        for checkpoint, rows in ((2, [("-D", 2, None)]), (3, [("-D", 2, None)]), (4, [("-D", 1, "a")])):
            staged = stage_changes(sink, rows, checkpoint, checkpoint)
            for _ in range(2):
                change_target.make().commit(permit(checkpoint), staged)
            assert change_target.rows() == ([(1, "a")] if checkpoint < 4 else [])
            assert change_target.leftovers() == []

    def test_an_older_removal_does_not_take_a_newer_row_away(self, change_target: SinkTarget) -> None:
        sink = change_target.validated(CHANGES)
        gone = stage_changes(sink, [("-D", 1, "a")])
        sink.commit(permit(1), gone)
        sink.commit(permit(2), stage_changes(sink, [("+I", 1, "new")], 2, 2))
        change_target.make().commit(permit(1), gone)
        assert change_target.rows() == [(1, "new")]

    def test_a_crash_between_any_two_steps_of_changes_is_recovered(self, change_target: SinkTarget) -> None:
        change_target.validated(CHANGES)
        for checkpoint in range(1, 30):
            sink = change_target.make()
            rows = [("-D", checkpoint - 1, "old"), ("-U", 0, "v"), ("+U", 0, f"v{checkpoint}"), ("+I", checkpoint, "x")]
            staged = stage_changes(sink, rows, checkpoint, checkpoint)
            crashed = crash_in_commit(change_target, permit(checkpoint), staged, checkpoint)
            change_target.make().commit(permit(checkpoint), staged)
            assert sorted(change_target.rows()) == [(0, f"v{checkpoint}"), (checkpoint, "x")]
            assert change_target.leftovers() == []
            if not crashed:
                return
        pytest.fail("a commit has more than 30 steps")

    def test_a_value_that_is_no_change_fails_where_it_is_written(self, change_target: SinkTarget) -> None:
        sink = change_target.validated(CHANGES)
        for value in ("insert", None, "+i", ""):
            with pytest.raises(CkptError, match=r"'op'.*\+I, -U, \+U, -D"):
                stage_changes(sink, [("+I", 1, "a"), (value, 2, "b")])
        assert change_target.rows() == []

    def test_the_column_of_changes_is_a_string_and_no_key(self, change_target: SinkTarget) -> None:
        for schema in (CHANGES.set(0, pa.field("op", pa.int32())), SCHEMA):
            with pytest.raises(CkptError, match="changeColumn"):
                change_target.make().validate(schema)
        for options in ({"mergeKeys": "k,op"}, {"mergeKeys": "", "mode": "append"}):
            with pytest.raises(ConfigError, match=r"changeColumn.*mergeKeys"):
                create_sink(change_target.sink, {**change_target.options, **options})


class ReplaceConformance:
    """Contracts of a sink with ``CAN_REPLACE``. ``replace_target`` is one of output mode complete."""

    @pytest.fixture
    def replace_target(self, target: SinkTarget) -> SinkTarget:
        target.replacing = True
        return target

    def test_what_a_checkpoint_commits_replaces_all_rows(self, replace_target: SinkTarget) -> None:
        sink = replace_target.validated()
        sink.commit(permit(1), stage(sink, [(1, "a"), (2, "b")], 1, 1))
        sink.commit(permit(2), stage(sink, [(2, "c")], 2, 2) + stage(sink, [(3, "d")], 2, 2, 1))
        assert sorted(replace_target.rows()) == [(2, "c"), (3, "d")]
        assert replace_target.leftovers() == []

    def test_a_checkpoint_without_rows_leaves_none(self, replace_target: SinkTarget) -> None:
        sink = replace_target.validated()
        sink.commit(permit(1), stage(sink, [(1, "a")], 1, 1))
        none = stage(sink, [], 2, 2)
        assert none
        sink.commit(permit(2), none)
        assert replace_target.rows() == []
        assert replace_target.leftovers() == []

    def test_rows_of_a_declined_checkpoint_are_passed_over(self, replace_target: SinkTarget) -> None:
        sink = replace_target.validated()
        declined, taken = stage(sink, [(1, "a"), (2, "b")], 1, 1), stage(sink, [(1, "c")], 2, 2)
        for process in (sink, replace_target.make()):
            part = Part(process, [*declined, *taken])
            assert commit_sinks(permit(2), [part], Retry()) == (None,)
        assert replace_target.rows() == [(1, "c")]
        assert replace_target.leftovers() == []

    def test_committing_an_older_checkpoint_again_does_not_bring_its_rows_back(
        self, replace_target: SinkTarget
    ) -> None:
        sink = replace_target.validated()
        first = stage(sink, [(1, "old")], 1, 1)
        sink.commit(permit(1), first)
        sink.commit(permit(2), stage(sink, [(2, "new")], 2, 2))
        replace_target.make().commit(permit(1), first)
        assert replace_target.rows() == [(2, "new")]

    def test_a_crash_between_any_two_steps_of_replacing_is_recovered(self, replace_target: SinkTarget) -> None:
        replace_target.validated()
        for checkpoint in range(1, 30):
            staged = stage(replace_target.make(), [(checkpoint, "new")], checkpoint, checkpoint)
            crashed = crash_in_commit(replace_target, permit(checkpoint), staged, checkpoint)
            replace_target.make().commit(permit(checkpoint), staged)
            assert replace_target.rows() == [(checkpoint, "new")]
            assert replace_target.leftovers() == []
            if not crashed:
                return
        pytest.fail("replacing has more than 30 steps")
