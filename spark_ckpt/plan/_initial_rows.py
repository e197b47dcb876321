"""``initialState`` of ``transformWithState``: its rows are collected, and a source of their own has them, which is read
once in the life of the job, together with the first batch. Driver."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._keyed_operator import KeyedRows, Upstream
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.lineage import Lineage, SourceNode
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.initial_rows import initial_rows
from spark_ckpt.state.processors.declared import INITIAL
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any


def with_initial_rows(rows: Upstream, keys: Keys, state: SparkDF, count: int, uid: str | None) -> KeyedRows:
    """``rows`` together with those of ``state``, the first ``count`` columns of which are the keys once more, in one
    more column, ``INITIAL``. Raises ``InvalidInputError`` where they are of other types than the stream's."""
    table = _keyed(state, keys, count)
    source = SourceNode(initial_rows(table.toArrow()), {}, table.schema, None if uid is None else f"{uid}-initial")
    full = with_control(table.schema)
    read = Recipe(lambda _ctx: Chain(source, full))
    schema = T.StructType([*rows.schema.fields, table.schema[INITIAL]])
    names = [*schema.names, *CONTROL_COLUMNS]

    def make(ctx: Any) -> Chain:
        frames = [ctx.frame(recipe).select(*_columns(ctx.frame(recipe), schema)) for recipe in (rows.recipe, read)]
        return Chain(frames[0].union(frames[1]).toDF(*names), with_control(schema))

    return KeyedRows(Recipe(make, (rows.recipe, read)), rows.lineage.union(Lineage(1, (source,))), schema)


def _keyed(state: SparkDF, keys: Keys, count: int) -> SparkDF:
    found = state.schema.fields[:count]
    if _types(found) != _types(keys.schema.fields):
        raise InvalidInputError(
            f"transformWithState: expected initialState to be grouped by columns of the types "
            f"{_types(keys.schema.fields)}, as the stream is, found {[f.name for f in found]} of types {_types(found)}"
        )
    names, placed = state.columns, [f"c{i}" for i in range(len(state.columns))]
    by = [F.col(c).alias(key) for c, key in zip(placed, keys.schema.names)]
    columns = [F.col(c).alias(name) for c, name in zip(placed[count:], names[count:], strict=True)]
    return state.toDF(*placed).select(*by, F.struct(*columns).alias(INITIAL))


def _columns(frame: SparkDF, schema: T.StructType) -> list[Any]:
    """Of ``schema``, null where ``frame`` has none of the name, and the control columns."""
    here = set(frame.columns)
    own = [F.col(quoted(f.name)) if f.name in here else F.lit(None).cast(f.dataType) for f in schema.fields]
    return [*own, *map(F.col, CONTROL_COLUMNS)]


def _types(fields: list[T.StructField]) -> list[str]:
    return [f.dataType.simpleString() for f in fields]
