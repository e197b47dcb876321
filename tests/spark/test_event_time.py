"""Sessions, windows of windows and other chains by event time, beside Spark's own streams over the same files: stopped
in the middle, and gone on elsewhere with other partitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import DEADLINE_S, Input, Job, named, ordered, wait_until
from tests.spark.test_windows import BASE, DELAY, SCHEMA, _batches, _flat, _plain

NewInput = Callable[[str, str], Input]
HOUR = timedelta(hours=1)


def _windows(df: Any, *keys: Any, of: Any = "t", length: str = "10 minutes") -> Any:
    return named(df.groupBy(F.window(of, length), *keys).agg(F.count("*").alias("n")), "windows")


def _sessions(df: Any, gap: Any = "5 minutes", of: Any = "t") -> Any:
    counted = [F.count("*").alias("n"), F.max("v").alias("v"), F.avg("v").alias("mean")]
    return named(df.groupBy("k", F.session_window(of, gap)).agg(*counted), "sessions")


def _kept(df: Any, gap: Any = "5 minutes") -> Any:
    """Aggregates that keep values; Spark leaves the order of lists open, and which of several modes it is."""
    made = [
        F.sort_array(F.collect_list("v")).alias("list"),
        F.to_json(F.sort_array(F.collect_set(F.struct("v", "k")))).alias("set"),
        F.size(F.collect_list(F.struct("t"))).alias("times"),
        F.median("v").alias("middle"),
        F.percentile("v", F.array(F.lit(0.25), F.lit(0.9))).alias("shares"),
        F.percentile_approx("v", 0.5).alias("rank"),
        F.mode("v", deterministic=True).alias("often"),
        F.count("*").alias("n"),
    ]
    return named(df.groupBy("k", F.session_window("t", gap)).agg(*made), "sessions")


def _gap_of_row() -> Any:
    """Some gaps are nothing, or less than nothing."""
    text = F.when(F.col("v") == 1, "4 minutes 30 seconds").when(F.col("k") == "a", "-1 minute")
    return text.when(F.col("v") == 5, F.concat(F.col("v") * 2, F.lit(" minutes")))


def _again(df: Any, *keys: Any, of: Any, length: str = "30 minutes") -> Any:
    return named(df.groupBy(*keys, F.window(of, length)).agg(F.sum("n").alias("n"), F.count("*").alias("c")), "again")


def _sliding(df: Any) -> Any:
    return named(df.groupBy(F.window("t", "10 minutes", "4 minutes"), "k").agg(F.count("*").alias("n")), "sliding")


def _best(df: Any, *keys: Any, most: str = "n") -> Any:
    """Of windows as they are, by their column."""
    return named(df.groupBy(*keys).agg(F.max(most).alias("most"), F.count("*").alias("rows")), f"best of {most}")


def _joined(df: Any, how: str) -> Any:
    """Spark's guide has such a one; rows of windows are forgotten when the windows have ended."""

    def windows(key: str) -> Any:
        n = F.count("*").alias(f"n_{key}")
        return named(df.groupBy(F.window("t", "10 minutes"), key).agg(n), key)

    a, b = windows("k"), windows("v")
    found = named(a.join(b, (a["window"] == b["window"]) & (a["n_k"] == b["n_v"]), how), "join")
    return found.select(a["window"], "k", "n_k", "v")


def _with_itself(df: Any, how: str = "left") -> Any:
    """Spark has the windows twice, too."""
    counts = _windows(df.where("v is null or v < 9"), "k")
    return named(counts.join(counts.where("n > 0").withColumnRenamed("n", "m"), ["window", "k"], how), "join")


def _beside_itself(df: Any) -> Any:
    counts = _windows(df, "k").select(F.window_time("window").alias("at"), "k", "n")
    more = counts.where("k = 'a'").union(counts.union(counts))
    return _again(named(more.dropDuplicates(["at", "k", "n"]), "once"), "k", of="at")


def _of_all_rows(df: Any) -> Any:
    """Spark has it in batches only: its streams want another key."""
    return named(df.groupBy(F.session_window("t", "1 minute")).agg(F.sum("v"), F.count("*")), "sessions")


