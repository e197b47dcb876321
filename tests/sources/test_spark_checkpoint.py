"""What is read of the checkpoint of a plain Spark query, and where our sources go on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructField, StructType

from spark_ckpt.api._spark_import import _delta_offset, _in_spark
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.spark_checkpoint import SparkCheckpoint
from spark_ckpt.sources.base import open_source
from spark_ckpt.storage.filesystem import Folder


def log(folder: Path, name: str, *lines: Any, version: str = "v1") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([version, *(line if isinstance(line, str) else json.dumps(line) for line in lines)]))


def checkpoint(folder: Path) -> SparkCheckpoint:
    return SparkCheckpoint(str(folder), Folder(str(folder)))


def seen(path: str, batch: int) -> dict[str, Any]:
    return {"path": path, "timestamp": 1, "batchId": batch}


def test_the_newest_committed_batch_tells_offsets_and_watermarks_and_a_planned_one_is_known(tmp_path: Path) -> None:
    for batch in (8, 9, 10):
        log(tmp_path, f"offsets/{batch}", {"batchWatermarkMs": 1000 * batch}, {"logOffset": batch}, "-")
    log(tmp_path, "commits/9", {"nextBatchWatermarkMs": 12_000})
    found = checkpoint(tmp_path)
    assert (found.batch, found.offsets, found.planned) == (9, {"0": {"logOffset": 9}, "1": None}, True)
    assert (found.late_ms, found.watermark_ms) == (9000, 12_000)


def test_the_files_of_a_source_are_those_of_its_log_up_to_the_offset_compacted_or_not(tmp_path: Path) -> None:
    log(tmp_path, "offsets/1", {}, {"logOffset": 11})
    log(tmp_path, "commits/1", {})
    log(tmp_path, "sources/0/9.compact", *(seen(f"file:///in/{n}%20.json", n) for n in range(10)))
    for n in (8, 10, 11, 12):
        log(tmp_path, f"sources/0/{n}", seen(f"file:///in/{n}%20.json", n))
    assert checkpoint(tmp_path).files_of("0", 11) == [f"file:///in/{n}%20.json" for n in range(12)]
    assert checkpoint(tmp_path).files_of("0", 8) == ["file:///in/8%20.json"]


def test_a_location_of_ours_another_format_and_damage_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="with a committed batch"):
        checkpoint(tmp_path)
    log(tmp_path, "commits/0", {})
    with pytest.raises(CorruptStorageError, match="offsets/0 is missing"):
        checkpoint(tmp_path)
    for lines, version, told in (
        (({}, {"origin": 3, "inner": {}}), "v1", "is checkpointed here"),
        (({}, {}), "v3", "expected format v1 or v2"),
        (({}, '0:{"origin": 3}'), "v2", "is checkpointed here"),
    ):
        log(tmp_path, "offsets/0", *lines, version=version)
        with pytest.raises(InvalidInputError, match=told):
            checkpoint(tmp_path)
    log(tmp_path, "offsets/0", "{")
    with pytest.raises(CorruptStorageError, match="expected JSON"):
        checkpoint(tmp_path)


def test_version_2_of_the_log_of_offsets_tells_sources_by_place_or_by_name(tmp_path: Path) -> None:
    log(tmp_path, "commits/0", {})
    for lines, found in (
        (('10:{"a": 1}', "9:-", '2:{"b": 2}'), [("2", {"b": 2}), ("9", None), ("10", {"a": 1})]),
        (('pays:{"url": "s3://x"}', 'orders:{"o": 2}'), [("orders", {"o": 2}), ("pays", {"url": "s3://x"})]),
    ):
        log(tmp_path, "offsets/0", {"batchWatermarkMs": 7}, *lines, version="v2")
        assert list(checkpoint(tmp_path).offsets.items()) == found
        assert checkpoint(tmp_path).late_ms == 7


def test_sources_with_names_are_found_by_their_uids_and_others_by_their_place() -> None:
    orders, pays = {"logOffset": 1}, {"logOffset": 2}
    assert _in_spark({"0": pays, "1": orders}, ["pays", "orders"]) == {"pays": "0", "orders": "1"}
    assert _in_spark({"orders": orders, "pays": pays}, ["pays", "orders"]) == {"pays": "pays", "orders": "orders"}
    with pytest.raises(InvalidInputError, match=r"found those of the names orders, pays: .*readStream\.name"):
        _in_spark({"orders": orders, "pays": pays}, ["files-1", "pays"])
    assert _in_spark({"0": orders, "1": orders}, ["orders"]) == {"orders": "0"}
    with pytest.raises(InvalidInputError, match="expected offsets of 1 sources, orders; found 2"):
        _in_spark({"0": orders, "1": pays}, ["orders"])


def test_files_that_spark_has_read_are_not_read_again_and_all_others_are(tmp_path: Path) -> None:
    folder = tmp_path / "in put"
    folder.mkdir()
    for name in ("a.json", "b 1.json", "c.json"):
        (folder / name).write_text('{"v": 1}\n')
    schema, options = StructType([StructField("v", LongType())]), {"path": str(folder), "fileFormat": "json"}

    def reader(meta: str) -> Any:
        return open_source("files", options, schema, f"{tmp_path}/{meta}", {}).reader(schema)

    read = [f"file://{folder}/b%201.json".replace(" ", "%20"), f"file://{folder}/gone.json".replace(" ", "%20")]
    at = reader("meta").behind_files(read)
    behind = reader("meta")
    behind.prepare_available_now()
    end = behind.latest(at, True)
    files = [split.entry.path for split in behind.splits(at, end)]
    assert [Path(f).name for f in files] == ["a.json", "c.json"]
    rate = open_source("rate-micro-batch", {"rowsPerBatch": "1"}, None, f"{tmp_path}/other", {})
    with pytest.raises(InvalidInputError, match="reads no files"):
        rate.reader(rate.schema()).behind_files(read)


def test_a_position_that_options_name_is_an_offset_that_needs_none_of_them(tmp_path: Path) -> None:
    for value in range(3):
        write_deltalake(tmp_path / "table", pa.table({"v": [value]}), mode="append")

    def reader(**options: str) -> Any:
        source = open_source("delta", {"path": str(tmp_path / "table"), **options}, None, f"{tmp_path}/meta", {})
        return source.reader(source.schema())

    def values(at: Any) -> list[int]:
        fresh = reader()
        end = fresh.latest(at, True)
        return sorted(v for split in fresh.splits(at, end) for b in fresh.read(split) for v in b["v"].to_pylist())

    assert values(reader(startingVersion="1").starting_from("none")) == [1, 2]
    assert values(reader().starting_from("none")) == [0, 1, 2]


def test_a_delta_offset_ahead_of_a_version_is_taken_and_one_in_the_middle_is_refused(tmp_path: Path) -> None:
    for value in range(3):
        write_deltalake(tmp_path / "table", pa.table({"v": [value]}), mode="append")
    table = str(DeltaTable(tmp_path / "table").metadata().id)
    base = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": 2, "index": -1, "isStartingVersion": False}
    source = open_source("delta", {"path": str(tmp_path / "table")}, None, f"{tmp_path}/meta", {})
    schema = source.schema()
    for version, left in ((2, [2]), (3, [])):
        reader = source.reader(schema)
        at = _delta_offset("orders", {**base, "reservoirVersion": version}, {})
        splits = reader.splits(at, reader.latest(at, True))
        assert [v for split in splits for b in reader.read(split) for v in b["v"].to_pylist()] == left
    for other in ({"index": 3}, {"isStartingVersion": True}, {"index": 0, "isStartingVersion": True}):
        with pytest.raises(InvalidInputError, match="in the middle of version 2"):
            _delta_offset("orders", {**base, **other}, {})
