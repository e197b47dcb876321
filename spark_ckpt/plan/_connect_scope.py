"""Names and texts in expressions of Spark Connect's client. Driver, no Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.plan._condition import ConnectTree, name_of
from spark_ckpt.plan._in_arrow import StaysError, arrow_kind
from spark_ckpt.plan.columns import quoted

_PARTS = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parts_of(text: str) -> list[str]:
    """The names in ``a.`b c`.d``."""
    return [a.replace("``", "`") if a else b for a, b in _PARTS.findall(text)]


@dataclass(frozen=True)
class Scope:
    """The columns of the rows: Arrow's types, or Spark's for those that may have none."""

    names: Sequence[str]
    types: Sequence[Any]
    sensitive: bool

    def type(self, place: int) -> pa.DataType:
        kind = self.types[place]
        return kind if isinstance(kind, pa.DataType) else arrow_kind(kind)

    def same(self, one: str, other: str) -> bool:
        return one == other if self.sensitive else one.lower() == other.lower()

    def places(self, name: str) -> list[int]:
        return [i for i, own in enumerate(self.names) if self.same(own, name)]

    def quoted(self, place: int) -> str:
        """The one column of this name, for Spark."""
        if len(self.places(self.names[place])) > 1:
            raise StaysError(f"there are several columns {self.names[place]}")
        return quoted(self.names[place])

    def find(self, text: str) -> tuple[int, list[str]]:
        """The place of the column that ``text`` means, and the fields of it that stand behind."""
        parts = parts_of(text)
        for first in (0, 1):  # behind an alias, too
            found = self.places(parts[first]) if first < len(parts) else []
            fields = parts[first + 1 :]
            if found and (not fields or pa.types.is_struct(self.type(found[0]))):
                self.quoted(found[0])
                return found[0], fields
        raise StaysError(f"{text} is not a column of these rows")


def without_texts(tree: Any, read: Callable[[str], Any | None], whole: Callable[[Any], bool] = lambda _: False) -> Any:
    """``tree`` with what ``read`` makes of the SQL texts in it, where that is something, and references for names.

    What is ``whole`` stays as it is.
    """
    return _WithoutTexts(read, whole).expression(tree)


class _WithoutTexts(ConnectTree):
    def __init__(self, read: Callable[[str], Any | None], whole: Callable[[Any], bool]) -> None:
        super().__init__(lambda _: None)
        self._read, self._whole = read, whole

    def expression(self, e: Any) -> Any:
        if self._whole(e):
            return e
        if not isinstance(e, self._text):
            return super().expression(e)
        name = name_of(e._expr)
        found = self._read(e._expr) if name is None else self._reference(name.text)
        return e if found is None else found
