"""Output modes: whether a query has the one that is asked for. Driver."""

from __future__ import annotations

from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.execution.spark_errors import SORTING, RefusedAsInSparkError, no_such_mode, unsupported

_FUNCTIONS = ("applyInPandasWithState", "applyInArrowWithState", "transformWithState", "transformWithStateInPandas")
_CORRECTNESS = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"


def check_mode(lineage: Lineage, mode: str) -> None:
    """Raises ``InvalidInputError``, of Spark's condition where it has one, for a mode that the query does not have."""
    if mode not in ("append", "update", "complete"):
        raise InvalidInputError(f"outputMode must be append, update or complete, found {mode!r}")
    if mode == "complete":
        _check_complete(lineage.in_mode(mode))
        return
    check_order(lineage, mode)
    aggregated = {o for a in lineage.operators if a.kind == "aggregate" for o in a.behind if o.kind != "aggregate"}
    for operator in lineage.operators:
        feeds = operator.output_mode == "append" and operator in aggregated
        if operator.output_mode not in (None, mode) and not feeds:
            raise no_such_mode(
                mode,
                operator.shown,
                f"outputMode is {mode!r}, but operator {operator.shown!r} puts out rows of mode "
                f"{operator.output_mode!r}: use outputMode({operator.output_mode!r}). For rows that are never "
                'updated, aggregate(..., emit="rows") or a function with outputMode "append".',
            )
        _check_fed(operator, mode)


def check_order(lineage: Lineage, mode: str) -> None:
    """Raises ``InvalidInputError`` for ``orderBy`` and ``limit`` in a mode that has none. Mode append may be meant or
    just not given: what puts out updates is of mode update."""
    if mode == "complete":
        return
    open_ended = [o for o in lineage.operators if o.output_mode == "complete"]
    if open_ended:
        raise InvalidInputError(
            f"outputMode {mode!r} is not supported for the sessions of operator {open_ended[0].shown!r}, which have no "
            'watermark that ends them, as in Spark: call withWatermark("t", "10 minutes") in front of groupBy, on the '
            "column they are sessions of, or use outputMode('complete')"
        )
    if lineage.is_sorted:
        raise _refused(lineage, mode, f"{SORTING}: add outputMode('complete')")
    if lineage.is_limited and (mode == "update" or any(o.output_mode == "update" for o in lineage.operators)):
        raise _refused(
            lineage,
            mode,
            "Limits are not supported on streaming DataFrames/Datasets in Update output mode: with rows that are never "
            "updated, limit counts over the whole query; behind an aggregation, add outputMode('complete')",
        )


def check_updates(lineage: Lineage, mode: str, spark: Any) -> None:
    """Raises ``InvalidInputError``, of Spark's condition, where updates are aggregated or joined: each would be a row
    more beside those that it takes the place of. As there, a setting lets them through."""
    if mode == "complete":
        return
    for operator in lineage.operators:
        kinds = {"aggregate": (*_FUNCTIONS, "aggregate", "topN"), "join": ("aggregate", "topN")}.get(operator.kind, ())
        updates = [o for o in operator.behind if o.output_mode == "update" and o.kind in kinds]
        if updates and not operator.takes_updates and spark.conf.get(_CORRECTNESS, "true") != "false":
            raise unsupported(
                f"what operator {updates[0].shown!r} puts out are updates, and operator {operator.shown!r} would take "
                "each for a row more, beside earlier ones of its group. Windows with a watermark come out once, in "
                'outputMode("append"), as do the rows of a function of that mode; or merge the updates into a table '
                f"(mergeKeys), and read that. If each update is to count as a row, set {_CORRECTNESS} to false, as in "
                "Spark"
            )


def _refused(lineage: Lineage, mode: str, text: str) -> RefusedAsInSparkError:
    """Spark looks at the mode of an aggregation first, and then at what stands behind it."""
    if mode == "append" and any(o.output_mode == "update" for o in lineage.operators):
        return no_such_mode(mode, "streaming aggregations without watermark", text)
    return unsupported(text)


def _check_fed(operator: OperatorNode, mode: str) -> None:
    """Windows in mode update say each change: further on, a change would count as another row."""
    fed_by = [o for o in operator.behind if o.kind == "aggregate" and o.output_mode is None]
    if fed_by and mode == "update":
        raise unsupported(
            f"outputMode 'update' is not supported where the windows of operator {fed_by[0].shown!r} are aggregated or "
            "joined further, as in Spark: use outputMode('append')"
        )


def _check_complete(lineage: Lineage) -> None:
    """The whole result is that of one aggregation, or of several side by side, through which all rows went."""
    passed = {operator for o in lineage.operators for operator in o.behind}
    last = [operator for operator in lineage.operators if operator not in passed]
    wrong = next((operator for operator in last if not operator.can_complete), None)
    if wrong is not None or not last:
        found = "there is none" if wrong is None else f"operator {wrong.shown!r} is none"
        raise no_such_mode(
            "complete",
            "no streaming aggregations",
            "Complete output mode not supported when there are no streaming aggregations on streaming "
            f"DataFrames/Datasets: it needs groupBy(...).agg(...) as the last operator, and {found}",
        )
    twice = [o for operator in last for o in operator.behind if o.kind == "aggregate"]
    if twice:
        raise unsupported(
            f"outputMode 'complete' is not supported where what operator {twice[0].shown!r} puts out is aggregated "
            "further, as in Spark: windows with a watermark are, in outputMode('append')"
        )
    if lineage.inputs > len(last):
        raise InvalidInputError(
            f"outputMode 'complete': a union brings rows beside those of operator {last[0].shown!r}, and they have no "
            "whole result; write them by a query of their own"
        )
