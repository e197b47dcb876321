"""What a format does, whatever it is: bytes to a column of Arrow, and a column to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import InvalidInputError

SHOWN_REASON = 300


@dataclass(frozen=True)
class Decoded:
    """``values`` has a null where the bytes were None or could not be read; ``bad`` says of the latter why."""

    values: pa.Array
    bad: dict[int, str] = field(default_factory=dict)


class Decoder(ABC):
    """Any process; picklable. ``type`` is what :meth:`decode` gives, in Spark's Arrow types, everything nullable."""

    type: pa.DataType

    @abstractmethod
    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        """Each record by itself: whether one can be read depends on no other. Raises nothing for what cannot, and
        ``RetryableError`` or ``InvalidInputError`` where a schema registry is away or refuses."""


class Encoder(ABC):
    """Any process; picklable."""

    @abstractmethod
    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """The bytes of each value, null for null. Raises ``InvalidInputError`` for a value that the format lacks."""


def python_values(values: pa.Array, format_name: str) -> list[Any]:
    """``values.to_pylist()``. Raises ``InvalidInputError`` for days and moments that Python has no objects for."""
    try:
        found: list[Any] = values.to_pylist()
    except (OverflowError, ValueError):
        raise InvalidInputError(
            f"column 'value' has a date or a timestamp outside of the years 1 to 9999, which valueFormat {format_name} "
            "cannot write; filter such rows out, or cast the field to string"
        ) from None
    return found


class TextDecoder(Decoder):
    """Bytes as text; those that are no UTF-8 are bad."""

    type = pa.string()

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        try:
            texts = pa.array(records, pa.binary()).cast(pa.string())
            return Decoded(texts)
        except pa.ArrowInvalid:
            return one_by_one(records, self.type, lambda record: record.decode())


class TextEncoder(Encoder):
    """Text as UTF-8, and bytes as they are."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        return values.cast(pa.binary())


def one_by_one(records: Sequence[bytes | None], kind: pa.DataType, read: Callable[[bytes], object]) -> Decoded:
    """What ``read`` makes of each record, a value that Arrow takes for ``kind``; ``ValueError``: one is bad."""
    values: list[object] = []
    bad: dict[int, str] = {}
    for at, record in enumerate(records):
        try:
            values.append(None if record is None else read(record))
        except ValueError as error:
            values.append(None)
            bad[at] = str(error).split("\n")[0][:SHOWN_REASON]
    try:
        return Decoded(pa.array(values, kind), bad)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _what_fits(values, kind, bad)


def _what_fits(values: list[object], kind: pa.DataType, bad: dict[int, str]) -> Decoded:
    kept = []
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
            kept.append(value)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            kept.append(None)
            bad[at] = str(error).split("\n")[0][:SHOWN_REASON]
    return Decoded(pa.array(kept, kind), bad)
