"""The checkpoint of a plain Spark query, imported: the query goes on here as plain Spark itself goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, named, ordered, rows_of_spark
from tests.spark_checkpoints.kept import VERSIONS, as_texts, expected, unpack
from tests.spark_checkpoints.make import CASES, CHANGELOG
from tests.spark_checkpoints.plain_queries import BEFORE, BEHIND, SCHEMA, rows

NewInput = Callable[[str, str], Input]
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
IN_SHORT = [
    (VERSIONS[0], "kinds-hdfs"),
    (VERSIONS[-1], "collected-snapshots"),
    (VERSIONS[-1], "processor-changelog"),
]
"""Of all pairs of a version and a case, those that every run tries."""
LIVE_IN_SHORT = ("joins-hdfs",)
"""Of what this version of Spark keeps: with Spark's own runs in front and behind, they take three times as long."""


@pytest.fixture
def source(new_input: NewInput) -> Input:
    made = new_input("input", SCHEMA)
    for at in BEFORE:
        made.add(*rows(at))
    return made


@pytest.fixture
def only_with_rows(spark: SparkSession) -> Iterator[None]:
    """Where the processing time goes on, Spark makes batches without rows for ever, also with ``availableNow``."""
    spark.conf.set(NO_DATA, "false")
    yield
    spark.conf.unset(NO_DATA)


class Seen:
    """How many rows came, until none comes for an hour."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Any:
        (n,) = state.get if state.exists else (0,)
        n += sum(len(frame) for frame in frames)
        state.update((n,))
        state.setTimeoutDuration(3_600_000)
        yield pd.DataFrame({"k": [key[0]], "value": [str(n)]})


def goes_on_alike(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, query: Any, mode: str, keys: str | None
) -> None:
    location = tmp_path / "plain"
    rows_of_spark(query(source.spark_stream(spark)), location, mode)
    df = query(source.stream(ckpt))
    made = ckpt.import_spark(str(location), df, str(tmp_path / "imported"), outputMode=mode)
    assert made.verify() == []
    for at in BEHIND:
        source.add(*rows(at))
    behind = rows_of_spark(query(source.spark_stream(spark)), location, mode)
    job.run(df, keys, mode=mode, **{"spark.ckpt.restore": made.path})
    found = {r if keys is None else r[0]: r for r in map(tuple, behind)}
    assert job.rows() == ordered(found.values() if keys else map(tuple, behind))


def set_all(spark: SparkSession, conf: dict[str, str]) -> None:
    for key, value in conf.items():
        spark.conf.set(key, value)


@pytest.mark.parametrize(
    ("version", "case"),
    [
        pytest.param(v, c, marks=[] if (v, c) in IN_SHORT else pytest.mark.soak)
        for v in VERSIONS for c in CASES
    ],
)  # fmt: skip
def test_a_checkpoint_of_each_version_of_spark_goes_on_as_that_version_itself(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, version: str, case: str
) -> None:
    query, mode, keys, _ = CASES[case]
    location, df = unpack(version, case, tmp_path / "kept", source.folder), query(source.stream(ckpt))
    made = ckpt.import_spark(str(location), df, str(tmp_path / "imported"), outputMode=mode)
    assert made.verify() == []
    for at in BEHIND:
        source.add(*rows(at))
    job.run(df, keys, mode=mode, **{"spark.ckpt.restore": made.path})
    assert as_texts(job.rows()) == expected(version, case)


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in LIVE_IN_SHORT else pytest.mark.soak) for c in CASES])
def test_a_query_goes_on_from_what_plain_spark_keeps_of_it_as_plain_spark_itself(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, case: str
) -> None:
    query, mode, keys, conf = CASES[case]
    set_all(spark, conf)
    goes_on_alike(spark, ckpt, source, job, tmp_path, query, mode, keys)


class Lately(StatefulProcessor):
    """A variable of each kind, each of which is forgotten after an hour."""

    def init(self, handle: Any) -> None:
        hour = 3_600_000
        self.total = handle.getValueState("total", "n long", hour)
        self.seen = handle.getListState("seen", "v long", hour)
        self.parity = handle.getMapState("parity", "odd boolean", "n long", hour)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for frame in rows:
            for value in frame["v"].dropna():
                v, odd = int(value), (int(value) % 2 == 1,)
                self.total.update(((self.total.get()[0] if self.total.exists() else 0) + v,))
                self.seen.appendValue((v,))
                self.parity.updateValue(
                    odd, ((self.parity.getValue(odd)[0] if self.parity.containsKey(odd) else 0) + 1,)
                )
        entries = sorted((k[0], v[0]) for k, v in self.parity.iterator())
        total = self.total.get()[0] if self.total.exists() else None
        yield pd.DataFrame({"k": [key[0]], "value": [f"{total} {[s[0] for s in self.seen.get()]} {entries}"]})


def lately(df: Any) -> Any:
    made = df.groupBy("k").transformWithStateInPandas(Lately(), "k string, value string", "append", "ProcessingTime")
    seen = df.groupBy("k").applyInPandasWithState(
        Seen(), "k string, value string", "n long", "append", "ProcessingTimeTimeout"
    )
    return named(made, "lately").unionByName(named(seen, "seen"))


@pytest.mark.soak
def test_variables_that_are_forgotten_and_time_outs_of_the_processing_time_go_on_from_those_of_plain_spark(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, only_with_rows: None
) -> None:
    set_all(spark, CHANGELOG)
    goes_on_alike(spark, ckpt, source, job, tmp_path, lately, "append", None)


def test_what_is_not_the_query_that_wrote_the_checkpoint_is_refused_by_name(
    spark: SparkSession, ckpt: Any, source: Input, tmp_path: Path
) -> None:
    def counted(df: Any, *keys: str) -> Any:
        middle = F.percentile_approx("v", 0.5).alias("middle")
        return named(df.groupBy(*keys).agg(F.count("*").alias("n"), middle), "totals")

    location = tmp_path / "plain"
    rows_of_spark(counted(source.spark_stream(spark), "k"), location, "update")
    df = source.stream(ckpt)
    path = str(tmp_path / "made")
    for query, told in (
        (counted(df, "k"), "what Spark keeps of percentile.*not understood here"),
        (
            named(df.groupBy("k").agg(F.count("*"), F.collect_list(F.struct("v", "d"))), "totals"),
            "what Spark keeps of collect_list.* of struct.*not understood here",
        ),
        (named(df.groupBy("k").agg(F.sum("d")), "totals"), r"expected Spark's buffers sum for sum\(d\), found count"),
        (named(df.groupBy("d").agg(F.count("*")), "totals"), "expected keys d double in Spark's checkpoint"),
        (named(df.dropDuplicates(["k"]), "seen"), "expected the same kind"),
        (df, "expected the state of 0 operators"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            ckpt.import_spark(str(location), query, path)
    with pytest.raises(InvalidInputError, match="with a committed batch"):
        ckpt.import_spark(str(tmp_path / "nowhere"), df, path)
    assert not Path(path).exists()
