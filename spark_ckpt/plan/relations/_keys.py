"""Keys of users' functions: columns of the rows, or expressions that are computed in front. Driver; Spark Connect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.plan.relations._columns import column, place_of
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Rows, Translation, with_own_names


@dataclass(frozen=True)
class Keyed:
    """``inputs``: the columns of the rows that the function gets; behind them stand keys that are computed."""

    rows: Rows
    inputs: list[str]
    keys: Keys


def keyed(of: Translation, rows: Rows, given: list[Any], state: Iterable[str]) -> Keyed:
    """``rows`` with the keys ``given``. ``state``: the names of fields that the function's state has."""
    places = [place_of(of, rows, c._expr) for c in given]
    computed = [c for c, place in zip(given, places, strict=True) if place is None]
    count = len(rows.shown)
    texts = of.schema(P.Project(rows.plan, computed)).names if computed else []
    if computed:
        rows = step(of, P.Project(rows.plan, [column(E.UnresolvedStar(None)), *_named(computed, rows)]), rows)
    rows = with_own_names(rows)
    fields, behind, names = rows.schema.fields, iter(zip(texts, rows.schema.fields[count:], strict=True)), list[str]()
    found: dict[str, Column] = {}
    kept: list[T.StructField] = []
    for place in places:
        text, field = next(behind) if place is None else (fields[place].name, fields[place])
        name = free(text, found)
        names += [name] if place is not None else []
        found[name] = F.col(quoted(field.name))
        kept.append(T.StructField(name, field.dataType, True))
    inputs = rows.schema.names[:count]
    return Keyed(rows, inputs, Keys(found, T.StructType(kept), frozenset(names)).named_for(inputs, state))


def _named(computed: list[Any], rows: Rows) -> list[Column]:
    names: list[str] = []
    for _ in computed:
        names.append(free("__ckpt_key", [*rows.shown, *names]))
    return [c.alias(name) for c, name in zip(computed, names, strict=True)]
