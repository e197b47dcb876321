"""Targets that a rollback sets back, and that others have changed meanwhile. No Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.testing.sink_conformance import JOB, SCHEMA, SINK, permit, stage
from spark_ckpt.types import CheckpointId

ONE = CheckpointId(1)


def written(sink: TwoPhaseSink, *checkpoints: int) -> TwoPhaseSink:
    """One row for each of these."""
    sink.validate(SCHEMA)
    for k in checkpoints:
        sink.commit(permit(k), stage(sink, [(k, "mine")], k, k))
    return sink


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/table"


def keys_of(path: str) -> list[int]:
    found: list[int] = sorted(pa.table(DeltaTable(path).to_pyarrow_table())["k"].to_pylist())
    return found


def refused(sink: TwoPhaseSink, why: str) -> None:
    """Nothing is begun: a job whose rollback cannot be finished starts no more."""
    with pytest.raises(InvalidInputError, match=why):
        sink.to_undo(JOB, SINK, ONE)
    with pytest.raises(InvalidInputError, match=why):
        sink.roll_back(JOB, SINK, ONE)


def test_a_delta_table_does_not_go_back_to_files_that_were_vacuumed(path: str) -> None:
    sink = written(DeltaSink({"path": path, "mergeKeys": "k"}), 1)
    sink.commit(permit(2), stage(sink, [(1, "again")], 2, 2))
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    refused(sink, "file.*of version 1.*are gone, as behind a VACUUM")
    with pytest.raises(InvalidInputError, match="are gone"):
        sink.as_of(JOB, SINK, ONE)


def test_a_delta_table_does_not_go_back_to_a_version_whose_log_was_tidied_up(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).create_checkpoint()
    os.remove(f"{path}/_delta_log/{0:020d}.json")
    refused(sink, "version 1.*cannot be opened any more")
    with pytest.raises(InvalidInputError, match="cannot be opened"):
        sink.as_of(JOB, SINK, ONE)


def test_a_delta_table_that_only_grows_does_not_go_back(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    refused(sink, "delta.appendOnly=true, and a rollback removes rows")
    assert keys_of(path) == [1, 2]


def test_columns_that_a_delta_table_loses_are_told(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2)
    DeltaTable(path).alter.add_columns([Field("note", PrimitiveType("string"))])
    written(sink, 3)
    assert sink.to_undo(JOB, SINK, CheckpointId(2)).endswith("checkpoint(s) 3, back to version 3"), "it keeps them"
    assert "back to version 1, with the columns and properties that" in sink.to_undo(JOB, SINK, ONE)
    sink.roll_back(JOB, SINK, ONE)
    assert keys_of(path) == [1]


def test_a_delta_table_that_was_compacted_goes_back_and_forth(path: str) -> None:
    sink = written(DeltaSink({"path": path}), 1, 2, 3)
    DeltaTable(path).optimize.compact()
    sink.roll_back(JOB, SINK, ONE)
    written(sink, 4, 5)
    DeltaTable(path).optimize.compact()
    sink.roll_back(JOB, SINK, CheckpointId(4))
    assert keys_of(path) == [1, 4]
    assert sink.as_of(JOB, SINK, ONE).read().read_all()["k"].to_pylist() == [1]
