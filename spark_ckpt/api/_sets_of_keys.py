"""The groups of grouping sets: each row comes once for each set, with null for the keys that it is without. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from spark_ckpt.api._intervals import with_months_as_numbers, without_calendar_intervals
from spark_ckpt.api._window_columns import HIDDEN, behind_windows, over_hidden
from spark_ckpt.api.grouped import CkptGroupedData
from spark_ckpt.plan.columns import quoted
from spark_ckpt.runtime.grouping_sets import ExpandSets
from spark_ckpt.runtime.stateless import with_control

if TYPE_CHECKING:
    from spark_ckpt.agg import AggSpec
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.key_columns import Keys

NumberedSet = tuple[int, tuple[int, ...]]
NUMBER = "__ckpt_grouping_id"
_KEY, _KEPT = "__ckpt_key_", "__ckpt_kept_"


class GroupsOfSets(CkptGroupedData):
    """``groupBy(*cols, NUMBER)`` of rows with a column ``NUMBER``, whose value is that of each row's set.

    Aggregates read what keys were. So what is null where a set is without a key is a column of its own.
    """

    def __init__(self, rows: CkptDataFrame, cols: Sequence[Any], sets: Sequence[NumberedSet]) -> None:
        numbered = rows.withColumn(NUMBER, F.lit(0).cast("long"))
        super().__init__(numbered, [*cols, F.col(NUMBER)])
        self._sets = sets

    def _with_windows(self, exprs: list[Any]) -> tuple[CkptGroupedData, list[Any]] | None:
        if HIDDEN in self._rows.columns:  # a key's window is there, and Spark takes no other
            calls, made = over_hidden(exprs)
            return (self, made) if calls else None
        found = behind_windows(self._rows, self._given, exprs)
        if found is None:
            return None
        rows, keys, made = found
        return GroupsOfSets(rows, keys[:-1], self._sets), made

    def _aggregated(
        self, parent: CkptDataFrame, uid: str | None, specs: dict[str, AggSpec], keys: Keys
    ) -> CkptDataFrame:
        names = [name for name in keys.expressions if name != NUMBER]
        read = {spec.column for spec in specs.values()} & set(names)
        kept = {name: f"{_KEPT}{name}" for name in names if name in read}
        specs = {n: replace(s, column=kept.get(s.column or "", s.column)) for n, s in specs.items()}
        columns = {name: name if name in keys.columns else f"{_KEY}{i}" for i, name in enumerate(names)}
        computed = {own: keys.expressions[name] for name, own in columns.items() if own != name}
        computed |= {own: F.col(quoted(name)) for name, own in kept.items()}
        rows = parent._operation("agg", lambda df: df.withColumns(computed), check=True) if computed else parent
        made = ExpandSets([columns[name] for name in names], self._sets, NUMBER)
        expressions = {name: F.col(quoted(columns.get(name, name))) for name in keys.expressions}
        by = replace(keys, expressions=expressions)
        rows = without_calendar_intervals(rows, {spec.column for spec in specs.values()})
        repeated = with_months_as_numbers(rows, lambda df: df._python_operation(made, with_control(df.schema)))
        return super()._aggregated(repeated, uid, specs, by)
