"""What a newer version wrote is refused by its number, and is neither passed over nor called damaged. No Spark."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import spark_ckpt
from spark_ckpt.errors import NewerFormatError
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.sinks import staging
from spark_ckpt.storage import record_store, run_files
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.types import Committable, Epoch
from tests.storage.whole_job import WholeJob

SAID = "was written by a newer version of spark-ckpt: its format is 2, and this version reads formats up to 1"


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("formats")
    job = WholeJob(root)
    job.start()
    job.step(True)
    job.step(True, savepoint=str(root / "savepoint"))
    return root


@pytest.fixture
def root(taken: Path, tmp_path: Path) -> Path:
    shutil.copytree(taken, tmp_path / "root")
    return tmp_path / "root"


def as_newer(path: Path, **more: Any) -> None:
    record = json.loads(path.read_text())
    body = {**record["body"], **more}
    crc = zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    known = {"format": 1, "crc32": crc} if more else {"format": 2, "crc32": crc + 1}
    path.write_text(json.dumps({**record, **known, "body": body}))


FOLDERS = ("generations", "checkpoints", "committed", "batches")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_start_with_a_record_of_a_newer_version_is_refused_by_its_number(root: Path, folder: str) -> None:
    as_newer(sorted((root / "jobs/job" / folder).glob("*.json"))[-1])
    with pytest.raises(NewerFormatError, match=SAID):
        WholeJob(root).start()


@pytest.mark.parametrize("folder", ["generations", "checkpoints"])
def test_a_start_with_a_record_that_says_more_than_this_version_knows_is_refused(root: Path, folder: str) -> None:
    as_newer(sorted((root / "jobs/job" / folder).glob("*.json"))[-1], colour="red")
    with pytest.raises(NewerFormatError, match="by a newer version of spark-ckpt: it has 'colour', which is not known"):
        WholeJob(root).start()


def test_a_savepoint_of_a_newer_version_is_refused_by_its_number(root: Path, tmp_path: Path) -> None:
    as_newer(root / "savepoint/savepoint.json")
    with pytest.raises(NewerFormatError, match=SAID):
        WholeJob(tmp_path / "other").start(restore=str(root / "savepoint"))
    with pytest.raises(NewerFormatError, match=SAID):
        spark_ckpt.savepoint(str(root / "savepoint")).describe()


def test_a_manifest_and_a_state_file_of_a_newer_version_are_refused_by_their_number(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = spark_ckpt.savepoint(str(root / "savepoint")).state("counts")
    (file,) = (root / "savepoint/state/counts").glob("*.parquet")
    table = pq.read_table(file)
    assert pq.read_metadata(file).metadata[b"spark_ckpt.format"] == b"1"
    monkeypatch.setattr(run_files, "FORMAT", 2)
    file.write_bytes(run_files.encode_run_file(table).to_pybytes())
    monkeypatch.undo()
    with pytest.raises(NewerFormatError, match=f"State file .* {SAID}"):
        state.arrow()
    (manifest,) = (root / "savepoint/manifests/counts").glob("*.json")
    as_newer(manifest)
    with pytest.raises(NewerFormatError, match=SAID):
        state.arrow()


def test_an_offset_in_sparks_log_and_what_a_sink_staged_are_refused_by_their_number() -> None:
    offset = SourceOffset(1, {"row": 5}, 1)
    assert SourceOffset.from_json({**offset.to_json()}) == offset
    with pytest.raises(NewerFormatError, match=f"source offset {SAID}"):
        SourceOffset.from_json({**offset.to_json(), "format": 2})
    staged = staging.encode("files", file="x")
    assert staging.decode("files", Committable("s", Epoch(1), staged))["file"] == "x"
    with pytest.raises(NewerFormatError, match=f"What sink 's' staged in epoch 3 {SAID}"):
        staging.decode("files", Committable("s", Epoch(3), staging.encode("files", file="x", format=2)))


def test_a_record_says_its_format(tmp_path: Path) -> None:
    RecordStore(str(tmp_path)).create("a.json", "a", {"x": 1})
    assert json.loads((tmp_path / "a.json").read_text())["format"] == record_store.FORMAT
