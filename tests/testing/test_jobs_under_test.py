"""The kit for users' jobs: it finds the mistakes that jobs are known for, and passes jobs without them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext

from spark_ckpt import SinkWriter, TwoPhaseSink, agg
from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.testing.jobs import Frame, JobUnderTest, Rows, ScheduleError, latest_by
from tests.how_many import some

PAYMENTS = Rows("merchant string, cents long", [("abc"[i % 3], i) for i in range(24)], partitions=2)
TOTAL = "merchant string, n long, cents long"
BY_MERCHANT = latest_by("merchant")


def add_up(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n, cents = state.getOption or (0, 0)
    for frame in frames:
        n, cents = n + len(frame), cents + int(frame["cents"].sum())
    state.update((n, cents))
    yield pd.DataFrame({"merchant": [key[0]], "n": [n], "cents": [cents]})


def totals(payments: Frame, function: Any = add_up) -> Frame:
    grouped = payments.groupBy("merchant")
    return grouped.applyInPandasWithState(function, TOTAL, "n long, cents long", "update", "NoTimeout").uid("totals")


def expected() -> dict[str, tuple[int, int]]:
    cents = {m: [c for k, c in PAYMENTS.rows if k == m] for m in "abc"}
    return {m: (len(found), sum(found)) for m, found in cents.items()}


def found(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["merchant"]: (row["n"], row["cents"]) for row in rows}


@pytest.mark.more
def test_a_job_without_mistakes_shows_the_same_rows_whatever_dies() -> None:
    job = JobUnderTest(totals, {"payments": PAYMENTS}, compare=BY_MERCHANT)
    assert found(job.run()) == expected()
    job.check(some(24))


def test_each_step_of_a_run_can_be_the_one_to_die_at() -> None:
    job = JobUnderTest(totals, {"payments": PAYMENTS})
    for step in ("before WriteBatch", "after CreateCompletion", "before WriteCommitted", "Spark's state store"):
        assert found(job.run(kill_at=step)) == expected()
    with pytest.raises(InvalidInputError, match="no step has 'WriteBach' in its name"):
        job.run(kill_at="WriteBach")
    assert TaskContext.get() is None  # a session of Spark can be started in this process


@pytest.mark.more
def test_two_operators_in_a_row_and_two_sources_pass_too() -> None:
    def most(payments: Frame, refunds: Frame) -> Frame:
        counts = totals(payments.union(refunds)).select("n", "cents")
        return counts.groupBy("n").aggregate(most=agg.max("cents")).uid("most")

    refunds = Rows("merchant string, cents long", [("abc"[i % 3], -i) for i in range(6)])
    job = JobUnderTest(most, {"payments": PAYMENTS, "refunds": refunds}, compare=len, batches="fixed")
    job.check(some(12))


# --- mistakes ------------------------------------------------------------------------------------------------------


SEEN: dict[str, tuple[int, int]] = {}


def test_state_in_a_global_is_found() -> None:
    def add_up_here(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        n, cents = SEEN.get(key[0], (0, 0))
        for frame in frames:
            n, cents = n + len(frame), cents + int(frame["cents"].sum())
        SEEN[key[0]] = (n, cents)
        state.update((n, cents))
        yield pd.DataFrame({"merchant": [key[0]], "n": [n], "cents": [cents]})

    def query(payments: Frame) -> Frame:
        return totals(payments, _of_this_module(add_up_here))

    SEEN.clear()
    with pytest.raises(ScheduleError, match="crash schedule 0"):
        JobUnderTest(query, {"payments": PAYMENTS}, compare=BY_MERCHANT).check(3)


def _of_this_module(function: Any) -> Any:
    """As a function at the top of a module: it is pickled by its name, and shares the module's globals."""
    globals()["_shared"] = function
    function.__qualname__ = function.__name__ = "_shared"
    return function


class Careless(TwoPhaseSink):
    """Appends whatever it is told to, to a file of lines; ``when`` says in which of the two phases."""

    OPTIONS = ("path", "when")

    def writer(self, ctx: Any) -> SinkWriter:
        return _CarelessWriter(self.options)

    def commit(self, permit: Any, committables: Any) -> None:
        if self.options["when"] == "commit":
            append(self.options["path"], [row for c in committables for row in json.loads(c.data)])

    def abort(self, committables: Any) -> None: ...


