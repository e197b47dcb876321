"""Reading the JSON body of a record: every field is asked for by name and type, nothing is guessed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from spark_ckpt.errors import CorruptStorageError

T = TypeVar("T")


class Body:
    """One JSON object of a record; ``where`` names it in messages."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            raise CorruptStorageError(
                f"{where}: expected a JSON object, found {_show(value)}; restore another checkpoint"
            )
        self._value: Mapping[str, Any] = value
        self.where = where

    def get(self, name: str, *types: type) -> Any:
        """The field ``name``, which must be there and be of one of ``types``."""
        if name not in self._value:
            self.bad(name, _names(types), "nothing")
        value = self._value[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            self.bad(name, _names(types), _show(value))
        return value

    def integer(self, name: str) -> int:
        value: int = self.get(name, int)
        return value

    def text(self, name: str) -> str:
        value: str = self.get(name, str)
        return value

    def flag(self, name: str) -> bool:
        value: bool = self.get(name, bool)
        return value

    def optional_int(self, name: str) -> int | None:
        value: int | None = self.get(name, int, type(None))
        return value

    def optional_str(self, name: str) -> str | None:
        value: str | None = self.get(name, str, type(None))
        return value

    def has(self, name: str) -> bool:
        """For fields that records of an earlier version do not have."""
        return name in self._value

    def text_or(self, name: str, default: str) -> str:
        return self.text(name) if self.has(name) else default

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in allowed:
            self.bad(name, " or ".join(allowed), _show(value))
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        return dict(self.get(name, Mapping))

    def strings(self, name: str) -> tuple[str, ...]:
        return self.items(name, lambda v: v if isinstance(v, str) else _refuse("a string", v))

    def items(self, name: str, read: Callable[[Any], T]) -> tuple[T, ...]:
        """Every item of the list ``name``; what ``read`` cannot make sense of is reported with its place."""
        out = []
        for i, item in enumerate(self.get(name, list)):
            out.append(self._read(f"{name}[{i}]", item, read))
        return tuple(out)

    def int_keys(self, name: str, read: Callable[[Any], T]) -> dict[int, T]:
        return {self._read(name, k, int): self._read(f"{name}.{k}", v, read) for k, v in self.mapping(name).items()}

    def str_keys(self, name: str, read: Callable[[Any], T]) -> dict[str, T]:
        return {k: self._read(f"{name}.{k}", v, read) for k, v in self.mapping(name).items()}

    def bad(self, name: str, expected: str, found: str) -> None:
        raise CorruptStorageError(
            f"{self.where}: expected {expected} in {name!r}, found {found}; restore another checkpoint"
        )

    def _read(self, name: str, value: Any, read: Callable[[Any], T]) -> T:
        try:
            return read(value)
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as e:
            raise CorruptStorageError(
                f"{self.where}: expected a valid {name!r}, found {_show(value)} ({e}); restore another checkpoint"
            ) from e


def whole(value: Any) -> int:
    """``value`` if it is an integer; JSON's true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else _refuse("an integer", value)


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def from_base64(text: Any) -> bytes:
    return base64.b64decode(text, validate=True) if isinstance(text, str) else _refuse("base64 text", text)


def _refuse(expected: str, found: Any) -> Any:
    raise ValueError(f"expected {expected}, found {_show(found)}")


def _names(types: tuple[type, ...]) -> str:
    return " or ".join("null" if t is type(None) else t.__name__ for t in types)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
