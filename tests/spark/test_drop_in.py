"""A function written for Spark's ``applyInPandasWithState`` does here what it does there, on the same batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from tests.spark.conftest import DEADLINE_S, Input, Job, named, ordered, wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


def _through_spark(df: Any, folder: Path, mode: str) -> list[tuple[Any, ...]]:
    """Every batch's output of a plain query, all together."""
    seen: list[tuple[Any, ...]] = []

    def collect(batch: Any, number: int) -> None:
        seen.extend(tuple(row.values()) for row in batch.toArrow().to_pylist())

    writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder))
    query = writer.outputMode(mode).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    return ordered(seen)


# --- state ----------------------------------------------------------------------------------------------------------

# Spark 4.2 itself cannot read state with arrays or structs in it (KeyError: 'elementType'), so none is compared here.
STATE = "n long, total double, name string, seen timestamp, day date, flag boolean, exact decimal(9,2)"
OUT = f"k string, {STATE}, items array<int>, note string"


def _ledger(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Keeps a value of every kind; ``remove`` ends a key, ``keep`` leaves its state alone."""
    for frame in frames:
        n, total, name, seen, day, flag, exact = state.get if state.exists else (0, 0.0, *[None] * 5)
        note = f"{type(key[0]).__name__} {state.exists} {state.getOption is None} {state.hasTimedOut} {len(frame)}"
        for row in frame.sort_values("v", kind="stable").itertuples():
            n, total, name = n + 1, total + row.v, (name or "") + row.what[0]
            seen, day, flag = row.t, date(2024, 1, int(row.v) % 28 + 1), not flag
            exact = (exact or Decimal(0)) + Decimal("0.01")
        what = set(frame["what"])
        if "remove" in what:
            state.remove()
        elif "keep" not in what:
            state.update((n, total, name, None if seen is pd.NaT else seen, day, flag, exact))
        row = [key[0], n, total, name, seen, day, flag, exact, [n, 7], f"{note} {frame.dtypes.to_dict()}"]
        yield pd.DataFrame([row], columns=["k", "n", "total", "name", "seen", "day", "flag", "exact", "items", "note"])


@pytest.mark.smoke
def test_state_of_many_types_is_got_updated_and_removed_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v double, what string, t timestamp")
    noon = _utc(2024, 7, 1, 12)
    data.add(("a", 1.0, "new", noon), ("b", 2.0, "new", noon), ("a", 3.0, "more", None), (None, 4.0, "null", noon))
    data.add(("a", 5.0, "keep", noon), ("b", 6.0, "remove", noon), ("c", 7.0, "remove", noon))
    data.add(("a", 8.0, "again", _utc(1969, 1, 1)), ("b", 9.0, "again", None), (None, 10.0, "null", noon))

    def query(df: Any) -> Any:
        return named(df.groupBy("k").applyInPandasWithState(_ledger, OUT, STATE, "update", "NoTimeout"), "query")

    expected = _through_spark(query(data.spark_stream(spark)), tmp_path / "plain", "update")
    assert len(expected) == 9
    job.run(query(data.stream(ckpt)))
    assert job.rows() == expected


# --- time -----------------------------------------------------------------------------------------------------------


def _sessions(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """A session ends ten seconds of event time after its last row."""
    if state.hasTimedOut:
        rows = sum(len(frame) for frame in frames)
        out = [key[0], *state.get, f"closed, {rows} rows"]
        state.remove()
    else:
        times = [t for frame in frames for t in frame["t"]]
        last = max(int(t.tz_localize("America/New_York").timestamp() * 1000) for t in times)
        n, until = state.getOption or (0, 0)
        state.update((n + len(times), max(until, last)))
        state.setTimeoutTimestamp(max(until, last) + 10_000)
        out = [key[0], *state.get, "open"]
    yield pd.DataFrame([out], columns=["k", "n", "until", "what"])


def test_event_time_timeouts_and_late_rows_are_those_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, t timestamp")

    def at(second: int) -> datetime:
        return datetime.fromtimestamp(1_700_000_000 + second, timezone.utc)

    data.add(("a", at(0)), ("b", at(5)), ("b", at(1)))
    data.add(("a", at(7)), ("c", at(30)))  # the watermark goes to 25: a (17) and b (15) end, c stays
    data.add(("c", at(33)), ("d", at(60)))  # to 55: c ends
    data.add(("e", at(58)), ("f", at(61)))
    data.add(("late", at(2)), ("g", at(62)), ("late", at(54)))  # dropped

    def query(df: Any) -> Any:
        grouped = df.withWatermark("t", "5 seconds").groupBy("k")
        state, out = "n long, until long", "k string, n long, until long, what string"
        return named(grouped.applyInPandasWithState(_sessions, out, state, "append", "EventTimeTimeout"), "query")

    expected = _through_spark(query(data.spark_stream(spark)), tmp_path / "plain", "append")
    closed = [row[0] for row in expected if row[3] == "closed, 0 rows"]
    assert closed == ["a", "b", "c"]
    assert "late" not in [row[0] for row in expected]
    job.run(query(data.stream(ckpt)))
    assert job.rows() == expected


def _idle(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        (n,) = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "what": ["idle"]})
        return
    state.update(((state.getOption or (0,))[0] + sum(len(frame) for frame in frames),))
    if key[0] != "stays":
        state.setTimeoutDuration(200)
    yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "what": ["busy"]})


def test_processing_time_timeouts_fire_without_new_rows_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string")
    data.add(("a",), ("b",), ("a",), ("stays",))

    def query(df: Any) -> Any:
        grouped = df.groupBy("k")
        return named(
            grouped.applyInPandasWithState(
                _idle, "k string, n long, what string", "n long", "update", "ProcessingTimeTimeout"
            ),
            "query",
        )

    seen: list[tuple[Any, ...]] = []
    writer = query(data.spark_stream(spark)).writeStream.outputMode("update")
    writer = writer.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
    plain = writer.option("checkpointLocation", str(tmp_path / "plain")).start()
    wait_until(lambda: len(seen) >= 5, plain)
    plain.stop()

    ours = job.start(query(data.stream(ckpt)), now=False, interval="100ms", initialDelay="0s")
    wait_until(lambda: len(job.rows()) >= 5, ours)
    ours.stop()
    expected = [("a", 2, "busy"), ("a", 2, "idle"), ("b", 1, "busy"), ("b", 1, "idle"), ("stays", 1, "busy")]
    assert job.rows() == ordered(seen) == ordered(expected)


# --- the vectorised form --------------------------------------------------------------------------------------------


def _arrow_totals(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, pa.Table]:
    """Sum a key; a key whose sum is negative is forgotten; says where it was called."""
    sums = rows.group_by("_key").aggregate([("v", "sum")]).sort_by("_key")
    assert sums["_key"].to_pylist() == list(range(len(state)))
    total = pc.add(pc.fill_null(state["total"], 0), sums["v_sum"])
    output = pa.table({"k": state["k"], "total": total, "known": state["_exists"], "uid": [ctx.uid] * len(state)})
    return output, pa.table({"total": total, "_removed": pc.less(total, 0)})


def test_the_arrow_form_sees_rows_and_state_of_all_touched_keys(ckpt: Any, new_input: NewInput, job: Job) -> None:
    data = new_input("in", "k string, v long")
    data.add(*[("abcdefgh"[i % 8], i) for i in range(24)])
    data.add(("a", -1000), ("b", 5))
    data.add(("a", 7), ("b", 5))
    out, state = "k string, total long, known boolean, uid string", "total long"
    ours = data.stream(ckpt).groupBy("k").applyInArrowWithState(_arrow_totals, out, state).uid("arrow")
    job.run(ours)
    first = [("abcdefgh"[i], 24 + 3 * i, False, "arrow") for i in range(8)]
    after = [("a", -976, True, "arrow"), ("b", 32, True, "arrow"), ("a", 7, False, "arrow"), ("b", 37, True, "arrow")]
    assert job.rows() == ordered([*first, *after])


# --- functions that fail --------------------------------------------------------------------------------------------


def _raises(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    for frame in frames:
        if (frame["v"] == 13).any():
            raise LookupError("no thirteenth floor")
        yield pd.DataFrame({"k": [key[0]], "n": [1]})


def _wrong_columns(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"k": [key[0]], "number": [1]})


def _wrong_type(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"k": [key[0]], "n": ["many"]})


def _wrong_state(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    state.update(("many",))
    yield pd.DataFrame({"k": [key[0]], "n": [1]})


def _arrow_raises(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, None]:
    raise LookupError("no thirteenth floor")


def _arrow_wrong(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, None]:
    return pa.table({"k": state["k"]}), None


def soaked(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.soak)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_raises, ["key ('b',)", "LookupError", "no thirteenth floor", f'{__file__}", line ', ", in _raises"]),
        # What they say by themselves: tests/state/test_functions_pandas.py.
        soaked(_wrong_columns, ["expected output columns ['k', 'n']", "found ['k', 'number']"]),
        soaked(_wrong_type, ["does not fit outputStructType", "n int64"]),
        soaked(_wrong_state, ["state.update() expected a tuple of (n int64)", "found 1 values of types (str)"]),
        (_arrow_raises, ["LookupError", "no thirteenth floor", f'{__file__}", line ', ", in _arrow_raises"]),
        (_arrow_wrong, ["the output table does not fit", "k string, n int64"]),
    ],
)
def test_a_function_that_fails_is_a_task_failure_that_says_where(
    ckpt: Any, new_input: NewInput, job: Job, function: Any, said: list[str]
) -> None:
    data = new_input("in", "k string, v long")
    data.add(("b", 13))
    grouped, out = data.stream(ckpt).groupBy("k"), "k string, n long"
    if function in (_arrow_raises, _arrow_wrong):
        failing = grouped.applyInArrowWithState(function, out, "n long").uid("broken")
    else:
        failing = grouped.applyInPandasWithState(function, out, "n long", "append", "NoTimeout").uid("broken")
    query = job.start(failing)
    with pytest.raises(Exception, match="UserFunctionError") as failure:
        query.awaitTermination(DEADLINE_S)
    for words in ["operator 'broken'", "subtask ", "checkpoint 1", *said]:
        assert words in str(failure.value)
    assert job.rows() == []