class _CarelessWriter(SinkWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.options, self.rows = options, list[Any]()

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    def prepare_commit(self) -> list[bytes]:
        if self.options["when"] == "prepare_commit":
            append(self.options["path"], self.rows)
        return [json.dumps(self.rows).encode()] if self.rows else []

    def close(self) -> None: ...


def append(path: str, rows: list[Any]) -> None:
    with open(path, "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def careless(when: str) -> JobUnderTest:
    """A job with such a sink."""

    def sink(folder: Path) -> Any:
        path = folder / "rows"
        path.touch()
        return Careless, {"path": str(path), "when": when}, lambda: list(map(json.loads, path.read_text().splitlines()))

    return JobUnderTest(lambda payments: payments, {"payments": PAYMENTS}, sink)


@pytest.mark.parametrize("when", ["commit", "prepare_commit"])
def test_a_sink_that_shows_rows_twice_is_found(when: str) -> None:
    job = careless(when)
    assert len(job.run()) == 24
    with pytest.raises(ScheduleError, match=r"0 rows are missing and \d+ are too many"):
        job.check(1000)


class ByEpoch(TwoPhaseSink):
    """Stages rows under their batch, and not under the attempt at it: a driver that only halted puts its own there."""

    OPTIONS = ("path",)

    def writer(self, ctx: Any) -> SinkWriter:
        return _ByEpochWriter(Path(self.options["path"], f"{ctx.epoch}-{ctx.batch}-{ctx.partition}"))

    def commit(self, permit: Any, committables: Any) -> None:
        done = Path(self.options["path"], f"done-{permit.checkpoint}")
        if not done.exists():
            names = {c.data.decode() for c in committables}
            done.write_text("".join(Path(self.options["path"], name).read_text() for name in sorted(names)))

    def abort(self, committables: Any) -> None: ...


class _ByEpochWriter(SinkWriter):
    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[Any]()

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    def prepare_commit(self) -> list[bytes]:
        self.path.write_text("")
        append(str(self.path), self.rows)
        return [self.path.name.encode()]

    def close(self) -> None: ...


def test_a_sink_that_a_driver_believed_dead_can_spoil_is_found() -> None:
    def sink(folder: Path) -> Any:
        def shown() -> list[Any]:
            return [json.loads(line) for path in folder.glob("done-*") for line in path.read_text().splitlines()]

        return ByEpoch, {"path": str(folder)}, shown

    each_batch = {"interval": "1ms"}
    job = JobUnderTest(lambda payments: payments, {"payments": PAYMENTS}, sink, options=each_batch)
    with pytest.raises(ScheduleError, match=r"halted, and believed dead: start \d goes on at step \d+ of the next"):
        job.check(30)


@pytest.mark.more
def test_what_depends_on_batches_is_told_apart_from_what_crashes_do() -> None:
    with pytest.raises(ScheduleError, match="No crash is needed: with these batches alone the rows differ, too"):
        JobUnderTest(totals, {"payments": PAYMENTS}).check(20)
    JobUnderTest(totals, {"payments": PAYMENTS}, batches="fixed").check(some(5))


def test_an_error_under_a_schedule_is_its_cause_and_the_schedule_can_be_replayed() -> None:
    def sink(folder: Path) -> Any:
        path = folder / "rows"
        path.touch()
        return Refusing, {"path": str(path), "when": "commit"}, list

    job = JobUnderTest(lambda payments: payments, {"payments": PAYMENTS}, sink)
    with pytest.raises(ScheduleError, match=r"raised CkptError: .*could not commit it: ValueError") as failed:
        job.check(1000, how="pytest this --schedule {}")
    assert isinstance(failed.value.__cause__, CkptError)
    number = int(str(failed.value).partition("crash schedule ")[2].partition(":")[0])
    assert str(failed.value).endswith(f"replay it: pytest this --schedule {number}")
    with pytest.raises(ScheduleError, match=f"crash schedule {number}: raised CkptError"):
        job.check(replay=number)


class Refusing(Careless):
    """Knows that a checkpoint was committed, and takes that for a mistake."""

    def commit(self, permit: Any, committables: Any) -> None:
        done = Path(f"{self.options['path']}-{permit.checkpoint}")
        if done.exists():
            raise ValueError("it is there already")
        done.touch()
        super().commit(permit, committables)


def test_what_runs_in_the_jvm_is_refused_with_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"filter is not there without Spark: expected one of .*mapInArrow"):
        JobUnderTest(lambda payments: payments.filter("cents > 0"), {"payments": PAYMENTS}).run()


# --- mistakes in timers and in order -------------------------------------------------------------------------------


REMINDED: set[str] = set()


def reminds_once(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"merchant": [key[0]], "quiet": [True]})
        return
    state.update((1,))
    state.setTimeoutDuration(1)


