"""What PySpark's grouped data has no method for: ``topN``, ``applyInArrowWithState`` and ``aggregate``. Driver.

Each makes a node of PySpark's, ``applyInArrow``, over the columns and keys that the operator reads. The function in
that node says what is meant, so it goes where the node goes. In a query of Spark's own it raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.columns import refuse_repeated
from spark_ckpt.execution.lineage import Lineage, OperatorNode
from spark_ckpt.operators.aggregates import ALL_ROWS
from spark_ckpt.operators.key_columns import Keys, check_key, texts_in
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.runtime.stateless import spark_schema
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.topn.function import TopN
from spark_ckpt.state.topn.updates import TopNOfUpdates

SparkDF = Any


@dataclass(frozen=True)
class OwnOperator:
    """``function`` reads ``columns``, of rows whose columns are called ``names`` in their order; ``keys`` are those of
    ``groupBy`` as the operator has them, ``plain`` those of them that are a column as it is. ``texts``: what keys are
    computed by."""

    method: str
    function: StateFunction
    names: list[str]
    columns: list[str]
    keys: list[str]
    plain: frozenset[str]
    texts: Mapping[str, str]
    output_mode: str | None = None
    takes_updates: bool = False

    def keyed(self, rows: StreamRows, uid: str | None) -> StreamRows:
        """The operator behind ``rows``, which have its keys, too. Raises as :meth:`check_updates`."""
        self.check_updates(rows.lineage)
        keys = replace(Keys.of_columns([rows.schema[name] for name in self.keys]), texts=self.texts)
        mode, updates = self.output_mode, self.takes_updates
        return keyed_rows(rows, uid, self.function, self.columns, keys, mode, takes_updates=updates)

    def check_updates(self, lineage: Lineage) -> None:
        """Raises ``InvalidInputError`` where rows are updates, and nothing says which take the place of others. Windows
        are updates in mode update alone, which their output mode refuses."""
        updates = next((o for o in _last(lineage) if o.output_mode == "update"), None)
        if updates is not None and isinstance(self.function, TopN) and not isinstance(self.function, TopNOfUpdates):
            raise InvalidInputError(
                f"topN: the rows of operator {updates.shown!r} are updates, new values of rows that came before; say "
                "by which columns, beside the keys, a newer row takes the place of an older one: mergeKeys=['product']"
            )


@dataclass(frozen=True)
class Groups(ABC):
    """``groupBy(...)`` of a DataFrame, as a method of ours sees it."""

    df: SparkDF
    by: list[Column]

    def __post_init__(self) -> None:
        refuse_repeated(self.df.columns, self.df.sparkSession)

    @abstractmethod
    def columns_of(self, given: Sequence[Column]) -> list[str | None]:
        """Of each expression, the name of the column that it is, as it is; None for what is computed."""

    @property
    def keys(self) -> Keys:
        """Under the names that Spark gives them, columns under their own, however they are written here."""
        fields = self.df.select(*self.by).schema.fields if self.by else [T.StructField(ALL_ROWS, T.IntegerType())]
        for f in fields:
            check_key(f)
        plain = self.columns_of(self.by) or [None]
        fields = [T.StructField(own or f.name, f.dataType, True) for own, f in zip(plain, fields, strict=True)]
        named = {f.name: c for f, c in zip(fields, self.by or [F.lit(0)], strict=True)}
        return Keys(named, T.StructType(fields), frozenset(filter(None, plain)), texts=self._texts(list(named), plain))

    def _texts(self, names: Sequence[str], plain: Sequence[str | None]) -> dict[str, str]:
        computed = [c for c, own in zip(self.by, plain, strict=False) if own is None]
        made = iter(texts_in(self.df, computed))
        return {name: own or next(made) for name, own in zip(names, plain, strict=False) if self.by}

    def operator(self, method: str, function: StateFunction, keys: Keys, columns: Sequence[str], **how: Any) -> SparkDF:
        """The DataFrame that the operator puts out."""
        asked = OwnOperator(
            method,
            function,
            list(self.df.columns),
            list(columns),
            list(keys.expressions),
            keys.columns,
            keys.texts,
            **how,
        )
        return self.applied(_standing_for(asked), spark_schema(function.output_schema))

    def applied(self, function: Callable[..., Any], schema: T.StructType) -> SparkDF:
        """As PySpark's ``applyInArrow``, which finds columns by names, and none with a dot or a backtick."""
        raise NotImplementedError


def are_updates(lineage: Lineage) -> bool:
    """Whether rows that come are new values of rows that came before. Windows in mode update are."""
    return any(o.output_mode == "update" or (o.kind == "aggregate" and o.output_mode is None) for o in _last(lineage))


def _last(lineage: Lineage) -> list[OperatorNode]:
    """The operators that no other is behind."""
    return [o for o in lineage.operators if not any(o in other.behind for other in lineage.operators)]


def _standing_for(asked: OwnOperator) -> Callable[..., Any]:
    def called(_rows: pa.Table) -> pa.Table:
        raise InvalidInputError(
            f"{asked.method} keeps state, which spark_ckpt has and Spark has not: write the DataFrame by "
            "ckpt.writeStream(df)"
        )

    called.__annotations__ = {}  # hints that are texts here would be a warning of Spark's
    called.asked = asked  # type: ignore[attr-defined]
    return called
