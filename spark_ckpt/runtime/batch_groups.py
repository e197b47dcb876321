"""``applyInPandas`` and ``applyInArrow``: a user's function of a batch's groups, around the control rows. Executor.

Spark groups by the user's keys, the epoch and the control column, so that a group is either rows of one epoch, which
the function gets without the control columns, or control rows, which come out as they came. So does it where the groups
are those of two sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import getfullargspec
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError

from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG, stream_of_tag

if TYPE_CHECKING:
    import pandas as pd

_OWN_KEYS = 2
"""Of Spark's grouping, behind the user's keys: the epoch and the control column."""
BY = "__ckpt_by_"
"""How the names of hidden columns begin that are keys."""


class Form(Protocol):
    """What rows are, and how the control columns are taken off and put on."""

    @property
    def portion(self) -> type[Any]:
        """Of iterators of rows, by which Spark knows that a function takes and gives them."""

    def is_null(self, key: Any) -> bool: ...

    def control(self, *rows: Any) -> Any:
        """Control rows as they come out, those of all sides."""

    def data(self, rows: Any) -> Any:
        """What the user's function sees."""

    def tag(self, rows: Any) -> Any:
        """Of rows of one epoch."""

    def stream(self, rows: Any) -> int:
        """What the tag of the first row says beside the epoch."""

    def nothing(self) -> Any:
        """No rows."""

    def tagged(self, made: Any, tag: Any) -> Any:
        """What the user's function made, or, if Spark says what is wrong with it, that itself."""


@dataclass(frozen=True)
class Frames:
    """``pandas.DataFrame`` with the columns ``names``; ``by_name``: Spark's setting says that those with names go by
    them."""

    names: list[str]
    by_name: bool

    @property
    def portion(self) -> type[Any]:
        import pandas as pd

        return pd.DataFrame

    def is_null(self, key: Any) -> bool:
        return key is None

    def control(self, *rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        there = [some[list(CONTROL_COLUMNS)] for some in rows if len(some)]
        kept = there[0] if len(there) == 1 else pd.concat(there)
        nothing = pd.DataFrame(dict.fromkeys(self.names, [None] * len(kept)), index=kept.index, dtype=object)
        made: pd.DataFrame = nothing.assign(**{name: kept[name] for name in CONTROL_COLUMNS})
        return made

    def data(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.drop(columns=list(filter(_is_own, rows.columns)))

    def tag(self, rows: pd.DataFrame) -> int:
        return int(rows[TAG].iloc[0])

    def stream(self, rows: pd.DataFrame) -> int:
        return stream_of_tag(self.tag(rows))

    def nothing(self) -> pd.DataFrame:
        return self.portion()

    def tagged(self, made: Any, tag: int) -> Any:
        if not isinstance(made, self.portion) or (made.empty and not len(made.columns)):
            return made
        if not (self.by_name and any(isinstance(name, str) for name in made.columns)):
            made = self._by_position(made)
        return made.assign(**{TAG: tag, CTL: None})

    def _by_position(self, made: Any) -> Any:
        if len(made.columns) != len(self.names):
            raise PySparkRuntimeError(
                errorClass="RESULT_COLUMN_SCHEMA_MISMATCH",
                messageParameters={"expected": str(len(self.names)), "actual": str(len(made.columns))},
            )
        return made.set_axis(self.names, axis=1)


@dataclass(frozen=True)
class Tables:
    """``pyarrow.Table``, and ``pyarrow.RecordBatch`` in iterators; ``out`` are all columns, the control ones last."""

    out: pa.Schema

    @property
    def portion(self) -> type[Any]:
        return pa.RecordBatch

    def is_null(self, key: pa.Scalar) -> bool:
        return not key.is_valid

    def control(self, *rows: Any) -> Any:
        made = [self._control(some) for some in rows]
        return made[0] if len(made) == 1 else pa.concat_tables(made)

    def _control(self, rows: Any) -> Any:
        nothing = [pa.nulls(rows.num_rows, field.type) for field in list(self.out)[: -len(CONTROL_COLUMNS)]]
        kept = [rows.column(name) for name in CONTROL_COLUMNS]
        return type(rows).from_arrays([*nothing, *kept], schema=self.out)

    def data(self, rows: Any) -> Any:
        return rows.drop_columns(list(filter(_is_own, rows.schema.names)))

    def tag(self, rows: Any) -> pa.Scalar:
        return rows.column(TAG)[0]

    def stream(self, rows: Any) -> int:
        return stream_of_tag(self.tag(rows).as_py())

    def nothing(self) -> pa.Table:
        return pa.table({})

    def tagged(self, made: Any, tag: pa.Scalar) -> Any:
        if not isinstance(made, pa.Table | pa.RecordBatch) or not (made.num_columns or made.num_rows):
            return made
        labels = [pa.repeat(tag, made.num_rows), pa.nulls(made.num_rows, self.out.field(CTL).type)]
        for name, label in zip(CONTROL_COLUMNS, labels, strict=True):
            made = made.append_column(name, label)
        return made


def _is_own(column: Any) -> bool:
    return column in CONTROL_COLUMNS or str(column).startswith(BY)


def around_control_rows(func: Callable[..., Any], form: Form, portions: bool) -> Callable[..., Any]:
    """What Spark calls in place of ``func``, once for each group. ``portions``: ``func`` takes and gives iterators."""
    with_key = len(getfullargspec(func).args) > 1

    def called(key: tuple[Any, ...], rows: Any) -> Any:
        return func(key[:-_OWN_KEYS], rows) if with_key else func(rows)

    def whole(key: tuple[Any, ...], rows: Any) -> Any:
        if not form.is_null(key[-1]):
            return form.control(rows)
        return form.tagged(called(key, form.data(rows)), form.tag(rows))

    def in_portions(key: tuple[Any, ...], given: Iterator[Any]) -> Iterator[Any]:
        if not form.is_null(key[-1]):
            yield from map(form.control, given)
            return
        first = next(given)
        for made in called(key, map(form.data, chain([first], given))):
            yield form.tagged(made, form.tag(first))

    if not portions:
        whole.__annotations__ = {}  # hints that are texts here would be a warning of Spark's
        return whole
    rows = Iterator[form.portion]  # type: ignore[name-defined]
    in_portions.__annotations__ = {"key": tuple[Any, ...], "given": rows, "return": rows}
    return in_portions


def around_both_sides(func: Callable[..., Any], form: Form, static: bool = False) -> Callable[..., Any]:
    """What Spark calls in place of ``func``, once for each group that either side has. ``static``: the right side has
    its rows for each epoch that there may be, and without rows on the left they count for the newest only."""
    with_key = len(getfullargspec(func).args) > 2

    def called(key: tuple[Any, ...], left: Any, right: Any) -> Any:
        if not form.is_null(key[-1]):
            return form.control(left, right)
        if static and not len(left) and not form.stream(right):
            return form.nothing()
        sides = form.data(left), form.data(right)
        made = func(key[:-_OWN_KEYS], *sides) if with_key else func(*sides)
        return form.tagged(made, key[-_OWN_KEYS])

    called.__annotations__ = {}  # hints that are texts here would be a warning of Spark's
    return called
