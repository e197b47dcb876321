"""The JSON form of records, events and offsets: one codec for all, made from the fields of a dataclass. Pure.

``write`` gives plain JSON values, ``read`` checks every field: its type, its range, that it is there and that no other
is. What it refuses is a ``CorruptStorageError`` that names the record, the field, what was expected and what found; of
a field that is not known here, which a newer version wrote, a ``NewerFormatError``.

=====================================  ================================================================
annotation                             JSON
=====================================  ================================================================
``int``, ``str``, ``bool``, ``Any``    itself; true and false are no integers
``Count``, ``Bit``                     an integer from 0 on; a flag as 1 or 0
``Annotated[str, Choice(...)]``        one of these texts
``bytes``                              base64
``X | None``                           null, or X
``tuple[X, ...]``, ``tuple[X, Y]``     a list, of any or of that length
``Mapping[str, X]``                    an object
``Mapping[int, X]``                    an object with its integers as text, in their order
a dataclass                            an object; a list of its fields' values if ``as_row`` was told of it
several classes with ``KIND``          an object with ``kind``
a class with ``HAS_OWN_JSON``          what its ``to_json`` says, and its ``from_json`` reads
=====================================  ================================================================

A field may be missing if records of earlier releases do not have it (``later(...)``, with its default), and is left out
when it has its default if it is ``optional(...)``. ``GONE`` names what earlier releases wrote.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, field, fields
from typing import Annotated, Any, TypeVar

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.protocol._json_codec import ABSENT, Unknown, Unreadable
from spark_ckpt.protocol._json_dataclasses import ROWS
from spark_ckpt.protocol._json_values import AsNumber, AtLeast, Choice, codec_of
from spark_ckpt.protocol.file_format import newer

T = TypeVar("T")

Count = Annotated[int, AtLeast(0)]
Bit = Annotated[bool, AsNumber()]


def later(default: Any = MISSING, *, factory: Any = MISSING, name: str | None = None) -> Any:
    """A field that records of earlier releases do not have."""
    return _field(default, factory, {"later": True, "name": name})


def optional(default: Any = None, *, factory: Any = MISSING, compare: bool = True) -> Any:
    """As :func:`later`, and not written when it has its default. ``compare``: two values with others are not equal."""
    return _field(MISSING if factory is not MISSING else default, factory, {"later": True, "left_out": True}, compare)


def named(name: str) -> Any:
    """A field that is called otherwise in JSON."""
    return field(metadata={"name": name})


def _field(default: Any, factory: Any, metadata: dict[str, Any], compare: bool = True) -> Any:
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata, compare=compare)
    return field(default=default, metadata=metadata, compare=compare)


def as_row(cls: type, shortest: int | None = None) -> None:
    """Write ``cls`` as the list of its fields' values, told before any is read or written. With ``shortest``, values
    behind that many are left out if they are the default.

    A class of which there are thousands may write its own ``to_row``, and read with a quick ``of_row`` that returns
    None for what is to be looked at field by field, to say what is wrong with it.
    """
    ROWS[cls] = len(fields(cls)) if shortest is None else shortest


def write(value: Any) -> Any:
    """A dataclass as plain JSON values."""
    return write_as(type(value), value)


def parsed(data: bytes | str, where: str) -> Any:
    """The JSON value that ``data`` is. ``where`` names it in messages. Raises ``CorruptStorageError``."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # lists within lists, thousands deep
        raise CorruptStorageError(f"{where}: expected JSON, found {len(data)} bytes that are none") from None


def read(cls: type[T], value: Any, where: str) -> T:
    """Inverse of :func:`write`. ``where`` names the record in messages. Raises ``CorruptStorageError``."""
    return read_as(cls, value, where)


def write_as(kind: Any, value: Any) -> Any:
    """``value``, which is annotated as ``kind``."""
    return codec_of(kind).write(value)


def read_as(kind: Any, value: Any, where: str) -> Any:
    try:
        return codec_of(kind).read(value)
    except Unreadable as bad:
        place = "".join(reversed(bad.place)).removeprefix(".")
        found = "nothing" if bad.found is ABSENT else shown(bad.found)
        if isinstance(bad, Unknown):
            raise newer(where, f"it has {place!r}, which is not known here") from None
        inside = f" in {place!r}" if place else ""
        raise CorruptStorageError(
            f"{where}: expected {bad.expected}{inside}, found {found}; {RESTORE_ANOTHER}"
        ) from None


def read_row(cls: type[T], value: Any) -> T:
    """For a ``from_json`` that was called from here."""
    kind: Any = cls
    found: T = codec_of(kind).read(value)
    return found


def shown(value: Any) -> str:
    """``value`` in a message: not too much of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


__all__ = [
    "AsNumber",
    "AtLeast",
    "Bit",
    "Choice",
    "Count",
    "Unreadable",
    "as_row",
    "later",
    "named",
    "optional",
    "read",
    "read_as",
    "read_row",
    "shown",
    "write",
    "write_as",
]
