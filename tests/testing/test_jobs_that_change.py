"""A job's next version on the checkpoints of the one before, without Spark.

tests/spark/test_changed_queries.py has what needs Spark's own location.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from spark_ckpt import agg
from spark_ckpt.errors import TopologyError
from spark_ckpt.testing.jobs import Frame, JobUnderTest, Rows, Run

ROWS = Rows("k string, v long")


def totals(rows: Frame, uid: str = "totals") -> Frame:
    return rows.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid(uid)


def job(query: Callable[..., Frame], *sources: str, **options: str) -> JobUnderTest:
    return JobUnderTest(query, dict.fromkeys(sources, ROWS), options=options)


def newest(run: Run, *keys: str) -> list[tuple[Any, ...]]:
    """The last row of each key."""
    return sorted({tuple(row[k] for k in keys): tuple(row.values()) for row in run.rows}.values())


def changed(run: Run, to: JobUnderTest) -> None:
    run.change(to)
    run.start()


def test_sources_may_change_places_and_each_is_read_on_from_where_it_stood() -> None:
    one = job(lambda left, right: totals(left.union(right)), "left", "right")
    other = job(lambda right, left: totals(right.union(left)), "right", "left")
    with one.started() as run:
        run.feed("left", ("a", 1), ("a", 10))
        run.feed("right", ("b", 1))
        run.checkpoint()
        for version in (other, one):
            changed(run, version)
            run.feed("left", ("a", 100))
            run.feed("right", ("b", 10))
            run.checkpoint()
        assert newest(run, "k") == [("a", 4, 211), ("b", 3, 21)]


def test_operators_may_change_places_and_each_goes_on_with_its_state() -> None:
    def of(rows: Frame, name: str) -> Frame:
        def named(frames: Any) -> Any:
            yield from (frame.assign(of=name) for frame in frames)

        return totals(rows, name).mapInPandas(named, "k string, n long, total long, of string")

    one = job(lambda left, right: of(left, "first").union(of(right, "second")), "left", "right")
    turned = job(lambda left, right: of(right, "second").union(of(left, "first")), "left", "right")
    with one.started() as run:
        run.feed("left", ("x", 1), ("y", 2))
        run.feed("right", ("x", 10))
        run.checkpoint()
        changed(run, turned)
        run.feed("left", ("x", 100))
        run.feed("right", ("x", 1000), ("z", 1))
        run.checkpoint()
        expected = [("x", 2, 101, "first"), ("x", 2, 1010, "second"), ("y", 1, 2, "first"), ("z", 1, 1, "second")]
        assert newest(run, "k", "of") == expected


def once(rows: Frame) -> Frame:
    """Of each key and value, the first."""

    def first(key: Any, frames: Any, state: Any) -> Any:
        if not state.exists:
            yield pd.DataFrame({"k": [key[0]], "v": [key[1]]})
        state.update((True,))

    made = rows.groupBy("k", "v").applyInPandasWithState(
        first, "k string, v long", "seen boolean", "update", "NoTimeout"
    )
    return made.uid("once")


def test_sources_and_operators_may_come_and_go_and_what_is_lost_is_asked_about() -> None:
    with job(lambda left: totals(left), "left").started() as run:
        run.feed("left", ("a", 1), ("a", 1))
        run.checkpoint()
        changed(run, job(lambda left, right: totals(right.union(left)), "left", "right"))
        run.feed("right", ("b", 5))
        run.checkpoint()
        assert newest(run, "k") == [("a", 2, 2), ("b", 1, 5)]
        changed(run, job(lambda left, right: totals(once(right.union(left))), "left", "right"))
        run.feed("left", ("a", 10), ("a", 10))
        run.checkpoint()
        assert newest(run, "k") == [("a", 3, 12), ("b", 1, 5)]
        gone = job(lambda left: totals(once(left)), "left")
        run.change(gone)
        with pytest.raises(TopologyError, match=r"the checkpoint holds state of \['right'\]"):
            run.start()
        changed(run, replace(gone, options={"allowNonRestoredState": "true"}))
        run.feed("left", ("a", 10), ("a", 100))
        run.checkpoint()
        assert newest(run, "k") == [("a", 4, 112), ("b", 1, 5)]


def test_rows_behind_the_newest_checkpoint_are_read_again_by_the_changed_job() -> None:
    with job(lambda left: totals(left), "left").started() as run:
        run.feed("left", ("a", 1))
        run.checkpoint()
        run.feed("left", ("a", 10))
        run.batches()
        changed(run, job(lambda left, right: totals(right.union(left)), "left", "right"))
        run.feed("right", ("b", 5))
        run.checkpoint()
        assert newest(run, "k") == [("a", 2, 11), ("b", 1, 5)]