QUERIES: dict[str, Callable[[Any], Any]] = {
    "windows of sessions": lambda df: _again(_sessions(df), "k", of=F.window_time("session_window")),
    "sessions": _sessions,
    "sessions with a name and expressions": lambda df: named(
        df.groupBy(F.session_window("t", "3 minutes").alias("s"), F.upper("k").alias("u")).agg(
            (F.sum("v") / F.count("*")).alias("x"), F.col("s").start.alias("begin")
        ),
        "sessions",
    ),
    "a column of sessions": lambda df: named(
        df.withColumn("s", F.session_window("t", "5 minutes"))
        .groupBy(F.col("s").alias("z"), "k")
        .agg(F.sum("v").alias("n"), F.max("s.end"), F.count("*").alias("c")),
        "sessions",
    ),
    "sessions of sessions": lambda df: named(
        _sessions(df, "3 minutes")
        .groupBy("session_window", F.col("n").alias("of"))
        .agg(F.count("*").alias("n"), F.sort_array(F.collect_list("k"))),
        "again",
    ),
    "sessions with a gap a row": lambda df: _sessions(df, _gap_of_row()),
    "sessions of no length": lambda df: _sessions(df, "0 seconds"),
    "sessions of a month": lambda df: _sessions(df, "1 month"),
    "windows of windows": lambda df: _again(_windows(df, "k"), of=F.window_time("window")),
    "windows of windows by the window": lambda df: _again(_windows(df, "k"), "k", of="window", length="20 minutes"),
    "windows of a column of window_time": lambda df: _again(
        _windows(df, "k").withColumn("at", F.window_time("window")).where("n > 0").select("at", "k", "n"), of="at"
    ),
    "a window's best": lambda df: _best(_sliding(df), "window"),
    "a window's best, with keys and another name": lambda df: _best(
        _sliding(df).where("n > 0").withColumnRenamed("window", "w"), F.col("w").alias("of"), "k"
    ),
    "a window's best of its best": lambda df: _best(
        _best(_sliding(df), "k", "window").select("window", "most", "k"), "window", most="most"
    ),
    "windows joined": lambda df: _joined(df, "left"),
    "windows joined inside": lambda df: _joined(df, "inner"),
    "sessions of windows": lambda df: named(
        _windows(df, "k").groupBy(F.session_window("window", "10 minutes"), "k").agg(F.sum("n")), "again"
    ),
    "windows behind distinct rows": lambda df: _windows(
        named(df.dropDuplicates(["k", "t"]), "once"), "k", length="7 minutes"
    ),
    "three in a row": lambda df: _again(
        _windows(named(df.dropDuplicates(["t", "k", "v"]), "once"), "k", length="3 minutes"), of="window"
    ),
    "sessions that keep values": _kept,
    "windows joined with themselves": _with_itself,
    "windows beside themselves": _beside_itself,
    "windows of windows joined": lambda df: _again(
        _joined(df, "inner").withColumnRenamed("n_k", "n"), "k", of=F.window_time("window")
    ),
    "windows of their distinct rows": lambda df: _again(
        named(_windows(df, "k").dropDuplicates(["window", "n"]), "once"), of="window"
    ),
    "sessions that keep values, with a gap a row": lambda df: _kept(df, _gap_of_row()),
}
SHORT = ["windows of sessions"]
"""In the test command; the others with the soak tests."""
NONE_ENDS = ("sessions of no length", "sessions of a month")
"""Of which Spark puts out nothing either."""


