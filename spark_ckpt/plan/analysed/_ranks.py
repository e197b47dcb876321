"""``row_number() OVER (PARTITION BY k ORDER BY p)`` that is filtered to the first few: ``WHERE rn <= 3``, ``QUALIFY``.
Driver; classic Spark.

What comes out are updates: the row that has a number, whenever another one has it. So a sink merges by the keys and the
number, which has to be there unless a filter leaves only one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.java_classes import attribute_id, frame_of, items_of, seq_items
from spark_ckpt.execution.spark_errors import no_window_function
from spark_ckpt.names import free
from spark_ckpt.operators.key_columns import stored_name
from spark_ckpt.operators.top_rows import FirstRows, first_rows_of_keys
from spark_ckpt.operators.walks import own_names
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    kind_of,
    named_as,
    output_of,
    parts_of,
    project,
    relation,
    resolved,
    text_of,
    walk,
)
from spark_ckpt.plan.analysed._row_by_row import row_by_row, step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._updates import merged_by
from spark_ckpt.plan.analysed.ledger_of_expressions import classes_by, says_of
from spark_ckpt.state.topn.ordering import OrderBy

JavaObject = Any

_RANKS = classes_by("rank")
_BETWEEN = ("Project", "SubqueryAlias", "View", "PipeOperator", "ResolvedHint")
"""What may stand between a window and the filter of its number."""
_BOUNDS = {"LessThanOrEqual": 0, "LessThan": -1, "EqualTo": 0, "EqualNullSafe": 0}
_TURNED = {"GreaterThanOrEqual": "LessThanOrEqual", "GreaterThan": "LessThan"}
_ONE = ("EqualTo", "EqualNullSafe")
_COMPUTED = re.compile(r"_w\d+")
"""What Spark calls an expression that a window partitions or orders by."""


@dataclass(frozen=True)
class Number:
    """The number of a window's rows, as a filter sees it: ``outer`` names are those of the filter, by the ids of the
    window's output."""

    window: JavaObject
    rank: JavaObject
    outer: dict[int, int]

    @property
    def ids(self) -> set[int]:
        """Of the columns that are the same for all rows that ever have a number."""
        keys = (k for k in seq_items(self.window.partitionSpec()) if kind_of(k) == "AttributeReference")
        return {attribute_id(self.rank), *map(attribute_id, keys)}

    def is_rank(self, e: JavaObject) -> bool:
        e, own = _uncast(e), attribute_id(self.rank)
        return kind_of(e) == "AttributeReference" and self.outer.get(attribute_id(e)) == own

    def bound(self, part: JavaObject) -> int | None:
        """The last number that ``part`` of a condition lets through; None: it says nothing of that."""
        kind, sides = kind_of(part), seq_items(part.children())
        if kind == "Between":
            value, _least, most = items_of(part.parameters())
            kind, sides = "LessThanOrEqual", [value, most]
        if kind in _TURNED:
            kind, sides = _TURNED[kind], sides[::-1]
        if kind in _ONE and not self.is_rank(sides[0]):
            sides = sides[::-1]
        if kind not in _BOUNDS or not self.is_rank(sides[0]) or not sides[1].foldable():
            return None
        most = sides[1].eval(None)
        return most + _BOUNDS[kind] if isinstance(most, int) else None


def filtered(of: Translation, node: JavaObject) -> Rows:
    """``Filter``, of a number of rows, too."""
    number = _number_below(node)
    if number is not None:
        _note(of, node, number)
    return row_by_row(of, node)


def _number_below(node: JavaObject) -> Number | None:
    """The number that the condition of ``node`` asks for."""
    outer = {attribute_id(a): attribute_id(a) for a in items_of(node.condition().references().toSeq())}
    below = node.child()
    while kind_of(below) in _BETWEEN:
        if kind_of(below) == "Project":
            aliases = [e for e in seq_items(below.projectList()) if kind_of(e) == "Alias"]
            same = {attribute_id(e): attribute_id(e.child()) for e in aliases if _is_column(e.child())}
            outer = {one: same.get(other, other) for one, other in outer.items()}
        below = below.child()
    made = seq_items(below.windowExpressions()) if kind_of(below) == "Window" else []
    if len(made) != 1 or attribute_id(made[0]) not in outer.values():
        return None
    return Number(below, made[0], outer)


def _note(of: Translation, node: JavaObject, number: Number) -> None:
    parts, rank = parts_of(node.condition()), attribute_id(number.rank)
    bounds = [bound for part in parts if (bound := number.bound(part)) is not None]
    for part in parts:
        used = {number.outer[attribute_id(a)] for a in items_of(part.references().toSeq())}
        if bounds and not (used <= number.ids and part.deterministic()):
            raise InvalidInputError(
                f"{text_of(part)}: it stands in one filter with {number.rank.name()}, and a row that it leaves out "
                "would keep its number from others, and stay in a table that has it: filter in front of "
                f"{_function(number.rank).prettyName()}(), in a query of its own below"
            )
    if bounds:
        of.first_rows[rank] = min(bounds)
        if min(bounds) > 1 and not any(kind_of(p) in _ONE and number.bound(p) is not None for p in parts):
            of.numbers[rank] = str(number.rank.name())


