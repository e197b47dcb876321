"""What a processor gets for a row is PySpark's ``Row`` in all that can be seen of it, made and read faster."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row

from spark_ckpt.state.processors._convert import cleaned, python_values
from spark_ckpt.state.processors._rows import row_class

NAMES = ("k", "count", "index", "v", "with blank", "v", "asDict", "__len__")
"""Names of tuples' and Rows' own methods are no fields of theirs, as attributes; the first of equal names counts."""
VALUES = (1, 2, 3, "four", 5.0, 6, 7, 8)


def both() -> tuple[Any, Any]:
    return Row(*NAMES)(*VALUES), tuple.__new__(row_class(NAMES), VALUES)


def seen(look: Callable[[Any], Any], row: Any) -> Any:
    """What comes of it: a value, or an exception's type and text."""
    try:
        found = look(row)
    except Exception as e:  # noqa: BLE001 - whatever PySpark's raises is expected of ours
        return type(e), str(e)
    return found() if callable(found) and not isinstance(found, Row) else found


LOOKS: dict[str, Callable[[Any], Any]] = {
    "text": repr,
    "tuple": tuple,
    "dict": lambda r: r.asDict(True),
    "by attribute": lambda r: [r.k, r.v, getattr(r, "with blank")],
    "by name": lambda r: [r[name] for name in NAMES],
    "by place": lambda r: [r[0], r[-1], r[1:3]],
    "attribute that is a method": lambda r: [r.count(2), r.index(3)],
    "no such attribute": lambda r: r.other,
    "no such name": lambda r: r["other"],
    "hidden attribute": lambda r: r.__other__,
    "has": lambda r: ["k" in r, "other" in r, hasattr(r, "v"), hasattr(r, "w")],
    "set": lambda r: setattr(r, "k", 2),
    "equal": lambda r: [r == tuple(VALUES), r == Row(*NAMES)(*VALUES), hash(r)],
    "pickled": lambda r: (type(pickle.loads(pickle.dumps(r))), repr(pickle.loads(pickle.dumps(r)))),
    "copied": lambda r: (type(copy.deepcopy(r)), repr(copy.deepcopy(r))),
    "fields": lambda r: tuple(r.__fields__),
    "kept in state": lambda r: repr(cleaned((r, 1))),
    "made of its fields": lambda r: repr(Row(*r.__fields__)(*r)),
    "class": lambda r: (isinstance(r, Row), isinstance(r, tuple), type(r).__name__),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_row_looks_like_pysparks(look: Callable[[Any], Any]) -> None:
    theirs, ours = both()
    assert seen(look, ours) == seen(look, theirs)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -(2**63), 2**63 - 1]),
        pa.array([1, None, 3]),
        pa.array([1, 2], pa.int8()),
        pa.array([2**64 - 1], pa.uint64()),
        pa.array([0.1, float("inf"), -0.0]),
        pa.array([0.1, None], pa.float64()),
        pa.array([0.1, 3.4e38], pa.float32()),
        pa.array([True, False]),
        pa.array(["a", None]),
        pa.array([], pa.int64()),
        pa.array([1_700_000_000_000_000], pa.timestamp("us", tz="UTC")),
        pa.chunked_array([[1, 2], [3]]),
        pa.chunked_array([], pa.int32()),
    ],
    ids=lambda c: f"{c.type}-{len(c)}-{c.null_count}",
)
def test_values_are_those_of_to_pylist(column: Any) -> None:
    found, expected = python_values(column), column.to_pylist()
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


def test_a_row_class_has_all_its_fields_whenever_garbage_is_collected():
    names, before = tuple(f"c{i}" for i in range(30)), gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        made = [row_class.__wrapped__(names) for _ in range(100)][-1]
    finally:
        gc.set_threshold(*before)
    assert tuple(getattr(tuple.__new__(made, range(30)), name) for name in names) == tuple(range(30))