@pytest.mark.parametrize("query", [q if q in SHORT else pytest.param(q, marks=pytest.mark.soak) for q in QUERIES])
def test_what_comes_out_by_event_time_is_what_spark_puts_out(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: str
) -> None:
    made, delay = new_input("in", SCHEMA), f"{DELAY.seconds} seconds"
    half = 3 if query in SHORT else 5
    batches = _batches(list(QUERIES).index(query), 2 * half)
    theirs: list[tuple[Any, ...]] = []
    for part, partitions in ((batches[:half], "2"), (batches[half:], "3")):
        for rows in part:
            made.add(*rows)
        rows_of_spark = QUERIES[query](made.spark_stream(spark).withWatermark("t", delay))
        ours = QUERIES[query](made.stream(ckpt).withWatermark("t", delay))
        assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in rows_of_spark.schema]
        theirs += _plain(rows_of_spark, tmp_path / "plain", "append")
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        job.run(ours, checkpointLocation=str(tmp_path / partitions))
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        assert ordered(map(_flat, job.rows())) == ordered(theirs)
    assert theirs or query in NONE_ENDS, "nothing to compare"


@pytest.mark.soak
def test_what_is_joined_with_itself_again_and_again_is_what_a_batch_has(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    """Of such joins Spark's own streams put out nothing: on the right side, the windows never end."""
    made = new_input("in", SCHEMA)
    made.add(*((BASE + timedelta(minutes=3 * n), "ab"[n % 2], n) for n in range(12)))

    def asked(df: Any) -> Any:
        counts = named(df.groupBy(F.window("t", "10 minutes"), "k").agg(F.count("*").alias("n")), "counts")
        both = counts.join(counts, ["window"]).toDF("window", "k", "n", "kk", "m").where("k <= kk")
        return both.join(both.toDF("window", "p", "q", "r", "s"), ["window"]).where("k = p")

    options = {"spark__ckpt__endOfInput__closeWindows": "true"}
    job.run(asked(made.stream(ckpt).withWatermark("t", "1 hour")), **options)
    assert ordered(map(_flat, job.rows())) == ordered(_flat(r) for r in asked(made.table(spark)).collect())
    tables = {path.parent.name for path in (tmp_path / "jobs" / "job" / "state").glob("counts*/_delta_log")}
    assert tables == {"counts", "counts-2", "counts-3", "counts-2-2"}


@pytest.mark.soak
def test_joined_windows_that_have_ended_leave_no_state(
    ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    made = new_input("in", SCHEMA)
    made.add((BASE, "a", 1), (BASE, "b", 1), (BASE + HOUR, "a", 1))
    made.add((BASE + 2 * HOUR, "a", 1), (BASE + 2 * HOUR, "b", 1))
    job.run(_joined(made.stream(ckpt).withWatermark("t", "5 minutes"), "inner"))
    assert len(job.rows()) == 1
    for table in ("join.left", "join.right"):
        left = DeltaTable(str(tmp_path / "jobs" / "job" / "state" / table))
        assert QueryBuilder().register("t", left).execute("SELECT * FROM t").read_all().num_rows == 0


@pytest.mark.soak
def test_a_session_that_came_out_leaves_no_state(ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path) -> None:
    made = new_input("in", SCHEMA)
    for rows in _batches(3):
        made.add(*rows)
    job.run(_sessions(made.stream(ckpt).withWatermark("t", "5 minutes")))
    ended = job.rows()
    assert ended
    left = DeltaTable(str(tmp_path / "jobs" / "job" / "state" / "sessions.sessions"))
    rows = QueryBuilder().register("t", left).execute("SELECT k, session_window_end FROM t").read_all()
    kept = rows.to_struct_array().to_pylist()
    assert {r["k"] for r in kept} <= {"a", "b", None}
    assert max(row[1]["end"] for row in ended) < min(r["session_window_end"] for r in kept)


def test_distinct_aggregates_of_sessions_are_those_of_a_batch(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput
) -> None:
    """Spark's own streams refuse distinct aggregates; its batches count a value of a session more than once."""
    made = new_input("in", SCHEMA)
    for minutes in ([0, 20, 1], [11, 21, 0], [5, 16, 40]):  # what comes last is between the others
        made.add(*((BASE + timedelta(minutes=m), "ab"[n % 2], m % 3) for n, m in enumerate(minutes * 2)))
    made.add((BASE + HOUR, "a", 9))
    made.add((BASE + 2 * HOUR, "a", 9))

    def asked(df: Any, found: list[Any]) -> Any:
        return named(df.groupBy(F.session_window("t", "6 minutes"), "k").agg(*found, F.count("*")), "sessions")

    distinct = [F.count_distinct("v"), F.sum_distinct("v"), F.count_distinct("v", "t")]
    job.run(asked(made.stream(ckpt).withWatermark("t", "30 minutes"), distinct))
    values, pairs = (F.array_distinct(F.collect_list(c)) for c in ("v", F.struct("v", "t")))
    plain = [F.size(values), F.aggregate(values, F.lit(0), lambda a, b: a + b), F.size(pairs)]
    over = (BASE + 2 * HOUR).timestamp()
    ended = [row for row in map(_flat, asked(made.table(spark), plain).collect()) if row[0] < over]
    assert ordered(map(_flat, job.rows())) == ordered(ended)


# --- groups of the event time itself --------------------------------------------------------------------------------


def _of_times(df: Any) -> Any:
    found = [F.count("*").alias("n"), F.sum("v").alias("v"), F.sort_array(F.collect_set("v")), F.max("t").alias("t")]
    return named(df.groupBy(F.col("t").alias("at"), "k").agg(*found), "times")


OF_TIMES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "append": (_of_times, "append"),
    "update": (_of_times, "update"),
    "complete": (lambda df: named(df.groupBy("t").count(), "times"), "complete"),
    "windows behind": (
        lambda df: _again(_of_times(df).select("at", "n").where("n > 0"), of="at", length="10 minutes"),
        "append",
    ),
    "of distinct rows": (lambda df: _of_times(named(df.dropDuplicates(["t", "v"]), "once")), "append"),
}


@pytest.mark.parametrize("case", [c if c == "append" else pytest.param(c, marks=pytest.mark.soak) for c in OF_TIMES])
def test_groups_of_the_event_time_come_out_and_end_as_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, case: str
) -> None:
    query, mode = OF_TIMES[case]
    made, theirs = new_input("in", SCHEMA), []

    def at(*rows: tuple[int | None, str]) -> list[tuple[Any, ...]]:
        return [(None if m is None else BASE + timedelta(minutes=m), k, m) for m, k in rows]

    early = [at((0, "a"), (0, "a"), (3, "b"), (None, "a")), at((0, "a"), (10, "b"), (3, "b")), at((0, "a"), (5, "c"))]
    later = [at((5, "c"), (6, "c"), (None, "a")), at((30, "a"), (5, "late")), at((25, "a"), (24, "b")), at((60, "z"))]
    for part, partitions in ((early, "2"), (later, "3")):
        for rows in part:
            made.add(*rows)
        both = [df.withWatermark("t", "5 minutes") for df in (made.spark_stream(spark), made.stream(ckpt))]
        theirs = [*theirs, *_plain(query(both[0]), tmp_path / "plain", mode)]
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        job.run(query(both[1]), mode=mode, checkpointLocation=str(tmp_path / partitions))
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        found = ordered(map(_flat, job.rows()))
        if mode == "complete":
            assert found == ordered(_flat(r) for r in made.table(spark).groupBy("t").count().collect())
        else:
            assert found == ordered(theirs), "with rows that are late, and rows without a time"
    assert found