def check_numbers_stay(of: Translation, plan: JavaObject) -> None:
    """Raises ``InvalidInputError`` where a number by which rows are merged does not come out."""
    for number, name in of.numbers.items():
        known = {number}
        for node in reversed(list(walk(plan))):
            known |= {attribute_id(out) for out, value in _renamed(node) if attribute_id(value) in known}
        if known.isdisjoint(map(attribute_id, output_of(plan))):
            raise InvalidInputError(
                f"{name}: what comes out are updates, a row whenever it gets a number that another one had, and a sink "
                "merges them by the keys of PARTITION BY and that number. Select it among the columns; or keep one row "
                "of each key, = 1; or use groupBy(...).topN(...), whose rows say what is gone"
            )


def _renamed(node: JavaObject) -> Iterator[tuple[JavaObject, JavaObject]]:
    """Attributes of ``node``, and those of its children that they are."""
    if kind_of(node) == "Union":
        for child in seq_items(node.children()):
            yield from zip(output_of(node), output_of(child), strict=True)
    elif kind_of(node) == "Project":
        for e in seq_items(node.projectList()):
            value = _uncast(e.child()) if kind_of(e) == "Alias" else e
            if _is_column(value):
                yield e, value


def ranked(of: Translation, node: JavaObject) -> Rows:
    """``Window``: the first rows of each key, as many as the filter behind it lets through."""
    rank = _rank_of(node)
    n = of.first_rows.get(attribute_id(rank))
    name = _function(rank).prettyName()
    if n is None or n < 1:
        raise no_window_function(
            f"{_text(rank)}: a stream keeps the first rows of each key only: expected a filter behind it such as WHERE "
            f"{rank.name()} <= 3, or QUALIFY, found none that says how many",
            str(name),
        )
    rows = _with_texts(of, of.rows(node.child()), node)
    given, orders = seq_items(node.partitionSpec()), seq_items(node.orderSpec())
    rows, keys = _columns(of, rows, given or resolved(frame_of(relation([]), of.spark), [F.lit(0)]))
    rows, by = _columns(of, rows, [o.child() for o in orders])
    order = [
        OrderBy(c, o.direction().sql() != "ASC", o.nullOrdering().sql() == "NULLS FIRST")
        for c, o in zip(by, orders, strict=True)
    ]
    merged = merged_by(node, rows, given, by, None if name == "row_number" else _text(rank))
    shown = [rows.schema.names[rows.place(a)] for a in output_of(node.child())]
    place = free(str(rank.name()), rows.schema.names)
    asked = FirstRows(n, keys, order, shown, place, None, merged)
    return of.put_out(node, first_rows_of_keys(rows, of.uid(node), asked, _text(rank), "update"))


def _rank_of(node: JavaObject) -> JavaObject:
    """The one expression of the node. Raises ``RefusedAsInSparkError`` for what is no rank."""
    made = seq_items(node.windowExpressions())
    for e in made:
        function = _function(e)
        if kind_of(function) not in _RANKS:
            raise no_window_function(f"{_text(e)}: {says_of('other window')}", str(function.prettyName()))
    if len(made) > 1:
        raise no_window_function(f"{', '.join(map(_text, made))}: expected one rank of a window, found several", "rank")
    return made[0]


def _function(e: JavaObject) -> JavaObject:
    found = e.child().windowFunction()
    return found.aggregateFunction() if kind_of(found) == "AggregateExpression" else found


def _text(e: JavaObject) -> str:
    return text_of(e.child())


def _uncast(e: JavaObject) -> JavaObject:
    return _uncast(e.child()) if kind_of(e) == "Cast" else e


def _is_column(e: JavaObject) -> bool:
    return kind_of(e) == "AttributeReference"


def _with_texts(of: Translation, rows: Rows, node: JavaObject) -> Rows:
    """``rows`` with names of their own. What Spark computes for the window is called by what it is, so that a query
    that computes something else is told from it."""
    below = node.child()
    listed = seq_items(below.projectList()) if kind_of(below) == "Project" else []
    texts = {attribute_id(e): stored_name(text_of(e.child())) for e in listed if _COMPUTED.fullmatch(str(e.name()))}
    named = [texts.get(i, name) for i, name in zip(rows.ids, rows.schema.names, strict=True)]
    return of.with_names(rows, own_names(named))


def _columns(of: Translation, rows: Rows, expressions: list[JavaObject]) -> tuple[Rows, list[str]]:
    """``rows`` with a column for each expression, and the columns' names."""
    names, computed = [], []
    for e in expressions:
        if _is_column(e):
            names.append(rows.schema.names[rows.place(e)])
        else:
            names.append(free(stored_name(text_of(e)), [*rows.schema.names, *names]))
            computed.append(named_as(e, names[-1]))
    if computed:
        rows = step(of, project([*rows.attributes, *computed], relation(rows.attributes)), rows)
    return rows, names
