"""The values of a tree for the rows of a batch. Executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from spark_ckpt.expressions import (
    _choosing,
    _clocks,
    _decimals,
    _fields,
    _formats,
    _from_time_text,
    _lists,
    _numbers,
    _numbers_cast,
    _patterns,
    _text,
    _times,
    comparing,
)
from spark_ckpt.expressions._values import Function, Rows, Value
from spark_ckpt.expressions.tree import Input, Literal, Tree

FUNCTIONS: dict[str, Function] = {
    **comparing.FUNCTIONS,
    **_numbers.FUNCTIONS,
    **_numbers_cast.FUNCTIONS,
    **_text.FUNCTIONS,
    **_times.FUNCTIONS,
    **_clocks.FUNCTIONS,
    **_formats.FUNCTIONS,
    **_from_time_text.FUNCTIONS,
    **_fields.FUNCTIONS,
    **_decimals.FUNCTIONS,
    **_lists.FUNCTIONS,
    **_patterns.FUNCTIONS,
}
"""Spark's class -> the function of its parts' values."""
CHOOSING: dict[str, Callable[..., Value]] = _choosing.FUNCTIONS
"""Those that compute a part only for the rows that need it, as Spark does."""


def column(tree: Tree, columns: Sequence[pa.Array], count: int) -> pa.Array:
    """The values of ``tree`` for ``count`` rows. Raises ``ExpressionError`` where Spark's query would fail."""
    if count == 0:
        return pa.array([], tree.type)
    found = value(tree, Rows(columns, count))
    return pa.repeat(found, count) if isinstance(found, pa.Scalar) else found


def value(tree: Tree, rows: Rows) -> Value:
    """As :func:`column`; one scalar if it is the same for every row."""
    if isinstance(tree, Input):
        found = rows.column(tree.at)
        # Times may have the name of another zone, texts be dictionaries.
        return found if found.type == tree.type else found.cast(tree.type)
    if isinstance(tree, Literal):
        return pa.scalar(tree.value, tree.type)
    choosing = CHOOSING.get(tree.function)
    if choosing is not None:
        return choosing(tree, rows, value)
    return FUNCTIONS[tree.function](tree, [value(part, rows) for part in tree.parts], rows.count)
