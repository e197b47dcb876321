"""Functions that compute a part only for the rows that need it: what would fail for the others does not.

A part that cannot fail is computed for all rows, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Rows, Value, as_array, is_true
from spark_ckpt.expressions.tree import Call, Tree

Evaluate = Callable[[Tree, Rows], Value]


def _both(call: Call, rows: Rows, evaluate: Evaluate) -> Value:
    """The right side matters where the left one is not false."""
    left = evaluate(call.parts[0], rows)
    right = _where(call.parts[1], rows, lambda: _is_not(left, False, rows.count), evaluate)
    return pc.and_kleene(left, right)


def _either(call: Call, rows: Rows, evaluate: Evaluate) -> Value:
    left = evaluate(call.parts[0], rows)
    right = _where(call.parts[1], rows, lambda: _is_not(left, True, rows.count), evaluate)
    return pc.or_kleene(left, right)


def _is_not(value: Value, what: bool, count: int) -> pa.Array:
    true = as_array(value, count)
    return pc.fill_null(true if not what else pc.invert(true), True)


def _if(call: Call, rows: Rows, evaluate: Evaluate) -> Value:
    condition, then, otherwise = call.parts
    return _cases([(condition, then)], otherwise, call.type, rows, evaluate)


def _case_when(call: Call, rows: Rows, evaluate: Evaluate) -> Value:
    """Pairs of condition and value, then the value of ELSE if there is one."""
    pairs = list(zip(call.parts[0:-1:2], call.parts[1::2], strict=False))
    otherwise = call.parts[-1] if len(call.parts) % 2 else None
    return _cases(pairs, otherwise, call.type, rows, evaluate)


def _cases(
    pairs: list[tuple[Tree, Tree]], otherwise: Tree | None, kind: pa.DataType, rows: Rows, evaluate: Evaluate
) -> Value:
    (condition, then), *others = pairs
    chosen = is_true(evaluate(condition, rows), rows.count)
    found = _where(then, rows, lambda: chosen, evaluate)

    def rest(some: Rows) -> Value:
        if others:
            return _cases(others, otherwise, kind, some, evaluate)
        return pa.scalar(None, kind) if otherwise is None else evaluate(otherwise, some)

    parts = [part for pair in others for part in pair] + ([] if otherwise is None else [otherwise])
    return pc.if_else(chosen, found, _asked(rest, any(map(rows.fails, parts)), kind, rows, lambda: pc.invert(chosen)))


def _coalesce(call: Call, rows: Rows, evaluate: Evaluate) -> Value:
    first, *others = call.parts
    found = evaluate(first, rows)
    if not others:
        return found
    rest = Call(call.function, tuple(others), call.type)
    return pc.coalesce(found, _where(rest, rows, lambda: pc.is_null(as_array(found, rows.count)), evaluate))


def _where(tree: Tree, rows: Rows, mask: Callable[[], pa.Array], evaluate: Evaluate) -> Value:
    """``tree``'s values; null where ``mask`` is false, if it matters."""
    return _asked(lambda some: evaluate(tree, some), rows.fails(tree), tree.type, rows, mask)


def _asked(
    compute: Callable[[Rows], Value], careful: bool, kind: pa.DataType, rows: Rows, mask: Callable[[], pa.Array]
) -> Value:
    if not careful:
        return compute(rows)
    asked = mask()
    if asked.true_count == rows.count:
        return compute(rows)
    nothing = pa.nulls(rows.count, kind)
    if asked.true_count == 0:
        return nothing
    some = rows.only(asked)
    return pc.replace_with_mask(nothing, asked, as_array(compute(some), some.count))


FUNCTIONS: dict[str, Callable[[Call, Rows, Any], Value]] = {
    "And": _both,
    "CaseWhen": _case_when,
    "Coalesce": _coalesce,
    "If": _if,
    "Or": _either,
}