def test_a_group_of_a_time_that_came_out_leaves_no_state(
    ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    made = new_input("in", SCHEMA)
    made.add((BASE, "a", 1), (BASE, "a", 2), (BASE + HOUR, "a", 3))
    made.add((BASE + HOUR, "b", 4))
    job.run(_of_times(made.stream(ckpt).withWatermark("t", "5 minutes")))
    assert [(n, v) for _, _, n, v, *_ in job.rows()] == [(2, 3)]
    left = [path.parent for path in (tmp_path / "jobs" / "job" / "state").glob("times*/_delta_log")]
    kept = [QueryBuilder().register("t", DeltaTable(str(t))).execute("SELECT k FROM t").read_all() for t in left]
    assert sorted(t.num_rows for t in kept) == [2, 2]


def test_what_spark_refuses_of_sessions_is_refused_with_a_way_that_works(ckpt: Any, new_input: NewInput) -> None:
    df = new_input("in", SCHEMA).stream(ckpt)
    marked = df.withWatermark("t", "5 minutes")
    for start in ("outputMode", "start"):
        with pytest.raises(InvalidInputError, match="call withWatermark"):
            getattr(df.groupBy(F.session_window("t", "5 minutes"), "k").count().writeStream.format("console"), start)(
                *["append"] * (start == "outputMode")
            )
    with pytest.raises(AnalysisException, match="cartesian product"):
        marked.groupBy(F.session_window("t", "5 minutes"), F.window("t", "5 minutes"), "k").count()
    with pytest.raises(InvalidInputError, match="puts out rows of mode 'append'"):
        _sessions(marked).writeStream.outputMode("update")
    with pytest.raises(AnalysisException, match="windows of operator 'windows' are aggregated or joined"):
        _again(_windows(marked), of="window").writeStream.outputMode("update")
    with pytest.raises(AnalysisException, match="windows of operator 'k' are aggregated or joined"):
        _joined(marked, "inner").writeStream.outputMode("update")
    with pytest.raises(AnalysisException):
        marked.groupBy(F.session_window("v", "5 minutes"), "k").count()
    twice = marked.withColumn("s", F.session_window("t", "5 minutes")).withColumn("r", F.col("s"))
    with pytest.raises(InvalidInputError, match="has to be the only one"):
        ckpt.check(twice.groupBy("s", "r").count())
    with pytest.raises(InvalidInputError, match=r"cube, rollup .* of session windows"):
        ckpt.check(twice.cube("s", "k").count())
    equal = twice.groupBy(F.col("s.start"), F.col("s.end")).count()
    assert equal.columns == ["start", "end", "count"]
    ckpt.check(equal, "complete")


# --- several streams ------------------------------------------------------------------------------------------------


def _both(one: Any, two: Any, marked: str) -> Any:
    """Windows over the rows of two sources, of which the first or both have a watermark."""
    delay = f"{DELAY.seconds} seconds"
    left = one.withWatermark("t", delay)
    right = two.withWatermark("t", "1 minute") if marked == "both" else two
    return _windows(left.union(right), "k")


@pytest.mark.soak
@pytest.mark.parametrize(("policy", "marked"), [("min", "both"), ("max", "both"), ("min", "one")])
def test_the_watermark_of_several_streams_is_that_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, policy: str, marked: str
) -> None:
    inputs = new_input("one", SCHEMA), new_input("two", SCHEMA)
    for number, made in enumerate(inputs):
        for rows in _batches(20 + number, 6 + number):
            made.add(*rows)
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    theirs = _plain(_both(*(i.spark_stream(spark) for i in inputs), marked), tmp_path / "plain", "append")
    job.run(_both(*(i.stream(ckpt, uid=i.folder.name) for i in inputs), marked))
    spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")
    assert theirs, "nothing to compare"
    assert ordered(map(_flat, job.rows())) == theirs


