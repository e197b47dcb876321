"""What a batch's offsets say of the epochs of its rows, for rows that have none. No Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.runtime.batch_epochs import NEW, EpochOfSparkStreams, EpochsOfBatch
from spark_ckpt.types import make_tag

CONTROL = {"streams": {}, "looks": 0}


def _offset(epoch: int, barrier: int | None = None, read: bool | None = None, inner: object = 1) -> str:
    return json.dumps(SourceOffset(1, inner, epoch, barrier, read=read).to_json())


def _log(folder: Path, *batches: list[str]) -> None:
    (folder / "offsets").mkdir()
    for number, lines in enumerate(batches):
        (folder / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *lines]))


def _labels(folder: Path, whole: bool = False, kind: type[EpochsOfBatch] = EpochsOfBatch) -> list[int]:
    one = pa.record_batch({"id": [0]})
    (found,) = kind(str(folder), {}, 5, whole)(iter([one]))
    return found.column(0).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[_offset(5, read=True)]], [make_tag(5, NEW)]),
        ([[_offset(5)]], [make_tag(5)]),
        ([[_offset(8, 7, True)]], [make_tag(5, NEW), make_tag(6), make_tag(7), make_tag(8)]),
        ([[_offset(8, 7, True)], [_offset(8, read=True)]], [make_tag(8, NEW)]),
        ([[_offset(8, 7, True), "-"], [_offset(8, 7, True), "-"]], [make_tag(8)]),  # it stands where it stood
        ([[_offset(8, 7, True), "-"], [_offset(8, 7, True), "{}"]], [make_tag(8, NEW)]),  # Spark's own source moved
        ([[_offset(6, 5), _offset(5)], [_offset(6, 5), _offset(5, read=True)]], [make_tag(5), make_tag(6, NEW)]),
    ],
)
def test_static_rows_have_each_epoch_there_may_be_and_are_new_in_the_newest_if_something_was_read(
    tmp_path: Path, batches: list[list[str]], expected: list[int]
) -> None:
    _log(tmp_path, *batches)
    assert _labels(tmp_path) == expected


def test_in_output_mode_complete_they_are_new_in_front_of_a_barrier_that_all_sources_have_sent(tmp_path: Path) -> None:
    _log(tmp_path, [_offset(6, 5, True), _offset(5, read=True)])
    assert _labels(tmp_path, True) == [make_tag(5), make_tag(6)]
    (tmp_path / "offsets" / "1").write_text("\n".join(["v1", "{}", _offset(6, 5, True), _offset(6, 5)]))
    assert _labels(tmp_path, True) == [make_tag(5, NEW), make_tag(6)]


def test_what_spark_reads_is_of_the_epoch_of_the_source_that_sends_its_barriers(tmp_path: Path) -> None:
    _log(
        tmp_path, [_offset(6, 5), _offset(5, inner=CONTROL), "{}"], [_offset(6, 5), _offset(6, 5, inner=CONTROL), "{}"]
    )
    assert _labels(tmp_path, kind=EpochOfSparkStreams) == [make_tag(5)]


def test_without_a_log_nothing_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CorruptStorageError, match="expected the offsets"):
        _labels(tmp_path)
