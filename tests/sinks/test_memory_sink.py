from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.testing.sink_harness import SCHEMA, context, permit, stage, stage_table


def test_a_name_lives_in_the_temporary_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sink = MemorySink({"name": "totals"})
    sink.validate(SCHEMA)
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    assert memory.read("totals").to_pylist() == [{"k": 1, "v": "a"}]
    assert memory.read("other").num_rows == 0


def test_nothing_committed_reads_as_an_empty_table_of_the_querys_columns(tmp_path: Path) -> None:
    MemorySink({"path": f"{tmp_path}/m"}).validate(SCHEMA)
    assert memory.read(f"{tmp_path}/m") == SCHEMA.empty_table()


def test_another_querys_columns_are_refused_at_start(tmp_path: Path) -> None:
    MemorySink({"path": f"{tmp_path}/m"}).validate(SCHEMA)
    with pytest.raises(InvalidInputError, match="but the query writes"):
        MemorySink({"path": f"{tmp_path}/m"}).validate(pa.schema([pa.field("other", pa.int64())]))


def test_a_committable_of_another_kind_of_sink_is_refused(tmp_path: Path) -> None:
    sink = MemorySink({"path": f"{tmp_path}/m"})
    sink.validate(SCHEMA)
    (staged,) = stage(sink, [(1, "a")])
    for data in (json.dumps({"kind": "sql"}).encode(), b"\xff", b"[]"):
        foreign = type(staged)(staged.sink, staged.epoch, data)
        with pytest.raises(CorruptStorageError, match="expected a committable of a 'memory' sink"):
            sink.commit(permit(1), [staged, foreign])
    assert memory.read(f"{tmp_path}/m").num_rows == 0


def test_committables_of_two_sinks_are_not_committed_as_one(tmp_path: Path) -> None:
    sink = MemorySink({"path": f"{tmp_path}/m"})
    sink.validate(SCHEMA)
    (staged,) = stage(sink, [(1, "a")])
    with pytest.raises(CorruptStorageError, match="committables of one sink"):
        sink.commit(permit(1), [staged, type(staged)("another", staged.epoch, staged.data)])


def test_keys_may_be_structs_such_as_windows_and_those_with_lists_are_refused_at_start(tmp_path: Path) -> None:
    window = pa.struct([("start", pa.int64()), ("in", pa.struct([("x", pa.float64())]))])
    schema = pa.schema([pa.field("w", window), pa.field("v", pa.string())])
    sink = MemorySink({"path": f"{tmp_path}/m", "mergeKeys": "w"})
    sink.validate(schema)
    keys = [{"start": 1, "in": {"x": 0.5}}, {"start": 1, "in": None}, None, {"start": None, "in": {"x": None}}]
    rows = pa.table([pa.array([*keys, *keys], window), list("abcdefgh")], schema=schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=schema), rows))
    assert memory.read(f"{tmp_path}/m").to_pylist() == rows.slice(4).to_pylist()
    listed = pa.schema([pa.field("w", pa.struct([("l", pa.list_(pa.int64()))]))])
    with pytest.raises(InvalidInputError, match="has a list or a map in it"):
        MemorySink({"path": f"{tmp_path}/n", "mergeKeys": "w"}).validate(listed)