@pytest.mark.soak
def test_which_of_several_watermarks_counts_is_kept_from_the_first_start_on_as_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    inputs, policy = (new_input("one", SCHEMA), new_input("two", SCHEMA)), "spark.sql.streaming.multipleWatermarkPolicy"
    theirs: list[Any] = []
    slow_and_fast = {"max": (BASE, BASE + 2 * HOUR), "min": (BASE + timedelta(minutes=20), BASE + 5 * HOUR)}
    for said, times in slow_and_fast.items():
        for time, made in zip(times, inputs, strict=True):
            made.add((time, "a", 1))
        spark.conf.set(policy, said)
        theirs += _plain(_both(*(i.spark_stream(spark) for i in inputs), "both"), tmp_path / "plain", "append")
        job.run(_both(*(i.stream(ckpt, uid=i.folder.name) for i in inputs), "both"))
    spark.conf.unset(policy)
    assert len(theirs) == 2, "the window of the second source's first row, too"
    assert ordered(map(_flat, job.rows())) == ordered(theirs)


def _once_then_windows(one: Any, two: Any) -> Any:
    timed = one.withWatermark("t", "10 minutes").union(two.withWatermark("t", "5 minutes"))
    return _windows(named(timed.dropDuplicates(["k", "t"]), "once"), "k")


