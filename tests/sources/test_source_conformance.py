"""Every built-in source, and every kind of a user's, keeps the shipped suite; each check notices a broken source."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_ckpt.errors import CkptError
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget

SCHEMA = StructType([StructField("n", LongType()), StructField("s", StringType())])


# -- files -----------------------------------------------------------------------------------------------------------


class FilesTarget(SourceTarget):
    def __init__(self, tmp_path: Path, kind: str, **options: str) -> None:
        self.folder, self.kind, self.files = tmp_path / "in", kind, 0
        self.folder.mkdir()
        given = {"path": str(self.folder), "fileFormat": kind, "discoveryInterval": "0s", **options}
        super().__init__("files", given, str(tmp_path / "metadata"), SCHEMA)
        for _ in range(3):
            self.add()

    def add(self) -> bool:
        rows = [(n, f"text {n}") for n in range(self.files * 4, self.files * 4 + 4)]
        path = self.folder / f"{self.files:02d}.{self.kind}"
        if self.kind == "parquet":
            pq.write_table(
                pa.table([list(c) for c in zip(*rows, strict=True)], names=["n", "s"]), path, row_group_size=2
            )
        elif self.kind == "orc":
            orc.write_table(pa.table([list(c) for c in zip(*rows, strict=True)], names=["n", "s"]), path)
        elif self.kind == "json":
            path.write_text("".join(json.dumps({"n": n, "s": s}) + "\n" for n, s in rows))
        else:
            path.write_text("".join(f"{n},{s}\n" for n, s in rows))
        self.files += 1
        return True

    def expected(self) -> list[tuple[Any, ...]]:
        return [(n, f"text {n}") for n in range(self.files * 4)]


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
class TestFiles(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path, kind: str) -> SourceTarget:
        target = FilesTarget(tmp_path, kind, maxFilesPerTrigger="1")
        target.rows_a_batch = 4
        return target


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
class TestFilesCutWithinFiles(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path, kind: str) -> SourceTarget:
        target = FilesTarget(tmp_path, kind, maxRowsPerTrigger="3", maxSplitBytes="250")
        target.rows_a_batch = 3
        return target


# -- rate-micro-batch ------------------------------------------------------------------------------------------------


class RateTarget(SourceTarget):
    rows_a_batch = 4

    def expected(self) -> list[tuple[Any, ...]]:
        start = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))
        return [(start + timedelta(seconds=n // 4), n) for n in range(10)]


class TestRate(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return RateTarget(
            "rate-micro-batch", {"rowsPerBatch": "4", "numRows": "10", "numPartitions": "3"}, str(tmp_path)
        )


# -- a user's, of every flavour ------------------------------------------------------------------------------------


class Shelf(DataSource):
    """Numbers up to what the file ``upto`` says."""

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ShelfReader(Path(self.options["upto"]))


class ShelfReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, upto: Path) -> None:
        self.upto = upto
        self.pinned: int | None = None

    def there(self) -> int:
        return self.pinned if self.pinned is not None else int(self.upto.read_text())

    def prepareForTriggerAvailableNow(self) -> None:
        self.pinned = self.there()

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(4)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return {"n": self.there()}
        return {"n": min(self.there(), start["n"] + limit.max_rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [InputPartition((start["n"], middle)), InputPartition((middle, end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from ((n, f"text {n}") for n in range(*partition.value))


class ShelfInArrow(Shelf):
    """Record batches, and no available now of its own."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        class Reader(DataSourceStreamReader):
            def __init__(self, inner: ShelfReader) -> None:
                self.initialOffset, self.latestOffset = inner.initialOffset, inner.latestOffset
                self.partitions, self.rows = inner.partitions, inner.read
                self.getDefaultReadLimit = inner.getDefaultReadLimit

            def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
                rows = list(self.rows(partition))
                if rows:
                    yield pa.RecordBatch.from_arrays([[n for n, _ in rows], [s for _, s in rows]], names=["n", "s"])

        return Reader(ShelfReader(Path(self.options["upto"])))


class SimpleShelf(Shelf):
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return SimpleShelfReader(Path(self.options["upto"]))

    streamReader = DataSource.streamReader


