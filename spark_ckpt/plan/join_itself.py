"""A join of what is one stream further in front: which columns of it Spark tells apart. Driver.

Both sides have the same columns then, or some of them. Classic Spark makes new ones of the right side's: ``drop`` of
either is that of the left, if it has one, and all else of them is ambiguous. Spark Connect knows columns by the
DataFrame that they were taken from, and what is on both sides is ambiguous; behind a semi join, which has the left
side's alone, it is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.attributes import Attribute, Attributes, attribute_of, not_there, root_of
from spark_ckpt.plan.condition import Name, bare_name, shape, stream_names
from spark_ckpt.plan.spark_errors import analysis_error

_CHECKED = "spark.sql.analyzer.failAmbiguousSelfJoin"


class WithItself:
    """``sides`` and ``streams`` are both sides' attributes and numbers. ``using``: columns that the join is by, and
    takes from the left. ``both``: whether columns of both sides come out."""

    def __init__(
        self,
        spark: Any,
        sides: tuple[Attributes, Attributes],
        streams: tuple[AbstractSet[int], AbstractSet[int]],
        using: Sequence[str],
        both: bool,
    ) -> None:
        self.classic = hasattr(spark, "_jsparkSession")
        self._checked = not self.classic or spark.conf.get(_CHECKED) == "true"
        self._sides, self._streams, self._both = sides, streams, both
        self._using = {column.lower() for column in using}

    def of_left(self, name: Name) -> str | None:
        """The column of the left side that classic Spark takes ``name`` for. None: it is not of both sides."""
        return self._shared(name) if self.classic else None

    def refuse(self, name: Name, dropped: bool = False) -> None:
        """Raises as Spark does for a column that it cannot tell; ``dropped``: it is to be dropped."""
        if self._is_gone(name) and not dropped:
            raise not_there(name, self._sides[0].names, F.col(name.text))
        if not (self._both and self._checked) or (dropped and self.classic):
            return
        self.refuse_new(name)
        self.refuse_shared(name)

    def refuse_shared(self, name: Name) -> None:
        """Raises as Spark does for a column that both sides have, and that the join does not take from the left."""
        asked = self._streams[1] if self.classic else self._streams[0] & self._streams[1]
        shared = self._shared(name) if name.stream in asked else None
        if self._checked and shared is not None and shared.lower() not in self._using:
            raise self._ambiguous(root_of(name.text))

    def refuse_new(self, name: Name) -> None:
        """Raises as Spark does for a column that is another one since the join, :meth:`is_new`."""
        if self._checked and self.is_new(name):
            raise self._ambiguous(root_of(name.text))

    def is_new(self, name: Name) -> bool:
        """Whether it is of the right side alone, beside columns of the same stream that both have: classic Spark makes
        new ones of all of that stream's there."""
        return self.classic and attribute_of(name) in self.new

    @cached_property
    def new(self) -> frozenset[Attribute]:
        """What columns of the right side were before, of which that is so."""
        left, right = (set(side.all) for side in self._sides)
        both = left & right
        sources = (set(source.all) for source in self._sides[1].sources()) if both else ()
        return frozenset(one for source in sources if source & both for one in source & right - left)

    def is_hidden(self, name: Name) -> bool:
        """Whether the join is by this column of the right side, and shows the left one's, or none of that side."""
        if self._is_gone(name) or self.is_new(name):
            return True
        attribute, (_, right) = attribute_of(name), self._sides
        if attribute is None or attribute not in right.all or self.of_left(name) is not None:
            return False
        called = right.names[right.all.index(attribute)]
        return called.lower() in self._using and name.stream not in self._streams[0]

    @property
    def leaves_out(self) -> bool:
        """Whether only the DataFrame that a column was taken from says that it does not come out."""
        left, right = self._sides
        return not (self._both or self.classic) and not set(left.all).isdisjoint(right.all)

    def _is_gone(self, name: Name) -> bool:
        """On Connect, behind a semi join: what was taken from the right side is not there."""
        left, right = self._streams
        return self.leaves_out and name.stream in right - left

    def with_itself(self, condition: Column) -> bool:
        """Whether it compares a column with itself: classic Spark takes that from both sides, by its name."""
        op, args = shape(condition) or ("", [])
        if not self.classic or op not in ("=", "<=>") or not all(map(bare_name, args)):
            return False
        one, other = (next(map(attribute_of, stream_names(arg)), None) for arg in args)
        return one is not None and one is other

    def _shared(self, name: Name) -> str | None:
        attribute, (left, right) = attribute_of(name), self._sides
        if attribute is None or attribute not in left.all or attribute not in right.all:
            return None
        return left.names[left.all.index(attribute)]

    def _ambiguous(self, column: str) -> AnalysisException:
        text = (
            f"Column {column} is ambiguous: both sides of the join are made of the stream that it was taken from. Give "
            f'them aliases, a.alias("x").join(b.alias("y"), ...), and write F.col("x.{column}"), or give one of them '
            "another name, by withColumn, in front of the join"
        )
        if not self.classic:
            return analysis_error("AMBIGUOUS_COLUMN_REFERENCE", text, name=column)
        return analysis_error("_LEGACY_ERROR_TEMP_1182", text, ambiguousAttrs=column, config=_CHECKED)
