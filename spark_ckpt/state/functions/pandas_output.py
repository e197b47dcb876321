"""What user functions return becomes Arrow: many keys at once where that gives what each key by itself would.

Spark puts an empty DataFrame of objects behind a call's DataFrames before it converts them
(``ApplyInPandasWithStateSerializer``), and that is why it takes integers for decimals, or NaN for strings: pandas
makes objects of them. It does so for as many keys as fit into a batch of Arrow, so a value may depend on its
neighbours there: ``2**53 + 1`` becomes another number next to a NaN. Here every key gets what it gets alone.

Columns are converted together if no neighbour can change a value (:func:`_together`), or if all keys have the same
type there; else key by key. The conversion is PySpark's own each time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import UserFunctionError

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructField, StructType

_EXACT_IN_DOUBLE = 2**53
"""Below it no integer changes when pandas makes a float of it."""


@dataclass(frozen=True)
class KeyOutput:
    """The DataFrames one call returned, none of them empty, with the columns of ``outputStructType`` by name."""

    key: tuple[Any, ...]
    frames: list[pd.DataFrame]


def checked_frame(where: Callable[[], str], frame: object, names: list[str], by_name: bool) -> pd.DataFrame | None:
    """With the ``names`` of ``outputStructType``; None if it is empty. As Spark, which takes columns without text for
    names by position, but a wrong name is an error here and null there. ``by_name``: Spark's ``assign_cols_by_name``.
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise UserFunctionError(f"{where()}: expected pandas.DataFrame, found {type(frame).__name__}.")
    found = frame.columns.tolist()
    if found == names and len(frame):
        return frame
    if not len(frame) and len(found) in (0, len(names)):
        return None
    if frame.empty and not found:
        return frame.reindex(columns=names)
    by_name = by_name and any(isinstance(c, str) for c in found)
    if len(found) != len(names) or (by_name and set(names) != set(found)):
        raise UserFunctionError(
            f"{where()}: expected output columns {names}, found {found}. Return the columns of outputStructType, by "
            "name."
        )
    return frame if by_name else frame.set_axis(names, axis=1)


class OutputConversion:
    """Makes tables of ``schema``. ``options`` are settings of PySpark's ``PandasToArrowConversion``."""

    def __init__(self, schema: pa.Schema, struct: StructType, timezone: str, options: dict[str, bool]) -> None:
        self.schema, self.struct, self.timezone = schema, struct, timezone
        self.options = {"safecheck": True, **options}

    def table(self, outputs: Sequence[KeyOutput], where: str) -> pa.Table:
        """Rows in the order of ``outputs``. Raises ``UserFunctionError`` naming the first key that does not fit."""
        if not outputs:
            return self.schema.empty_table()
        frames = _Frames(outputs)
        columns = [self._column(frames, at, where) for at in range(len(self.schema))]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _column(self, frames: _Frames, at: int, where: str) -> pa.ChunkedArray:
        field = self.struct.fields[at]
        name, kind = field.name, self.schema.field(at).type
        together = _together(frames.merged[name], kind)
        converted = None if together is None else self._strict(together, field)
        if converted is None and frames.same_type(name):
            alike = frames.as_alone(frames.all)[name]
            # A float is cast by itself; what objects are cast to may depend on their neighbours.
            converted = self._tried(alike, field) if alike.dtype.kind == "f" else self._strict(alike, field)
        parts = [converted] if converted is not None else self._by_key(frames, field, where)
        return pa.chunked_array([part.cast(kind) for part in parts], kind)

    def _by_key(self, frames: _Frames, field: StructField, where: str) -> list[pa.Array]:
        parts = []
        for output, alone in zip(frames.outputs, frames.each_alone(), strict=True):
            try:
                parts.append(self._convert(alone[field.name], field, arrow_cast=True, **self.options))
            except Exception as e:
                expected = ", ".join(f"{f.name} {f.type}" for f in self.schema)
                found = {str(c): str(t) for c, t in output.frames[0].dtypes.items()}
                raise UserFunctionError(
                    f"{where}, key {output.key!r}: the function's output does not fit outputStructType: expected "
                    f"({expected}), found {found}: {type(e).__name__}: {e}"
                ) from e
        return parts

    def _strict(self, series: pd.Series, field: StructField) -> pa.Array | None:
        """Only as each value by itself says; None if one needs more than that."""
        return self._tried(series, field, arrow_cast=False, safecheck=True)

    def _tried(self, series: pd.Series, field: StructField, **options: bool) -> pa.Array | None:
        try:
            return self._convert(series, field, **{"arrow_cast": True, **self.options, **options})
        except Exception:  # noqa: BLE001 - whatever it is, it is raised again for the key that it comes from
            return None

    def _convert(self, series: pd.Series, field: StructField, **options: bool) -> pa.Array:
        from pyspark.sql.types import StructType

        from spark_ckpt.spark_versions.pandas_conversion import to_arrow

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            batch = to_arrow([series], StructType([field]), self.timezone, **options)
        return batch.column(0)