def _within_an_hour(one: Any, two: Any) -> Any:
    a, b = one.withWatermark("t", "10 minutes"), two.withWatermark("t", "5 minutes").withColumnRenamed("t", "u")
    near = (a["k"] == b["k"]) & b["u"].between(a["t"], a["t"] + F.expr("interval 1 hour"))
    return named(a.join(b, near), "join").select(a["k"], "t", "u")


def _told(query: Any) -> list[tuple[Any, ...]]:
    """Of the batches with rows: the watermark, and how many rows each operator left out as late."""
    with_rows = [p for p in query.recentProgress if p.numInputRows]
    return [(p.eventTime["watermark"], [s.numRowsDroppedByWatermark for s in p.stateOperators]) for p in with_rows]


@pytest.mark.parametrize("made", [_once_then_windows, pytest.param(_within_an_hour, marks=pytest.mark.soak)])
def test_the_progress_has_sparks_watermark_and_late_rows_also_behind_a_restore(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, made: Callable[[Any, Any], Any]
) -> None:
    inputs, theirs, found = (new_input("one", SCHEMA), new_input("two", SCHEMA)), list[Any](), list[Any]()
    parts = [[(0, 0), (50, 60), (10, 20)], [(90, 200), (5, 12), (100, 101)]]
    for number, part in enumerate(parts):
        for times in part:
            for minutes, one in zip(times, inputs, strict=True):
                one.add((BASE + timedelta(minutes=minutes), "a", 1))
        plain = made(*(i.spark_stream(spark) for i in inputs)).writeStream.format("noop")
        plain = plain.option("checkpointLocation", str(tmp_path / "plain")).trigger(availableNow=True).start()
        assert plain.awaitTermination(DEADLINE_S)
        theirs += _told(plain)
        streams = (i.stream(ckpt, uid=i.folder.name) for i in inputs)
        found += _told(job.run(made(*streams), checkpointLocation=str(tmp_path / str(number))))
    assert found == theirs
    late = {tuple(dropped) for _, dropped in theirs}
    assert late == ({(0, 0), (0, 2)} if made is _once_then_windows else {(0,), (2,)})


