"""From a chain that fails to a short one that fails: operations and rows are left out as long as it still does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.generated.chains import MERGE, Chain
from tests.generated.keyed_operations import Aggregate, SparkAggregate
from tests.generated.operations import Operation, applied
from tests.generated.values import SCHEMA

Fails = Callable[[Chain, pa.Table], bool]


def shrunk(spark: Any, chain: Chain, rows: pa.Table, fails: Fails, tries: int = 30) -> tuple[Chain, pa.Table]:
    """The smallest that ``fails`` found in so many tries; each of them is a query."""
    left = [tries]

    def still(candidate: Chain | None, some: pa.Table) -> bool:
        if candidate is None or left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate, some)

    for operations in _shorter(chain.operations):
        candidate = _of(spark, chain, operations)
        if still(candidate, rows):
            chain = candidate or chain
            return shrunk(spark, chain, rows, fails, left[0])
    for start in (0, rows.num_rows // 2):
        half = rows.slice(start, max(1, rows.num_rows // 2))
        if rows.num_rows > 1 and still(chain, half):
            return shrunk(spark, chain, half, fails, left[0])
    return chain, rows


def _shorter(operations: tuple[Operation, ...]) -> Any:
    if len(operations) > 2:
        yield operations[: len(operations) // 2]
    for at in range(len(operations) - 1, -1, -1):
        yield (*operations[:at], *operations[at + 1 :])


def _of(spark: Any, chain: Chain, operations: tuple[Operation, ...]) -> Chain | None:
    """The chain with other operations, if Spark's batch takes them and every sink what comes out."""
    try:
        columns = dict(applied(operations, spark.createDataFrame([], SCHEMA)).dtypes)
    except Exception:  # noqa: BLE001 - an operation needed one that was left out
        return None
    if chain.kind == MERGE and not any(isinstance(operation, Aggregate | SparkAggregate) for operation in operations):
        return None  # several rows of a key, and which of them stays is left to chance
    if not set(chain.keys) <= set(columns) or any("interval" in kind for kind in columns.values()):
        return None
    return replace(chain, operations=operations, columns=columns)
