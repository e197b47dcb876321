"""What reads and writes the JSON form of one kind of value, and how it says that a value is not of that kind. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
Read = Callable[[Any], Any]
Write = Callable[[Any], Any]

ABSENT: Any = object()
"""Where a field should be, and nothing is."""


class Unreadable(Exception):  # noqa: N818 - no error of its own: it becomes a CorruptStorageError with a place
    """What a value should have been and is not. ``place``: where in the record, from the inside out."""

    def __init__(self, expected: str, found: Any = ABSENT) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found
        self.place: list[str] = []


class Unknown(Unreadable):
    """A field that is not known here: a newer version wrote it, as what is damaged does not come here."""


@dataclass(frozen=True)
class Codec(Generic[T]):
    """``expected`` says in a message what is read."""

    expected: str
    read: Callable[[Any], T]
    write: Write


def fail(expected: str, found: Any) -> NoReturn:
    raise Unreadable(expected, found)


def itself(value: Any) -> Any:
    return value
