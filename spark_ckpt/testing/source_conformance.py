"""What every source must do, so that each of its rows counts exactly once, as tests to inherit.

::

    from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget

    class MyTarget(SourceTarget):
        def expected(self): ...

    class TestMySource(SourceConformance):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(MySource, {"path": str(tmp_path)}, str(tmp_path / "metadata"))
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from spark_ckpt.sources.base import Offset
from spark_ckpt.testing.source_harness import Rows, SourceTarget, batches

__all__ = ["SourceConformance", "SourceTarget"]


class SourceConformance:
    """Contracts of every source. ``target`` gives a new target, with rows in it, each time."""

    @pytest.fixture
    def target(self) -> SourceTarget:
        raise NotImplementedError("a conformance test gives the target it is for")

    # -- offsets -----------------------------------------------------------------------------------------------

    def test_the_initial_offset_is_the_same_for_every_reader(self, target: SourceTarget) -> None:
        """It is asked again when the first batch is replayed, whatever has arrived since."""
        reader = target.make()
        first = reader.initial()
        assert reader.initial() == first
        assert batches(reader, first)
        target.add()
        assert target.make().initial() == first

    def test_offsets_survive_json(self, target: SourceTarget) -> None:
        reader = target.make()
        ranges = batches(reader, reader.initial())
        for start, end in ranges:
            assert json.loads(json.dumps([start, end])) == [start, end]
            assert start != end
        places = [json.dumps(start) for start, _ in ranges]
        assert len(set(places)) == len(places), "two batches begin at the same offset"

    def test_offsets_stay_small(self, target: SourceTarget) -> None:
        """Each is kept by Spark with its batch and by every checkpoint: it says how far, and not what was read."""
        reader = target.make()
        for _ in range(3):
            target.add()
        for start, end in batches(reader, reader.initial()):
            assert max(len(json.dumps(offset)) for offset in (start, end)) <= target.offset_bytes

    def test_where_nothing_is_new_the_offset_stays(self, target: SourceTarget) -> None:
        reader = target.make()
        end = batches(reader, reader.initial())[-1][1]
        assert reader.latest(end, False) == end
        assert reader.latest(end, True) == end
        assert reader.splits(end, end) == []

    # -- rows --------------------------------------------------------------------------------------------------

    def test_all_batches_together_hold_every_row_once(self, target: SourceTarget) -> None:
        reader = target.make()
        found = [row for start, end in batches(reader, reader.initial()) for row in target.rows(reader, start, end)]
        same_rows(found, target.expected())

    def test_one_range_holds_what_its_parts_hold(self, target: SourceTarget) -> None:
        """A batch may be replayed as it was, or its rows may be part of a longer range after a restore."""
        reader = target.make()
        ranges = batches(reader, reader.initial())
        same_rows(target.rows(reader, ranges[0][0], ranges[-1][1]), target.expected())
        for start, end in (ranges[0], ranges[-1]):
            splits = reader.splits(start, end)
            assert len({id(s) for s in splits}) == len(splits)

    def test_a_range_read_again_gives_identical_rows(self, target: SourceTarget) -> None:
        reader = target.make()
        for start, end in batches(reader, reader.initial()):
            assert target.rows(reader, start, end) == target.rows(reader, start, end)

    def test_a_replay_after_more_has_arrived_gives_identical_rows(self, target: SourceTarget) -> None:
        reader = target.make()
        ranges = batches(reader, reader.initial())
        before = [target.rows(reader, *r) for r in ranges]
        target.add()
        batches(reader, ranges[-1][1])
        assert [target.rows(reader, *r) for r in ranges] == before
        assert [target.rows(target.make(), *r) for r in ranges] == before

    # -- restart -----------------------------------------------------------------------------------------------

    def test_a_restarted_reader_replays_a_recorded_range(self, target: SourceTarget) -> None:
        """Spark asks it for the partitions of a batch before anything else."""
        reader = target.make()
        ranges = batches(reader, reader.initial())
        for start, end in ranges:
            assert target.rows(target.make(), start, end) == target.rows(reader, start, end)

    def test_a_reader_goes_on_from_any_recorded_offset(self, target: SourceTarget) -> None:
        """A restore: what came before the offset is done, everything behind it comes, nothing twice."""
        reader = target.make()
        ranges = batches(reader, reader.initial())
        for _, middle in ranges:
            restored = target.make()
            rest = _all(target, restored, batches(restored, middle))
            same_rows([*target.rows(reader, ranges[0][0], middle), *rest], target.expected())

    def test_an_earlier_offset_can_be_gone_back_to(self, target: SourceTarget) -> None:
        reader = target.make()
        ranges = batches(reader, reader.initial())
        again = batches(reader, ranges[0][1])
        same_rows(_all(target, reader, again), _all(target, reader, ranges[1:]))

    def test_rows_that_come_later_are_found_behind_the_end(self, target: SourceTarget) -> None:
        reader = target.make()
        end = batches(reader, reader.initial())[-1][1]
        before = target.expected()
        if not target.add():
            pytest.skip("this source does not grow")
        new = list((Counter(target.expected()) - Counter(before)).elements())
        assert new
        for one in (reader, target.make()):
            same_rows(_all(target, one, batches(one, end)), new)

    def test_rows_that_come_between_batches_are_neither_lost_nor_doubled(self, target: SourceTarget) -> None:
        reader, found = target.make(), []
        start, left = reader.initial(), 3
        while (end := reader.latest(start, False)) != start:
            left -= 1
            if left >= 0:
                target.add()
            found += target.rows(reader, start, end)
            start = end
        same_rows(found, target.expected())

    # -- admission ---------------------------------------------------------------------------------------------

    def test_a_batch_holds_no_more_than_the_limit(self, target: SourceTarget) -> None:
        reader = target.make()
        sizes = [len(target.rows(reader, *r)) for r in batches(reader, reader.initial())]
        if target.rows_a_batch is not None:
            assert max(sizes) <= target.rows_a_batch
            assert len(sizes) > 1
        assert min(sizes) > 0, "a batch without rows never ends"

    def test_without_a_limit_everything_there_is_one_batch(self, target: SourceTarget) -> None:
        reader = target.make()
        start = reader.initial()
        same_rows(target.rows(reader, start, reader.latest(start, True)), target.expected())

    def test_available_now_ends_where_it_was_asked_for(self, target: SourceTarget) -> None:
        reader, before = target.make(), target.expected()
        reader.prepare_available_now()
        start = reader.initial()
        first = reader.latest(start, False)
        target.add()
        ranges = [(start, first), *batches(reader, first)]
        same_rows(_all(target, reader, ranges), before)
        if target.rows_a_batch is not None:
            assert max(len(target.rows(reader, *r)) for r in ranges) <= target.rows_a_batch

    # -- what is told ------------------------------------------------------------------------------------------

    def test_what_is_behind_shrinks_to_nothing(self, target: SourceTarget) -> None:
        """Of a source that tells how far it is behind, and None all the way of one that does not."""
        reader = target.make()
        told = [reader.behind(end) for _, end in batches(reader, reader.initial())]
        known = [left for left in told if left is not None]
        assert len(known) in (0, len(told))
        assert known == sorted(known, reverse=True)
        if known:
            assert known[-1] == 0
            assert len(known) == 1 or known[0] > 0, "nothing is behind, and rows come"

    # -- end and commit ----------------------------------------------------------------------------------------

    def test_finished_is_said_only_where_nothing_more_comes(self, target: SourceTarget) -> None:
        reader = target.make()
        ranges = batches(reader, reader.initial())
        assert not any(reader.finished(start) for start, _ in ranges), "finished, and rows come behind it"
        end = ranges[-1][1]
        if reader.finished(end):
            assert not target.add(), "finished, and the source grows"
            assert target.make().finished(end)

    def test_committing_an_offset_again_or_an_older_one_changes_nothing(self, target: SourceTarget) -> None:
        reader = target.make()
        (_, middle), *later = batches(reader, reader.initial())
        before = _all(target, reader, later)
        reader.commit(middle)
        reader.commit(middle)
        for one in (reader, target.make()):
            one.commit(middle)
            assert _all(target, one, later) == before
            assert _all(target, one, batches(one, middle)) == before

    def test_a_stopped_reader_may_be_stopped_again(self, target: SourceTarget) -> None:
        reader = target.make()
        batches(reader, reader.initial())
        reader.stop()
        reader.stop()


def same_rows(found: Rows, expected: Rows) -> None:
    """The same rows as often, in any order."""
    a, b = Counter(map(repr, expected)), Counter(map(repr, found))
    assert a == b, f"missing {list((a - b).elements())[:5]}, too many {list((b - a).elements())[:5]}"


def _all(target: SourceTarget, reader: object, ranges: list[tuple[Offset, Offset]]) -> Rows:
    return [row for r in ranges for row in target.rows(reader, *r)]  # type: ignore[arg-type]
