"""Any Python streaming data source runs below the barriers, and hears of an offset only when a checkpoint covers it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

from spark_ckpt import agg
from spark_ckpt.errors import ConfigError
from tests.spark.conftest import Job, wait_until

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Tap:
    """A source's outside world: how many rows there are, and which offsets the source was told to forget."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def open_to(self, n: int) -> None:
        (self.folder / "n.tmp").write_text(str(n))
        (self.folder / "n.tmp").rename(self.folder / "n")

    @property
    def n(self) -> int:
        return int((self.folder / "n").read_text())

    def forget(self, offset: dict[str, Any]) -> None:
        with (self.folder / "forgotten").open("a") as file:
            file.write(json.dumps(offset) + "\n")

    @property
    def forgotten(self) -> list[int]:
        file = self.folder / "forgotten"
        return [json.loads(line)["n"] for line in file.read_text().splitlines()] if file.exists() else []


class Piece(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class TapReader(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self.tap = Tap(folder)

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return {"n": self.tap.n}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [Piece(start["n"], middle), Piece(middle, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Piece)
        return iter([("even" if i % 2 == 0 else "odd", i) for i in range(partition.start, partition.end)])

    def commit(self, end: dict[str, Any]) -> None:
        self.tap.forget(end)


class SimpleTapReader(SimpleDataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self.tap = Tap(folder)

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        end = {"n": self.tap.n}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        return iter([("even" if i % 2 == 0 else "odd", i) for i in range(start["n"], end["n"])])

    def commit(self, end: dict[str, Any]) -> None:
        self.tap.forget(end)


class TapSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tap"

    def schema(self) -> str:
        return "k string, v long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return TapReader(self.options["folder"])


class SimpleTapSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "simple-tap"

    def schema(self) -> str:
        return "k string, v long"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return SimpleTapReader(self.options["folder"])


@pytest.mark.parametrize("source", [TapSource, pytest.param(SimpleTapSource, marks=pytest.mark.soak)])
def test_offsets_are_committed_upstream_only_when_a_checkpoint_covers_them(
    ckpt: Any, job: Job, tmp_path: Path, source: type[DataSource]
) -> None:
    tap = Tap(str(tmp_path))
    tap.open_to(4)

    def totals() -> Any:
        stream = ckpt.readStream.format(source).option("folder", str(tmp_path)).load()
        return stream.groupBy("k").aggregate(n=agg.count(), s=agg.sum("v")).uid("totals")

    query = job.start(totals(), keys="k", now=False, triggerPollInterval="10ms")

    def read_to(n: int) -> None:
        tap.open_to(n)
        wait_until(lambda: any(_inner(progress)["n"] == n for progress in query.recentProgress), query)

    for n in (4, 6, 9):
        read_to(n)
    assert tap.forgotten == [], "three batches are read and committed by Spark, and no checkpoint covers them"
    taken = query.checkpoint()
    covered = next(iter(query.job.show(taken).sources.values()))["inner"]["n"]
    assert covered == 9
    read_to(11)
    read_to(12)
    wait_until(lambda: tap.forgotten, query)
    query.stop()
    assert tap.forgotten == [9], "what came behind the checkpoint may have to be read again"

    tap.open_to(20)
    job.run(totals(), keys="k")
    assert job.rows() == [("even", 10, 90), ("odd", 10, 100)]
    assert set(tap.forgotten) <= {9, 20}


def _inner(progress: Any) -> dict[str, Any]:
    (source,) = progress["sources"]
    end = source["endOffset"]
    found: dict[str, Any] = (json.loads(end) if isinstance(end, str) else end)["inner"]
    return found


def test_a_class_that_is_no_streaming_source_is_refused_when_it_is_named(ckpt: Any) -> None:
    with pytest.raises(ConfigError, match="DataSource"):
        ckpt.readStream.format(dict).load()
    with pytest.raises(ConfigError, match=r"unknown source 'pulsar'.*delta, files, .*format\('pulsar'\)\.load\(\)"):
        ckpt.readStream.format("pulsar").load()
