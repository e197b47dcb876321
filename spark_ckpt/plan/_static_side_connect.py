"""What Spark Connect's client gets to know of a static side, and how it sends one to the executors. Driver.

The plan is known by its text. What is not sure to be the same for each batch is read by each batch.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql.connect.column import Column

from spark_ckpt.config_values import parse_size_bytes
from spark_ckpt.plan._condition import ConnectTree
from spark_ckpt.plan._connect_forms import FORMS
from spark_ckpt.plan._connect_functions import FUNCTIONS
from spark_ckpt.plan._connect_scope import parts_of
from spark_ckpt.plan._in_arrow_connect import same
from spark_ckpt.plan._static_in_arrow_connect import is_of
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.plan_check import plan_nodes

SparkDF = Any

_OF_EXPRESSIONS = ("Project", "Filter", "Aggregate")
_CALLED = re.compile(r"([\w.]+)\(")
_KNOWN = {
    *FUNCTIONS, *FORMS, "cast", "try_cast", "decimal", "sum", "count", "avg", "min", "max", "and", "or", "not",
}  # fmt: skip
_NOT_SURE = re.compile(r"\)#\d|subquery|exists#|list#|more fields|lambda")
"""A Python function's result, another plan, columns that are not shown."""
_OPTIMIZED = "== Optimized Logical Plan ==\n"
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+) ([KMGTPE]?i?B)")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def same_again(static: SparkDF, nodes: set[str]) -> bool:
    """Whether each batch would read the same rows, as far as that is sure; ``nodes``: of plans that do."""
    for node in plan_nodes(static):
        if node.name not in nodes:
            return False
        if node.name in _OF_EXPRESSIONS:
            called = {name.lower() for name in _CALLED.findall(node.detail)}
            if not called <= _KNOWN or _NOT_SURE.search(node.detail):
                return False
    return True


def size_in_bytes(static: SparkDF) -> int | None:
    """As Spark's statistics have it; None if it does not tell. Upwards from what is shown as 1.5 KiB."""
    text = static._explain_string(mode="cost")
    found = _SIZE.search(text, text.index(_OPTIMIZED) + len(_OPTIMIZED))
    if found is None:
        return None
    shown, unit = float(found[1]), _UNITS.index(found[2])
    return int((shown + (0.05 if unit else 0)) * 1024**unit)


def broadcast_threshold(spark: Any) -> int:
    said = str(spark.conf.get("spark.sql.autoBroadcastJoinThreshold", "10m"))
    return -1 if said.startswith("-") else parse_size_bytes(said)


def by_names(rows: SparkDF, column: Any) -> Any:
    """``column``, where ``prices["net"]`` and ``prices.net`` are ``net`` if that is the same to Spark."""
    return Column(_ByNames(rows).expression(column._expr))


class _ByNames(ConnectTree):
    def __init__(self, rows: SparkDF) -> None:
        super().__init__(lambda _: None)
        self._rows = rows

    def expression(self, e: Any) -> Any:
        if not isinstance(e, self._reference):
            return super().expression(e)
        plain = self._plain(e)
        if plain is None:
            return e
        one, other = (self._rows.select(Column(each)) for each in (e, plain))
        return plain if same(one, other) and one.columns == other.columns else e

    def _plain(self, e: Any) -> Any:
        text = e._unparsed_identifier
        if e._plan_id is not None:
            return self._reference(text) if is_of(self._rows._plan, e._plan_id) else None
        first, *others = parts_of(text)
        known = {name.lower() for name in self._rows.columns}
        return self._reference(".".join(map(quoted, others))) if others and first.lower() not in known else None
