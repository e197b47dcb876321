"""``applyInPandas`` and ``applyInArrow``: a user's function of a batch's groups, around the control rows. Executor.

Spark groups by the user's keys, the epoch and the control column, so that a group is either rows of one epoch, which
the function gets without the control columns, or control rows, which come out as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getfullargspec
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError

from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG

if TYPE_CHECKING:
    import pandas as pd

_OWN_KEYS = 2
"""Of Spark's grouping, behind the user's keys: the epoch and the control column."""


class _Calls:
    """``func`` as Spark calls it: with the rows alone or with the keys in front of them, as it takes them."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self._func, self._with_key = func, len(getfullargspec(func).args) > 1

    def __call__(self, key: tuple[Any, ...], rows: Any) -> Any:
        return self._func(key[:-_OWN_KEYS], rows) if self._with_key else self._func(rows)


def pandas_groups(func: Callable[..., Any], names: list[str], by_name: bool, portions: bool) -> Callable[..., Any]:
    """What Spark calls in place of ``func``, whose result has the columns ``names``.

    ``by_name``: Spark's setting says that columns with names go by them. ``portions``: ``func`` takes and gives
    iterators, as its type hints say.
    """
    import pandas as pd

    call = _Calls(func)

    def control(frame: pd.DataFrame) -> pd.DataFrame:
        nothing = pd.DataFrame(dict.fromkeys(names, [None] * len(frame)), index=frame.index, dtype=object)
        return nothing.assign(**{name: frame[name] for name in CONTROL_COLUMNS})

    def tagged(made: Any, tag: int) -> Any:
        if not isinstance(made, pd.DataFrame) or (made.empty and not len(made.columns)):
            return made  # Spark takes it, or says what is wrong with it
        if not (by_name and any(isinstance(name, str) for name in made.columns)):
            if len(made.columns) != len(names):
                raise PySparkRuntimeError(
                    errorClass="RESULT_COLUMN_SCHEMA_MISMATCH",
                    messageParameters={"expected": str(len(names)), "actual": str(len(made.columns))},
                )
            made = made.set_axis(names, axis=1)
        return made.assign(**{TAG: tag, CTL: None})

    def whole(key: tuple[Any, ...], frame: pd.DataFrame) -> Any:
        if key[-1] is not None:
            return control(frame)
        return tagged(call(key, frame.drop(columns=list(CONTROL_COLUMNS))), int(frame[TAG].iloc[0]))

    def in_portions(key: tuple[Any, ...], frames: Iterator[pd.DataFrame]) -> Iterator[Any]:
        if key[-1] is not None:
            yield from map(control, frames)
            return
        first = next(frames)
        data = (frame.drop(columns=list(CONTROL_COLUMNS)) for frame in chain([first], frames))
        for made in call(key, data):
            yield tagged(made, int(first[TAG].iloc[0]))

    return _hinted(in_portions, pd.DataFrame) if portions else _unhinted(whole)


def arrow_groups(func: Callable[..., Any], out: pa.Schema, portions: bool) -> Callable[..., Any]:
    """The same in Arrow; ``out`` are all columns that come out, the control columns last."""
    call = _Calls(func)

    def control(rows: Any) -> Any:
        nothing = [pa.nulls(rows.num_rows, field.type) for field in list(out)[:-_OWN_KEYS]]
        kept = [rows.column(name) for name in CONTROL_COLUMNS]
        return type(rows).from_arrays([*nothing, *kept], schema=out)

    def tagged(made: Any, tag: pa.Scalar) -> Any:
        if not isinstance(made, pa.Table | pa.RecordBatch):
            return made  # Spark says what is wrong with it
        labels = [pa.repeat(tag, made.num_rows), pa.nulls(made.num_rows, out.field(CTL).type)]
        for name, label in zip(CONTROL_COLUMNS, labels, strict=True):
            made = made.append_column(name, label)
        return made

    def whole(key: tuple[Any, ...], rows: pa.Table) -> Any:
        if key[-1].is_valid:
            return control(rows)
        return tagged(call(key, rows.drop_columns(list(CONTROL_COLUMNS))), rows.column(TAG)[0])

    def in_portions(key: tuple[Any, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        if key[-1].is_valid:
            yield from map(control, batches)
            return
        first = next(batches)
        data = (batch.drop_columns(list(CONTROL_COLUMNS)) for batch in chain([first], batches))
        for made in call(key, data):
            yield tagged(made, first.column(TAG)[0])

    return _hinted(in_portions, pa.RecordBatch) if portions else _unhinted(whole)


def _hinted(function: Callable[..., Any], rows: type) -> Callable[..., Any]:
    """With the type hints by which Spark knows that a function takes and gives iterators."""
    key, given = getfullargspec(function).args
    function.__annotations__ = {key: tuple[Any, ...], given: Iterator[rows], "return": Iterator[rows]}  # type: ignore[valid-type]
    return function


def _unhinted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hints that are texts here would be a warning of Spark's."""
    function.__annotations__ = {}
    return function
