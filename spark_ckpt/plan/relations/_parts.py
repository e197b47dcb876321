"""Behind a join of streams: whose columns the rows have, by alias and by DataFrame. Driver; Spark Connect.

Out of Python come names. So each side gets its columns under its alias again: a lateral join with one row, which Spark
makes a projection of. A column that was taken from a DataFrame, ``a["k"]``, is the alias's here, as Spark does not look
for DataFrames in lateral joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted, unquoted
from spark_ckpt.plan.relations._columns import name_parts
from spark_ckpt.plan.relations._translation import Part, Rows
from spark_ckpt.plan.relations._tree import alias_of, ids_in, known_from, with_expressions
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any
Expression = Any

MARK = "spark_ckpt.place"
"""Metadata of a column: which one of the rows it is, and the fields of structs that lead to it."""


def marked(schema: T.StructType, prefix: str = "", *above: str) -> T.StructType:
    """``schema``, whose columns say which they are, so that the server tells what an expression means: ``prefix`` and
    their place."""
    fields = []
    for at, f in enumerate(schema.fields):
        own = (*above, f.name) if above else (f"{prefix}{at}",)
        kind = marked(f.dataType, prefix, *own) if isinstance(f.dataType, T.StructType) else f.dataType
        fields.append(T.StructField(f.name, kind, True, {MARK: list(own)}))
    return T.StructType(fields)


def apart(rows: Rows, made: Relation) -> Relation:
    """``made``, whose columns are those of ``rows`` and the control columns, each under the alias of its part."""
    held = [f"__ckpt_held_{i}" for i in range(len(rows.shown))]
    base: Relation = P.ToDF(made, [*held, *CONTROL_COLUMNS])
    found: dict[int, str] = {}
    for alias, part in [*((_alias(part), part) for part in rows.parts), *_rest(rows)]:
        found |= {i: f"{quoted(alias)}.{quoted(name)}" for i, name in part.columns.items()}
        listed = [_held(F.col(held[i]).outer(), name, rows.schema.fields[i]) for i, name in part.columns.items()]
        one = P.SubqueryAlias(P.Project(P.SQL("SELECT 1"), listed), alias)
        base = P.LateralJoin(base, one, None, "inner") if listed else base
    columns = [F.col(found[i]) for i in range(len(rows.shown))]
    done = P.Project(base, [*columns, *(F.col(name) for name in CONTROL_COLUMNS)])
    done._ckpt_apart = True
    return done


def is_apart(node: Relation) -> bool:
    """Whether :func:`apart` is below it. Else its columns are known as the user's relations made them."""
    return any(getattr(each, "_ckpt_apart", False) for each in known_from(node))


def _held(value: Column, name: str, field: T.StructField) -> Column:
    mark = field.metadata.get(MARK)
    return value.alias(name) if mark is None else value.alias(name, metadata={MARK: mark})


def located(node: Relation, rows: Rows) -> Relation:
    """``node`` over ``rows``, where columns of their parts that were taken from a DataFrame go by the part's alias."""
    if not rows.parts:
        return node
    known = [(part, ids_in(part.plan)) for part in rows.parts]

    def put(e: Expression) -> Expression | None:
        if not isinstance(e, E.ColumnReference) or e._plan_id is None:
            return None
        found = [part for part, ids in known if e._plan_id in ids]
        if len(found) != 1:
            return None
        at = found[0].same.get(unquoted(e._unparsed_identifier))
        other = next((part for part in rows.parts if at in part.columns), None)
        if at is not None and other is not None:
            return E.ColumnReference(f"{quoted(_alias(other))}.{quoted(other.columns[at])}")
        _check_shown(found[0], e)
        return E.ColumnReference(f"{quoted(_alias(found[0]))}.{e._unparsed_identifier}")

    return with_expressions(node, put)


def _check_shown(part: Part, e: Expression) -> None:
    """Spark has raised for what is not there at all: what is left are columns that it hides."""
    name = name_parts(e._unparsed_identifier)[0]
    if name.lower() not in {known.lower() for known in part.columns.values()}:
        raise InvalidInputError(
            f"{name}: a join by names shows it once, and over Spark Connect its values of this side are gone. Join "
            f'by a condition, a["{name}"] == b["{name}"], which shows both'
        )


def parts_behind(rows: Rows, out: T.StructType) -> tuple[Part, ...]:
    """The parts of what became of ``rows``: ``out`` is its schema, over rows that are marked."""
    now = {int(f.metadata[MARK][0]): i for i, f in enumerate(out.fields) if len(f.metadata.get(MARK, ())) == 1}
    names = [name.lower() for name in out.names]
    found = []
    for part in rows.parts:
        columns = {now[i]: name for i, name in part.columns.items() if i in now and names[now[i]] == name.lower()}
        found.append(replace(part, columns=columns, same={n: now[i] for n, i in part.same.items() if i in now}))
    return tuple(found)


def joined_parts(
    sides: Sequence[Rows], places: Sequence[Sequence[int | None]], same: Sequence[Mapping[str, int]]
) -> tuple[Part, ...]:
    """Of a join's rows. ``places``: of each side, where each of its columns comes out. ``same``: of each side, which of
    its columns do not, and where their values are."""
    found = []
    for rows, out, of_other in zip(sides, places, same, strict=True):
        own = rows.parts or (Part(rows.plan, dict(enumerate(rows.shown))),)
        for part in own:
            columns = {at: name for i, name in part.columns.items() if (at := out[i]) is not None}
            found.append(replace(part, columns=columns, same=of_other))
    return tuple(found)


def _rest(rows: Rows) -> Iterator[tuple[str, Part]]:
    """The columns that are of none of the parts. A second one of a name has an alias of its own."""
    known = {i for part in rows.parts for i in part.columns}
    new = [(i, name) for i, name in enumerate(rows.shown) if i not in known]
    several = {i for at, (i, name) in enumerate(new) if name.lower() in {n.lower() for _, n in new[:at]}}
    yield "__ckpt_new", Part(None, {i: name for i, name in new if i not in several})
    yield from ((f"__ckpt_new_{i}", Part(None, {i: name})) for i, name in new if i in several)


def _alias(part: Part) -> str:
    return alias_of(part.plan) or f"__ckpt_part_{part.plan._plan_id}"