@pytest.mark.soak
def test_an_operator_goes_by_the_streams_that_reach_it_and_in_spark_by_all_of_the_query(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    """What another stream of the query says of time keeps no window open."""
    fast, slow = new_input("fast", SCHEMA), new_input("slow", SCHEMA)
    for number in range(5):
        fast.add((BASE + number * HOUR, "a", 1))
        slow.add((BASE + timedelta(minutes=number), "b", 1))

    def both(one: Any, two: Any) -> Any:
        windows = _windows(one.withWatermark("t", "5 minutes"), "k").select("k", "n")
        return windows.union(two.withWatermark("t", "5 minutes").select("k", F.col("v").cast("long")))

    theirs = _plain(both(*(i.spark_stream(spark) for i in (fast, slow))), tmp_path / "plain", "append")
    job.run(both(*(i.stream(ckpt, uid=i.folder.name) for i in (fast, slow))))
    assert theirs == [("b", 1)] * 5
    assert job.rows() == [("a", 1)] * 4 + [("b", 1)] * 5


@pytest.mark.soak
def test_an_idle_source_holds_back_no_window_and_what_comes_late_from_it_is_late(
    ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    busy, silent = new_input("busy", SCHEMA), new_input("silent", SCHEMA)
    busy.add((BASE, "a", 1), (BASE + 2 * HOUR, "a", 1))
    silent.add((BASE - HOUR, "s", 1))
    options = {"spark__ckpt__source__idleTimeout": "2s"}
    marked = [i.stream(ckpt, uid=i.folder.name).withWatermark("t", "1 minute") for i in (busy, silent)]
    query = job.start(_windows(marked[0].union(marked[1]), "k", length="1 hour"), now=False, **options)

    def out() -> list[Any]:
        query.checkpoint()
        return sorted((row[1], row[2]) for row in job.rows())

    wait_until(lambda: out() == [("a", 1), ("s", 1)], query)
    silent.add((BASE, "late", 1), (BASE + 2 * HOUR, "s", 1))
    query.processAllAvailable()
    busy.add((BASE + 4 * HOUR, "a", 1))
    wait_until(lambda: out() == [("a", 1), ("a", 1), ("s", 1), ("s", 1)], query)
    query.stop(drain=True)
    assert "late" not in {row[1] for row in job.rows()}


# --- the end of bounded input ---------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    "query", ["windows of windows by the window", "a window's best", "windows of sessions", "sessions", ""]
)
def test_at_the_end_of_bounded_input_open_windows_come_out_once_and_rows_for_them_are_late(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: str
) -> None:
    made, options = new_input("in", SCHEMA), {"spark__ckpt__endOfInput__closeWindows": "true"}
    made.add(*((BASE + timedelta(minutes=3 * n), "ab"[n % 2], n) for n in range(20)))

    asked = QUERIES.get(query, _of_all_rows)

    def run(location: str, partitions: str) -> list[Any]:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        df = asked(made.stream(ckpt).withWatermark("t", "5 minutes"))
        job.run(df, checkpointLocation=str(tmp_path / location), **options)
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        return ordered(map(_flat, job.rows()))

    expected = ordered(_flat(r) for r in asked(made.table(spark)).collect())
    assert run("here", "2") == expected
    assert run("here", "2") == expected, "a start without news"
    made.add((BASE + timedelta(minutes=40), "a", 1), (BASE + timedelta(minutes=57), "b", 1))
    assert run("elsewhere", "3") == expected, "rows for windows that came out are late"
    made.add((BASE + 24 * HOUR, "a", 1))
    later = run("elsewhere", "3")
    assert len(later) == len(expected) + (2 if query == "a window's best" else 1), "windows that the row is in"
    assert set(later) > set(expected)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["inner", "left"])
def test_at_the_end_of_bounded_input_windows_behind_a_join_come_out_if_no_row_waits_in_it(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, how: str
) -> None:
    made, options = new_input("in", SCHEMA), {"spark__ckpt__endOfInput__closeWindows": "true"}
    made.add(*((BASE + timedelta(minutes=3 * n), "ab"[n % 2], n) for n in range(12)))

    def asked(df: Any) -> Any:
        others = df.where("k = 'a'").select(F.col("v").alias("of"), F.col("t").alias("at"))
        near = F.expr("v = of AND at >= t AND at <= t + interval 4 minutes")
        both = named(df.join(others, near, how), "join")
        counted = [F.count("*").alias("n"), F.count("of").alias("m")]
        return named(both.groupBy(F.window("t", "10 minutes")).agg(*counted), "windows")

    def ours() -> list[Any]:
        job.run(asked(made.stream(ckpt).withWatermark("t", "5 minutes")), **options)
        return ordered(map(_flat, job.rows()))

    first, expected = ours(), ordered(map(_flat, asked(made.table(spark)).collect()))
    assert (first == expected) == (how == "inner")
    assert set(first) < set(expected) or how == "inner"
    made.add((BASE + 24 * HOUR, "a", 100))
    later = ordered(map(_flat, asked(made.table(spark)).collect()))
    assert ours() == [row for row in later if row in expected or how == "inner"], (
        "what waited for a match is in its window, and in none before"
    )


@pytest.mark.soak
def test_the_current_time_is_the_same_in_all_rows_of_a_batch(ckpt: Any, job: Job, new_input: NewInput) -> None:
    made = new_input("in", SCHEMA)
    for _ in range(2):
        made.add(*((BASE, str(n), n) for n in range(50)))
    timed = made.stream(ckpt).withColumn("now", F.current_timestamp()).repartition(2)
    job.run(
        timed.groupBy("t").agg(F.min("now"), F.max("now"), F.approx_count_distinct("now").alias("n")).uid("times"), "t"
    )
    ((_, least, most, number),) = job.rows()
    assert least < most
    assert number == 2, "one for each of two batches"