def reminds_by_a_global(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Keeps in its process, and not in the state, whom it has reminded."""
    if state.hasTimedOut and key[0] in REMINDED:
        state.remove()
        return
    if state.hasTimedOut:
        REMINDED.add(key[0])
    yield from reminds_once(key, frames, state)


@pytest.mark.more
@pytest.mark.parametrize("function", [reminds_once, reminds_by_a_global])
def test_a_timer_that_fires_for_nothing_behind_a_restore_is_found(function: Any) -> None:
    def query(payments: Frame) -> Frame:
        made = payments.groupBy("merchant").applyInPandasWithState(
            _of_this_module(function), "merchant string, quiet boolean", "n long", "append", "ProcessingTimeTimeout"
        )
        return made.uid("reminders")

    REMINDED.clear()
    job = JobUnderTest(query, {"payments": PAYMENTS}, compare=lambda rows: {row["merchant"] for row in rows})
    if function is reminds_once:
        job.check(some(10))
        return
    with pytest.raises(ScheduleError, match="crash schedule 0: 1 rows are missing"):
        job.check(3)


def newest_amount(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Takes the row that comes last for the newest one."""
    cents = [int(c) for frame in frames for c in frame["cents"]][-1]
    state.update((cents,))
    yield pd.DataFrame({"merchant": [key[0]], "n": [0], "cents": [cents]})


def largest_amount(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    (before,) = state.getOption or (-1,)
    cents = max(before, *(int(c) for frame in frames for c in frame["cents"]))
    state.update((cents,))
    yield pd.DataFrame({"merchant": [key[0]], "n": [0], "cents": [cents]})


@pytest.mark.more
@pytest.mark.parametrize("function", [largest_amount, newest_amount])
def test_what_depends_on_the_order_of_two_partitions_is_found(function: Any) -> None:
    def query(payments: Frame) -> Frame:
        grouped = payments.groupBy("merchant")
        return grouped.applyInPandasWithState(function, TOTAL, "cents long", "update", "NoTimeout").uid("newest")

    job = JobUnderTest(query, {"payments": PAYMENTS}, compare=BY_MERCHANT)
    if function is largest_amount:
        job.check(some(10))
        return
    with pytest.raises(ScheduleError, match="No crash is needed: with these batches alone the rows differ, too"):
        job.check(200)


# --- step by step --------------------------------------------------------------------------------------------------


def remind(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"merchant": [key[0]], "quiet": [True]})
        return
    state.update((1,))
    state.setTimeoutDuration(60_000)


def reminders(payments: Frame) -> Frame:
    made = payments.groupBy("merchant").applyInPandasWithState(
        remind, "merchant string, quiet boolean", "n long", "append", "ProcessingTimeTimeout"
    )
    return made.uid("reminders")


@pytest.mark.parametrize("killed", [False, True])
def test_a_timer_fires_when_the_clock_is_moved_on_also_behind_a_restore(killed: bool) -> None:
    with JobUnderTest(reminders, {"payments": Rows(PAYMENTS.schema)}).started() as run:
        run.feed("payments", ("a", 1), ("b", 2))
        run.checkpoint()
        assert run.rows == []
        if killed:
            run.kill()
            run.move()
            run.start()
            run.batches()
        run.advance(61_000)
        run.batches()
        run.checkpoint()
        assert sorted(row["merchant"] for row in run.rows) == ["a", "b"]


def test_rows_behind_the_last_checkpoint_are_shown_once_after_a_kill() -> None:
    with JobUnderTest(totals, {"payments": Rows(PAYMENTS.schema)}).started() as run:
        run.feed("payments", ("a", 1))
        run.checkpoint()
        run.feed("payments", ("a", 2))
        run.batches()
        run.kill()
        with pytest.raises(InvalidInputError, match="the job does not run"):
            run.batches()
        run.start()
        run.checkpoint()
        assert [(r["n"], r["cents"]) for r in run.rows] == [(1, 1), (2, 3)]


def test_a_job_goes_on_from_a_savepoint_that_an_older_version_of_it_wrote(tmp_path: Path) -> None:
    with JobUnderTest(totals, {"payments": PAYMENTS}).started() as run:
        run.savepoint(tmp_path / "v1")

    def with_average(payments: Frame) -> Frame:
        return totals(payments).mapInPandas(
            lambda frames: (f.assign(mean=f["cents"] / f["n"]) for f in frames), f"{TOTAL}, mean double"
        )

    with JobUnderTest(with_average, {"payments": PAYMENTS}).started(tmp_path / "v1") as run:
        run.feed("payments", ("a", 1))
        run.checkpoint()
        n, cents = expected()["a"]
        assert [(r["n"], r["cents"], r["mean"]) for r in run.rows] == [(n + 1, cents + 1, (cents + 1) / (n + 1))]
