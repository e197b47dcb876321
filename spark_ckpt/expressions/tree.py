"""An expression as Spark analysed it: columns by position, casts and types explicit. Pure values, sent to executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Input:
    """Column number ``at`` of the rows."""

    at: int
    type: pa.DataType


@dataclass(frozen=True)
class Literal:
    """``value`` is a Python value of ``type``; None is null."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """``function`` is the name of Spark's class. ``ansi``: it raises where ANSI mode raises.

    ``option``: what else the function needs, such as a time zone or the number of a struct's field.
    """

    function: str
    parts: tuple[Tree, ...]
    type: pa.DataType
    ansi: bool = False
    option: Any = None


Tree = Input | Literal | Call


def calls(tree: Tree) -> Iterator[Call]:
    """Every function in ``tree``, the outermost first."""
    if isinstance(tree, Call):
        yield tree
        for part in tree.parts:
            yield from calls(part)


def may_raise(tree: Tree) -> bool:
    """Whether a value may make it fail, so that it must not be computed for rows that do not ask for it."""
    return any(call.ansi for call in calls(tree))


def inputs_of(tree: Tree) -> Iterator[int]:
    """The places of the columns that it reads."""
    if isinstance(tree, Input):
        yield tree.at
    elif isinstance(tree, Call):
        for part in tree.parts:
            yield from inputs_of(part)