class _Frames:
    """The DataFrames of several keys, side by side."""

    def __init__(self, outputs: Sequence[KeyOutput]) -> None:
        self.outputs = outputs
        self.all = [frame for output in outputs for frame in output.frames]
        joined = _joined(self.all)
        self.merged: Mapping[str, pd.Series] | pd.DataFrame = _concat(self.all) if joined is None else joined
        self._alone: list[pd.DataFrame] | None = None
        self._types: list[pd.Series] | None = None

    def same_type(self, name: str) -> bool:
        """Whether all DataFrames have the same pandas type in a column."""
        if self._types is None:
            self._types = [frame.dtypes for frame in self.all]
        return all(types[name] == self._types[0][name] for types in self._types)

    def each_alone(self) -> list[pd.DataFrame]:
        """What Spark converts if it calls the function for one key only, a DataFrame a key."""
        if self._alone is None:
            self._alone = [self.as_alone(output.frames) for output in self.outputs]
        return self._alone

    @staticmethod
    def as_alone(frames: list[pd.DataFrame]) -> pd.DataFrame:
        return _concat([*frames, frames[0].iloc[:0].astype(object)])


def _concat(frames: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    with warnings.catch_warnings():
        # pandas announces a change for all-null columns that Spark's own concat is subject to as well.
        warnings.simplefilter("ignore", FutureWarning)
        return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _joined(frames: list[pd.DataFrame]) -> dict[str, pd.Series] | None:
    """The columns that ``pd.concat`` makes of DataFrames of a few rows, in a fraction of the time; None if they do not
    have the same columns and plain types, or pandas has other parts than we know.
    """
    import pandas as pd

    names, parts = frames[0].columns.tolist(), []
    for frame in frames:
        blocks = getattr(getattr(frame, "_mgr", None), "blocks", None)
        if blocks is None or frame.columns.tolist() != names:
            return None
        parts.append(blocks)
    columns: dict[int, Any] = {}
    for at, block in enumerate(parts[0]):
        kind, places = block.dtype, block.mgr_locs.as_array.tolist()
        alike = [p[at] for p in parts if len(p) == len(parts[0]) and p[at].dtype == kind]
        values = [b.values for b in alike if type(b.values) is np.ndarray and b.mgr_locs.as_array.tolist() == places]
        if len(values) < len(parts):
            return None
        columns |= dict(zip(places, np.concatenate(values, axis=1), strict=True))
    return {name: pd.Series(columns[at], dtype=columns[at].dtype) for at, name in enumerate(names)}


def _together(series: pd.Series, kind: pa.DataType) -> pd.Series | None:
    """What to convert of several keys' values if none can depend on its neighbours; None if it could.

    By the type that pandas found for all of them: integers come of integers only; a float below 2**53 is what it was
    as an integer; objects are converted one by one, but times among them would not be local any more.
    """
    import pandas as pd

    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    of = series.dtype.kind
    if of == "M":
        return series if pa.types.is_timestamp(kind) else None
    if isinstance(series.dtype, pd.api.extensions.ExtensionDtype):
        return None
    if of in ("i", "u"):
        return series if number else series.astype(object)
    if of == "b":
        return series if pa.types.is_boolean(kind) else series.astype(object)
    if of == "f":
        return series if number and not (series.abs() >= _EXACT_IN_DOUBLE).any() else None
    return series if of == "O" and not pa.types.is_temporal(kind) else None
