"""Log checkpoints of every kind that the Delta source reads: in parts, and with files of their own beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.errors import CorruptStorageError
from tests.sources.delta_tables import ID_V, HandMade, field, id_v
from tests.sources.test_delta_source import opened, rows

WORDS, TEXTS = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())
VECTOR = pa.struct(
    [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()), ("sizeInBytes", pa.int32()),
     ("cardinality", pa.int64())]
)  # fmt: skip
ADD = pa.struct(
    [("path", pa.string()), ("partitionValues", WORDS), ("size", pa.int64()), ("modificationTime", pa.int64()),
     ("dataChange", pa.bool_()), ("deletionVector", VECTOR)]
)  # fmt: skip
PROTOCOL = pa.struct(
    [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", TEXTS),
     ("writerFeatures", TEXTS)]
)  # fmt: skip
METADATA = pa.struct(
    [("id", pa.string()), ("schemaString", pa.string()), ("configuration", WORDS), ("partitionColumns", TEXTS)]
)
KINDS = pa.schema([("add", ADD), ("protocol", PROTOCOL), ("metaData", METADATA)])


def checkpointed(tmp_path: Path) -> tuple[HandMade, list[dict[str, Any]]]:
    """A table with four rows, one of them dead, whose commits are gone but for the last; the actions of its state."""
    table = HandMade(tmp_path / "t", *ID_V, field("p", "string"), partition_by=["p"])
    first = [table.with_vector(table.add(id_v([1, 2, 3]), p="x y"), [1]), table.add(id_v([4]), p=None)]
    table.commit(*first)
    old = table.add(id_v([5]), p="z")
    table.commit(old)
    table.commit(table.remove(old))
    metadata = table.metadata(*ID_V, field("p", "string"), partition_by=["p"])
    for version in range(4):
        table.log(version).unlink()
    table.log(3).write_text('{"commitInfo": {}}\n')
    return table, [table.protocol("v2Checkpoint", "deletionVectors"), metadata, *first]


def as_rows(actions: list[dict[str, Any]], path: Path) -> None:
    """As Parquet, where values of partitions and properties are maps."""
    mapped = [{kind: {k: list(v.items()) if isinstance(v, dict) and k in ("partitionValues", "configuration") else v
                      for k, v in body.items()} for kind, body in action.items()} for action in actions]  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(mapped, schema=KINDS), path)


ROWS_THERE = [(1, "text 1", "x y"), (3, "text 3", "x y"), (4, "text 4", None)]
NAME = f"{3:020d}.checkpoint"


def test_a_checkpoint_in_several_parts_is_one_if_all_are_there(tmp_path: Path) -> None:
    table, actions = checkpointed(tmp_path)
    log = table.path / "_delta_log"
    as_rows(actions[:3], log / f"{NAME}.{1:010d}.{2:010d}.parquet")
    with pytest.raises(CorruptStorageError, match="cannot be rebuilt at version 3"):
        opened(table.path)
    as_rows(actions[3:], log / f"{NAME}.{2:010d}.{2:010d}.parquet")
    assert sorted(rows(opened(table.path))) == ROWS_THERE


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_a_checkpoint_may_have_its_files_elsewhere(tmp_path: Path, top: str) -> None:
    table, actions = checkpointed(tmp_path)
    log, name = table.path / "_delta_log", f"{NAME}.80a083e8-7026-4e79-81be-64bd76c43a11.{top}"
    as_rows(actions[2:3], log / "_sidecars" / "one.parquet")
    as_rows(actions[3:], log / "_sidecars" / "two.parquet")
    beside = [{"sidecar": {"path": f"{n}.parquet", "sizeInBytes": 1, "modificationTime": 1}} for n in ("one", "two")]
    if top == "json":
        lines = [{"checkpointMetadata": {"version": 3}}, *actions[:2], *beside]
        (log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        as_rows(actions[:2], log / name)
        found = pq.read_table(log / name)
        sidecars = pa.array([None, None, *(b["sidecar"] for b in beside)])
        blank = pa.table({c: pa.nulls(2, found.schema.field(c).type) for c in found.column_names})
        pq.write_table(pa.concat_tables([found, blank]).append_column("sidecar", sidecars), log / name)
    assert sorted(rows(opened(table.path))) == ROWS_THERE
