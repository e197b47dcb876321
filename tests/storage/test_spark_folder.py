"""What a start reads of Spark's own folder, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError, FencedError
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.protocol.source_offset import SourceOffset

METADATA = json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": "2"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Batches 0 to 2 are planned, the last of them is not committed."""
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    for batch in range(3):
        offset = json.dumps(SourceOffset(7, {"rows": 100 * batch}, batch).to_json())
        (tmp_path / f"offsets/{batch}").write_text("\n".join(("v1", METADATA, '{"of": "another source"}', offset)))
    for batch in range(2):
        (tmp_path / f"commits/{batch}").write_text("v1\n{}")
    return tmp_path


def read(folder: Path) -> SparkFolder:
    return SparkFolder(str(folder), JobConfig.from_options({"dir": str(folder / "jobs")}))


def test_it_tells_batches_origin_and_partitions(folder: Path) -> None:
    location = read(folder).location()
    assert (location.planned, location.committed, location.origin) == (2, 1, 7)
    assert read(folder).partitions() == 2


def test_version_2_of_sparks_log_of_offsets_tells_the_same(folder: Path) -> None:
    for batch in range(3):
        offset = json.dumps(SourceOffset(7, {"rows": 100 * batch}, batch).to_json())
        lines = ("v2", METADATA, f"1:{offset}", '0:{"of": "another source"}')
        (folder / f"offsets/{batch}").write_text("\n".join(lines))
    test_it_tells_batches_origin_and_partitions(folder)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_damaged_offset_that_spark_goes_on_from_ends_the_start(folder: Path, batch: int) -> None:
    file = folder / f"offsets/{batch}"
    file.write_text(file.read_text().replace(f'"rows": {batch}00', f'"rows": {batch}01'))
    with pytest.raises(CorruptStorageError, match=f"offsets/{batch} is damaged(?s:.)*new, empty checkpointLocation"):
        read(folder).location()


def test_an_older_one_is_nobodys_business(folder: Path) -> None:
    (folder / "offsets/0").write_text("v1\n{}\nnothing")
    assert read(folder).location().origin == 7


def test_it_is_emptied_of_what_spark_keeps_and_of_nothing_else(folder: Path) -> None:
    (folder / "metadata").write_text("{}")
    (folder / "mine").write_text("")
    read(folder).empty(7)
    assert [p.name for p in folder.iterdir()] == ["mine"]
    read(folder).empty(7)


def test_batches_of_a_later_start_are_not_removed(folder: Path) -> None:
    with pytest.raises(FencedError, match="expected batches of origin 6, which are given up, found those of origin 7"):
        read(folder).empty(6)
    assert read(folder).location().planned == 2
