"""Rows that a filter keeps are those that Arrow's own filter keeps; remainders of constants have Spark's sign."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.expressions.columns import where_true
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Call, Input, Literal
from spark_ckpt.runtime.lazy_batch import LazyBatch

COLUMNS = [
    pa.array(range(50), pa.int64()),
    pa.array([None if i % 7 == 0 else i for i in range(50)], pa.int32()),
    pa.array([i / 3 for i in range(50)], pa.float32()),
    pa.array(range(50), pa.timestamp("us", "UTC")),
    pa.array(range(50), pa.timestamp("us", "Europe/Berlin")),
    pa.array(range(50), pa.int32()).cast(pa.date32()),
    pa.array([i % 3 == 0 for i in range(50)]),
    pa.array([f"text {i}" for i in range(50)]),
    pa.array([[i] * (i % 3) for i in range(50)]),
    pa.array([Decimal(i) for i in range(50)], pa.decimal128(10, 2)),
    pa.nulls(50, pa.binary()),
]
BATCH = pa.RecordBatch.from_arrays(COLUMNS, schema=pa.schema([(f"c{i}", c.type) for i, c in enumerate(COLUMNS)]))


@pytest.mark.parametrize("wanted", [[True, None, False], [True], [False], [None], [False] * 24 + [True]])
@pytest.mark.parametrize("first", [0, 3])
def test_a_filter_keeps_what_arrows_filter_keeps(wanted: list[Any], first: int) -> None:
    rows = BATCH.slice(first, 40)
    mask = pa.array([wanted[i % len(wanted)] for i in range(43)], pa.bool_()).slice(3)
    found = LazyBatch.of(rows).only(where_true(mask)).made(None)
    found.validate(full=True)
    assert found.equals(rows.filter(mask), check_metadata=True)


@pytest.mark.parametrize("by", [1, 2, 16, -16, 3, -7, 100, 2**62, -(2**63)])
def test_the_remainder_of_a_constant_has_the_dividends_sign(by: int) -> None:
    numbers = [0, 1, -1, 15, 16, -16, -17, 2**63 - 1, -(2**63), None]
    values = pa.array(numbers, pa.int64())
    tree = Call("Remainder", (Input(0, pa.int64()), Literal(by, pa.int64())), pa.int64())
    found = column(tree, [values], len(values)).to_pylist()
    assert found == [None if n is None else (abs(n) % abs(by)) * (1 if n > 0 else -1) for n in numbers]
