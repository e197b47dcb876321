"""The two sides of a join: what a column of its condition means on each. Driver."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan.columns import is_case_sensitive
from spark_ckpt.plan.condition import Name, bare_name, names_in, replaced, shape
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.trying import unlogged

SparkDF = Any
LEFT, RIGHT = 0, 1
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


class Sides:
    """The DataFrames of both sides, their previews, and what a column means there.

    ``side_of`` tells the side of a name that was taken from a stream, ``stream["k"]``; ``aliases`` are the sides'.
    What Spark says of a column, or a part of one, is asked once: each answer is hundreds of calls to the JVM.
    """

    def __init__(
        self,
        frames: tuple[SparkDF, SparkDF],
        side_of: Callable[[Name], int | None],
        aliases: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self.frames, self._side_of, self._aliases = frames, side_of, aliases
        self._answers: dict[tuple[Any, ...], tuple[Column, Any]] = {}

    def _once(self, ask: Callable[..., Any], column: Column, *more: Any) -> Any:
        """``ask(column, *more)``. Columns are kept, so that none gets the place in memory of another."""
        key = (ask.__name__, id(column), *more)
        if key not in self._answers:
            self._answers[key] = column, ask(column, *more)
        return self._answers[key][1]

    def shape(self, column: Column) -> tuple[str, list[Column]]:
        """As that of a condition; ``""`` if it is something else. The same parts for the same column."""
        return self._once(shape, column) or ("", [])

    def on(self, column: Column, side: int) -> Column:
        """``column`` over the DataFrame of ``side``; names taken from the other stream are none there."""
        found: Column = self._once(self._on, column, side)
        return found

    def _on(self, column: Column, side: int) -> Column:
        def of_side(name: Name) -> Column | None:
            if not name.of_stream:
                return None
            found = self._side_of(name)
            return F.col(name.text if found in (side, None) else "`__ckpt_of_the_other_side`")

        return replaced(column, of_side)

    def kind(self, column: Column, side: int) -> T.StructField | None:
        """Name and type on ``side``; None if it needs the other."""
        found: T.StructField | None = self._once(self._kind, column, side)
        return found

    def _kind(self, column: Column, side: int) -> T.StructField | None:
        names = self._once(names_in, column)
        if names is not None and any(self._only_of(name, RIGHT if side == LEFT else LEFT) for name in names):
            return None
        try:
            with unlogged():
                found: T.StructField = self.frames[side].select(self.on(column, side)).schema.fields[0]
        except PySparkException:
            return None
        return found

    def side(self, column: Column) -> int | None:
        """The side that ``column`` is of. None if of both; a constant is of the right one."""
        return next((side for side in (RIGHT, LEFT) if self.kind(column, side) is not None), None)

    def constant(self, column: Column) -> bool:
        return all(self.kind(column, side) is not None for side in (LEFT, RIGHT))

    def _only_of(self, name: Name, side: int) -> bool:
        """Whether it surely is a column of ``side``, and not of the other. Spark logs what it does not find."""
        if name.of_stream:
            return self._side_of(name) == side
        alias = _PART.findall(name.text)[0].strip("`")
        if alias in self._aliases:
            return self._aliases.count(alias) == 1 and self._aliases[side] == alias
        found = [column_named(frame.columns, name.text, self._sensitive) is not None for frame in self.frames]
        return found[side] and not all(found)

    @cached_property
    def _sensitive(self) -> bool:
        return is_case_sensitive(self.frames[LEFT].sparkSession)

    def name(self, column: Column, side: int) -> str | None:
        """The column of ``side`` that it is, as it is."""
        found = self.kind(column, side) if bare_name(column) else None
        if found is None or found.name not in self.frames[side].columns or self._is_field(column, side):
            return None
        return found.name

    def _is_field(self, column: Column, side: int) -> bool:
        """Whether ``s.x`` is a field of the column ``s``, and not ``x`` of the alias ``s``."""
        structs = {f.name.lower() for f in self.frames[side].schema.fields if isinstance(f.dataType, T.StructType)}
        (name,) = self._once(names_in, column) or [Name("")]
        parts = _PART.findall(name.text)
        return len(parts) > 1 and parts[0].strip("`").lower() in structs
