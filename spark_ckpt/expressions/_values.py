"""Rows of a batch and values of expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import ExpressionError
from spark_ckpt.expressions.columns import Columns, Given, may_raise_over, where_true
from spark_ckpt.expressions.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_ckpt.expressions.tree import Call

Value = Any
"""An array, or one scalar for all rows."""
Function = Callable[["Call", Sequence[Any], int], Any]
"""Of the call, its parts' values and the number of rows."""


def plain(compute: Callable[..., Value]) -> Function:
    """Of the parts alone."""
    return lambda _call, parts, _count: compute(*parts)


def typed(compute: Callable[..., Value]) -> Function:
    """Of the call and the parts."""
    return lambda call, parts, _count: compute(call, *parts)


def sized(compute: Callable[..., Value]) -> Function:
    """Of the call, the number of rows and the parts."""
    return lambda call, parts, count: compute(call, count, *parts)


class Rows:
    """The columns that expressions read, all or those of some rows."""

    def __init__(self, columns: Sequence[pa.Array], count: int) -> None:
        self._columns = columns if isinstance(columns, Columns) else Given(columns, count)
        self.count = count

    def column(self, at: int) -> pa.Array:
        return self._columns[at]

    def only(self, mask: pa.Array) -> Rows:
        """Those where ``mask``, which has no nulls, is true."""
        some = where_true(mask)
        return Rows(self._columns.only(some), some.count)

    def fails(self, tree: Tree) -> bool:
        """Whether a value may make it fail, so that it must not be computed for rows that do not ask for it."""
        return may_raise_over(tree, self._columns)


def as_array(value: Value, count: int) -> pa.Array:
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def each(compute: Callable[[Any], Any], value: Value, count: int, kind: pa.DataType) -> pa.Array:
    """``compute`` of each distinct value, in Python. Nulls stay."""
    coded = as_array(value, count).dictionary_encode()
    found = pa.array([compute(one) for one in coded.dictionary.to_pylist()], kind)
    return found.take(coded.indices)


def is_true(value: Value, count: int) -> pa.Array:
    """Without nulls: false where it is null."""
    found = as_array(value, count)
    return pc.fill_null(found, False) if found.null_count else found


def refuse(where: Value, condition: str, what: str) -> None:
    """Raises ``ExpressionError`` with Spark's name of the condition if ``where`` is true for any row."""
    true = where.as_py() if isinstance(where, pa.Scalar) else pc.any(where).as_py()
    if true:
        raise failed(condition, what)


def failed(condition: str, what: str) -> ExpressionError:
    """``condition`` is Spark's name of it."""
    return ExpressionError(
        f"[{condition}] in {what}: a value of the query has no result in ANSI mode. Change the expression (try_add, "
        "try_divide, try_cast and the like give null instead), or set spark.sql.ansi.enabled=false"
    )


@contextmanager
def overflowing(what: str) -> Iterator[None]:
    """Arrow's checked arithmetic raises where Spark's ANSI mode does."""
    try:
        yield
    except pa.ArrowInvalid as e:
        raise failed("ARITHMETIC_OVERFLOW", what) from e
