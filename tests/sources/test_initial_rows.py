"""Rows of an initial state come once, all in the first batch, and are told by the offset."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from spark_ckpt.sources import initial_rows as module
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.initial_rows import initial_rows


def test_all_rows_come_in_the_first_batch_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    monkeypatch.setattr(module, "_ROWS", 3)
    rows = pa.table({"k": list(range(7)), "s": ["x"] * 7})
    schema = StructType.fromJson(
        {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}}
                                      for n, t in (("k", "long"), ("s", "string"))]}
    )  # fmt: skip
    cls = cloudpickle.loads(cloudpickle.dumps(initial_rows(rows)))
    reader = open_source(cls, {}, schema, "memory://none").reader(schema)
    start = reader.initial()
    end = reader.latest(start, True)
    splits = reader.splits(start, end)
    assert len(splits) == 3
    found = pa.Table.from_batches([batch for split in splits for batch in reader.read(split)])
    assert found.to_pylist() == rows.to_pylist()
    assert reader.latest(end, True) == end
    assert reader.splits(end, end) == []