class SimpleShelfReader(SimpleDataSourceStreamReader):
    def __init__(self, upto: Path) -> None:
        self.upto = upto

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        end = {"n": int(self.upto.read_text())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        return iter([(n, f"text {n}") for n in range(start["n"], end["n"])])


class ShelfTarget(SourceTarget):
    def __init__(self, tmp_path: Path, source: type[DataSource]) -> None:
        self.upto = tmp_path / "upto"
        self.upto.write_text("10")
        super().__init__(source, {"upto": str(self.upto)}, str(tmp_path))

    def add(self) -> bool:
        self.upto.write_text(str(int(self.upto.read_text()) + 5))
        return True

    def expected(self) -> list[tuple[Any, ...]]:
        return [(n, f"text {n}") for n in range(int(self.upto.read_text()))]


class TestUsersStreamReader(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        target = ShelfTarget(tmp_path, Shelf)
        target.rows_a_batch = 4
        return target


class TestUsersArrowReader(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return ShelfTarget(tmp_path, ShelfInArrow)


class TestUsersSimpleReader(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return ShelfTarget(tmp_path, SimpleShelf)


# -- the suite notices -------------------------------------------------------------------------------------------------


def _broken(**changes: Any) -> type[DataSource]:
    """A shelf whose reader differs in some methods."""
    reader = type("BrokenReader", (ShelfReader,), changes)

    class Broken(Shelf):
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return reader(Path(self.options["upto"]))

    return Broken


def _starts_at_the_end(self: Any) -> Any:
    return {"n": self.there() - 8}


def _offset_of_objects(self: Any, start: Any, limit: Any) -> Any:
    return {"n": {1, 2}}


def _comes_back(self: Any, start: Any, limit: Any) -> Any:
    return {"n": (start["n"] + 4) % 12}


def _never_rests(self: Any, start: Any, limit: Any) -> Any:
    return {"n": max(start["n"], min(self.there(), start["n"] + 4)), "look": start.get("look", 0) + 1}


def _overlapping(self: Any, start: Any, end: Any) -> Any:
    return [InputPartition((start["n"], end["n"])), InputPartition((end["n"] - 1, end["n"]))]


def _gap(self: Any, start: Any, end: Any) -> Any:
    return [InputPartition((start["n"] + (1 if start["n"] else 0), end["n"]))]


def _loses_behind_the_second(self: Any, start: Any, end: Any) -> Any:
    return [InputPartition((start["n"] + (1 if start["n"] == 8 else 0), end["n"]))]


def _to_the_end_of_now(self: Any, start: Any, end: Any) -> Any:
    return [InputPartition((start["n"], self.there()))]


def _tells_all(self: Any, start: Any, limit: Any) -> Any:
    end = min(self.there(), start["n"] + 4)
    return start if end == start["n"] else {"n": end, "read": [f"the text of row {n}" for n in range(end * 20)]}


def _first_of_a_range_twice(self: Any, start: Any, end: Any) -> Any:
    return [InputPartition((start["n"], end["n"])), InputPartition((0, 1 if end["n"] - start["n"] > 4 else 0))]


def _shuffled(self: Any, partition: InputPartition) -> Any:
    rows = [(n, f"text {n} {random.random()}") for n in range(*partition.value)]
    return iter(rows)


def _up_to_now(self: Any, partition: InputPartition) -> Any:
    upto = int(self.upto.read_text())
    return iter([(n, f"text {n} of {upto}") for n in range(*partition.value)])


def _needs_latest(self: Any, start: Any, end: Any) -> Any:
    assert self.planned, "asked for partitions before latestOffset"
    return ShelfReader.partitions(self, start, end)


def _plans(self: Any, start: Any, limit: Any) -> Any:
    self.planned = True
    return ShelfReader.latestOffset(self, start, limit)


def _remembers(self: Any, start: Any, limit: Any) -> Any:
    self.at = max(start["n"], getattr(self, "at", 0))
    return {"n": start["n"] if start["n"] < self.at else min(self.there(), start["n"] + 4)}


def _unlimited(self: Any, start: Any, limit: Any) -> Any:
    return {"n": self.there()}


def _limited(self: Any, start: Any, limit: Any) -> Any:
    return {"n": min(self.there(), start["n"] + 4)}


def _looks_once(self: Any, start: Any, limit: Any) -> Any:
    self.seen = getattr(self, "seen", None) or self.there()
    return {"n": max(start["n"], min(self.seen, start["n"] + 4))}


def _not_pinned(self: Any) -> None:
    return None


def _finished_early(self: Any, offset: Any) -> bool:
    return offset["n"] >= 8


def _finished_for_now(self: Any, offset: Any) -> bool:
    return offset["n"] >= 10


def _commit_once(self: Any, end: Any) -> None:
    assert end["n"] > getattr(self, "committed", 0), "committed again"
    self.committed = end["n"]


def _stop_once(self: Any) -> None:
    assert not getattr(self, "stopped", False), "stopped again"
    self.stopped = True


_PLANS_FIRST = {"planned": False, "partitions": _needs_latest, "latestOffset": _plans}
_BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("the_initial_offset_is_the_same_for_every_reader", {"initialOffset": _starts_at_the_end}),
    ("offsets_survive_json", {"latestOffset": _offset_of_objects}),
    ("offsets_survive_json", {"latestOffset": _comes_back}),
    ("offsets_stay_small", {"latestOffset": _tells_all}),
    ("where_nothing_is_new_the_offset_stays", {"latestOffset": _never_rests}),
    ("all_batches_together_hold_every_row_once", {"partitions": _overlapping}),
    ("all_batches_together_hold_every_row_once", {"partitions": _gap}),
    ("one_range_holds_what_its_parts_hold", {"partitions": _first_of_a_range_twice}),
    ("a_range_read_again_gives_identical_rows", {"read": _shuffled}),
    ("a_replay_after_more_has_arrived_gives_identical_rows", {"read": _up_to_now}),
    ("a_restarted_reader_replays_a_recorded_range", _PLANS_FIRST),
    ("a_reader_goes_on_from_any_recorded_offset", {"partitions": _gap}),
    ("a_reader_goes_on_from_any_recorded_offset", {"partitions": _loses_behind_the_second}),
    ("an_earlier_offset_can_be_gone_back_to", {"latestOffset": _remembers}),
    ("rows_that_come_later_are_found_behind_the_end", {"latestOffset": _looks_once}),
    ("rows_that_come_between_batches_are_neither_lost_nor_doubled", {"latestOffset": _looks_once}),
    ("rows_that_come_between_batches_are_neither_lost_nor_doubled", {"partitions": _to_the_end_of_now}),
    ("a_batch_holds_no_more_than_the_limit", {"latestOffset": _unlimited}),
    ("without_a_limit_everything_there_is_one_batch", {"latestOffset": _limited}),
    ("available_now_ends_where_it_was_asked_for", {"prepareForTriggerAvailableNow": _not_pinned}),
    ("finished_is_said_only_where_nothing_more_comes", {"finished": _finished_early}),
    ("finished_is_said_only_where_nothing_more_comes", {"finished": _finished_for_now}),
    ("committing_an_offset_again_or_an_older_one_changes_nothing", {"commit": _commit_once}),
    ("a_stopped_reader_may_be_stopped_again", {"stop": _stop_once}),
]


@pytest.mark.parametrize(("check", "changes"), _BROKEN)
def test_each_check_notices_a_source_that_is_broken_there(tmp_path: Path, check: str, changes: dict[str, Any]) -> None:
    target = ShelfTarget(tmp_path, _broken(**changes))
    target.rows_a_batch = 4
    with pytest.raises((AssertionError, CkptError)):
        getattr(SourceConformance(), f"test_{check}")(target)


def test_no_check_is_without_a_source_that_it_notices() -> None:
    checks = {name.removeprefix("test_") for name in vars(SourceConformance) if name.startswith("test_")}
    assert checks == {"what_is_behind_shrinks_to_nothing", *(check for check, _ in _BROKEN)}


@pytest.mark.parametrize("told", [[0, 0, 0], [2, 1, 1], [1, 2, 0], [2, None, 0]])
def test_a_source_that_tells_wrongly_what_is_behind_is_noticed(
    tmp_path: Path, told: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of users' own tell nothing, so it is one of ours that is broken."""
    target = FilesTarget(tmp_path, "csv", maxFilesPerTrigger="1")
    SourceConformance().test_what_is_behind_shrinks_to_nothing(target)
    answers = iter(told)
    monkeypatch.setattr(type(target.make()), "behind", lambda self, offset: next(answers))
    with pytest.raises(AssertionError):
        SourceConformance().test_what_is_behind_shrinks_to_nothing(target)
