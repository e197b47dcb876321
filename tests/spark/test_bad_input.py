"""What is wrong is refused with what was expected, what was found and what to do; and nothing is lost by it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import (
    ConfigError,
    ControlColumnsError,
    CorruptStorageError,
    InvalidInputError,
    StorageNotWritableError,
    TopologyError,
)
from tests.spark.conftest import DEADLINE_S, Input, Job

NewInput = Callable[[str, str], Input]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long")
    found.add(("a", 1), ("b", 2))
    return found


def _totals(df: Any, uid: str | None = "totals", **more: Any) -> Any:
    made = df.groupBy("k").aggregate(n=agg.count(), s=agg.sum("v"), **more)
    return made if uid is None else made.uid(uid)


# --- configuration --------------------------------------------------------------------------------------------------


def test_unknown_and_malformed_settings_are_refused_at_start(
    spark: SparkSession, ckpt: Any, data: Input, job: Job, tmp_path: Path
) -> None:
    for key, value, said in [
        ("spark.ckpt.intervall", "1s", r"spark\.ckpt\.intervall.*interval"),
        ("spark.ckpt.mode", "exactly-once", r"spark\.ckpt\.mode: expected .*exactly_once.*at_least_once.*found"),
        ("spark.ckpt.timeout", "soon", r"spark\.ckpt\.timeout: expected a duration.*found 'soon'"),
    ]:
        spark.conf.set(key, value)
        try:
            with pytest.raises(ConfigError, match=said):
                spark_ckpt.enable(spark)
        finally:
            spark.conf.unset(key)
    spark.conf.set("spark.ckpt.mode", "exactly_once")
    stream = data.stream(ckpt)
    for option, value, said in [
        ("spark.ckpt.retain", "0", r"spark\.ckpt\.retain: expected .*found '0'"),
        ("spark.ckpt.maxparalelism", "4", "maxParallelism"),
        ("colour", "red", "colour"),
        ("hooks", "no_such_module:Hooks", "no_such_module:Hooks"),
    ]:
        with pytest.raises(ConfigError, match=said):
            job.start(stream, **{option: value})
    with pytest.raises(ConfigError, match=r"queryName.*spark\.ckpt\.job"):
        stream.writeStream.format("memory").option("path", job.sink).start()
    with pytest.raises(ConfigError, match="paralelism"):
        data.stream(ckpt, paralelism=3)
    assert not list((tmp_path / "jobs").glob("*/generations")), "nothing was started"


# --- the query ------------------------------------------------------------------------------------------------------


def test_operators_need_uids_of_their_own(ckpt: Any, data: Input, job: Job) -> None:
    stream = data.stream(ckpt)
    with pytest.raises(TopologyError, match=r'aggregate: .* needs a uid.*call uid\("..."\) behind it'):
        job.start(_totals(stream, uid=None), requireUid="true")
    with pytest.raises(InvalidInputError, match=r"uid\('totals'\): expected a DataFrame that ends with an operator"):
        stream.uid("totals")
    with pytest.raises(TopologyError, match="'' is empty"):
        _totals(stream, uid="")
    with pytest.raises(TopologyError, match=r"'../x' has the character /.*'-x' would work"):
        _totals(stream, uid="../x")
    with pytest.raises(TopologyError, match="two keyed operators have the uid 'totals'"):
        job.start(_totals(_totals(stream).withColumnRenamed("s", "v")))
    with pytest.raises(TopologyError, match=r"both sides of the union.*\['totals'\]"):
        job.start(_totals(stream).union(_totals(stream)))
    both = data.stream(ckpt, uid="in").union(data.stream(ckpt, uid="in"))
    with pytest.raises(TopologyError, match="two sources have the same uid"):
        job.start(both)
    with pytest.raises(TopologyError, match="of a source and of an operator"):
        job.start(_totals(data.stream(ckpt, uid="totals")))


def test_the_columns_of_barriers_are_out_of_reach_and_their_names_refused(ckpt: Any, data: Input) -> None:
    stream = data.stream(ckpt)
    with pytest.raises(AnalysisException, match="`__ckpt_tag` cannot be resolved"):
        stream.select("k", "__ckpt_tag")
    for named_so in (
        stream.withColumn("__ckpt_tag", F.lit(0)),
        stream.withColumnRenamed("k", "__CKPT_ctl"),
        stream.withColumn("__ckpt_ctl", F.lit(0)).groupBy("__ckpt_ctl").agg(F.count("*")).select("count(1)"),
        stream.mapInArrow(lambda batches: batches, "__ckpt_ctl string, v long"),
    ):
        with pytest.raises(ControlColumnsError, match=r"has column\(s\) \['__.*are reserved for the barriers.*rename"):
            ckpt.check(named_so, "update")


def test_what_a_stream_cannot_do_is_refused_before_a_start(ckpt: Any, data: Input) -> None:
    stream = data.stream(ckpt)
    with pytest.raises(InvalidInputError, match="Complete output mode not supported when there are no"):
        stream.writeStream.outputMode("complete")
    for refused, said in (
        (stream.crossJoin(stream), "Stream-stream join without equality predicate is not"),
        (stream.offset(5), r"Offset .*: a stream has no end that rows could be counted from.*row_number.*Offset 5"),
        (
            stream.intersect(stream),
            r"not supported without a watermark.*Call withWatermark on both.*INTERSECT is a LeftSemi",
        ),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ckpt.check(refused)


# --- the place ------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_or_is_anothers_is_refused(
    spark: SparkSession, ckpt: Any, data: Input, job: Job, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageNotWritableError, match=r"Cannot write .*file.*spark\.ckpt\.dir"):
        job.start(data.stream(ckpt), dir=str(tmp_path / "file"))
    store = spark_ckpt.job(str(tmp_path / "jobs"), "job").records.store
    store.check_writable("somebody-else")
    with pytest.raises(StorageNotWritableError, match=r"to another job: expected job 'job', found 'somebody-else'"):
        job.start(data.stream(ckpt))


# --- changes on the same Spark location -----------------------------------------------------------------------------


def test_a_changed_query_that_does_not_fit_is_refused_and_the_old_one_goes_on(ckpt: Any, data: Input, job: Job) -> None:
    job.run(_totals(data.stream(ckpt)), keys="k")
    stream = data.stream(ckpt)
    changes: list[tuple[Any, dict[str, str], str]] = [
        (_totals(stream, one=agg.first("v")), {}, r"'totals': first\(v, .*\) cannot begin in keys .*ignore nulls"),
        (
            _totals(stream.selectExpr("length(k) as k", "v")),
            {},
            r"'totals': the key schema changed: expected k string, found k int32 .*begin_empty.*, or change it back",
        ),
        (
            _totals(stream, uid="sums"),
            {},
            r"holds state of \['totals'\]: expected these uids .*, found \['sums'",
        ),
        (_totals(stream), {"maxParallelism": "8"}, r"maxParallelism changed: expected 4 .*, found 8"),
    ]
    for i, (df, options, said) in enumerate(changes):
        with pytest.raises(TopologyError, match=said):
            # A sink of its own: the changed query may write other columns.
            job.start(df, path=f"{job.sink}-{i}", **options)
    data.add(("a", 10), ("c", 3))
    query = job.run(_totals(data.stream(ckpt)), keys="k")
    assert job.rows() == [("a", 2, 11), ("b", 1, 2), ("c", 1, 3)]
    assert query.job.verify() == []


# --- damage ---------------------------------------------------------------------------------------------------------


class Damage:
    """Flips a byte of a file, the middle one if not told; puts it back on exit."""

    def __init__(self, file: Path, at: int | None = None) -> None:
        self.file, self.good = file, file.read_bytes()
        self.at = len(self.good) // 2 if at is None else at

    def __enter__(self) -> None:
        bad = bytearray(self.good)
        bad[self.at] ^= 0xFF
        self.file.write_bytes(bytes(bad))

    def __exit__(self, *_: Any) -> None:
        self.file.write_bytes(self.good)


def test_damaged_records_manifests_and_state_are_named_and_good_copies_go_on(
    ckpt: Any, data: Input, job: Job, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "jobs" / "job", {"checkpointLocation": str(tmp_path / "elsewhere")}
    done = job.run(_totals(data.stream(ckpt)), keys="k")
    (checkpoint,) = [row["id"] for row in done.checkpoints()]
    shutil.rmtree(folder / "spark")
    data.add(("a", 10), ("c", 3))

    (copy,) = (folder / "copies").glob(f"{checkpoint:010d}-*.json")
    said = f"record checkpoints/{checkpoint},.*damaged or missing; put back .*none"
    record = folder / f"checkpoints/{checkpoint:010d}.json"
    with Damage(record), Damage(copy), pytest.raises(CorruptStorageError, match=said):
        job.start(_totals(data.stream(ckpt)), keys="k", **elsewhere)
    said = "job.json is damaged: expected .*found"
    with Damage(folder / "job.json"), pytest.raises(CorruptStorageError, match=said):
        job.start(_totals(data.stream(ckpt)), keys="k", **elsewhere)

    def fails(match: str) -> None:
        # Not from the cache, which has a good copy.
        query = job.start(_totals(data.stream(ckpt)), "k", cache__dir=str(tmp_path / "cold"), **elsewhere)
        with pytest.raises(Exception, match=match):
            query.awaitTermination(DEADLINE_S)

    (manifest,) = (folder / "manifests" / "totals").glob("*.json")
    with Damage(manifest):
        with pytest.raises(CorruptStorageError, match=r"checkpoint 1 cannot be restored: .*manifests.*verify"):
            job.start(_totals(data.stream(ckpt)), keys="k", **elsewhere)
        assert any(manifest.name in problem for problem in done.job.verify())
    for state in (folder / "state" / "totals").glob("*.parquet"):
        # Not all of a small file's footer matters: a statistic nobody looks at may change.
        keys = pq.ParquetFile(state).metadata.row_group(0).column(0)
        with Damage(state, keys.data_page_offset + keys.total_compressed_size - 1):
            fails(f"(?s)CorruptStorageError.*{state.name}.*expected .*found.*restore another checkpoint")
    assert job.rows() == [("a", 1, 1), ("b", 1, 2)]

    job.run(_totals(data.stream(ckpt)), keys="k", **elsewhere)
    assert job.rows() == [("a", 2, 11), ("b", 1, 2), ("c", 1, 3)]
