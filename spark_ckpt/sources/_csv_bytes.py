"""What is looked for in a block of CSV before Arrow reads it, by arrays of its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_ckpt.formats.csv_splitter import CsvForm

_NEWLINE, _RETURN = 10, 13


def quotes_are_plain(chars: npt.NDArray[np.uint8], form: CsvForm) -> bool:
    """Whether each quote opens a value or closes one, with nothing beside; the last value may be open."""
    quotes = np.flatnonzero(chars == ord(form.quote))
    sides = np.array([ord(form.sep), _NEWLINE, _RETURN], np.uint8)
    opens, closes = quotes[0::2], quotes[1::2]
    if not (np.isin(chars[opens - 1], sides) | (opens == 0)).all():
        return False
    closes = closes[closes < len(chars) - 1]
    return bool(np.isin(chars[closes + 1], sides).all())


def none_is_escaped(data: bytes, form: CsvForm) -> bool:
    """Whether no escape does anything where all quotes are plain."""
    escape, quote = form.escape.encode(), form.quote.encode()
    if not escape:
        return quote * 2 not in data  # Spark's parser takes nothing at all for an escape then
    if escape == quote or escape not in data:
        return True  # what stands between two quotes has no quote in it
    return escape + quote not in data and escape + (form.escape_of_escape or form.escape).encode() not in data


def has_blanks_at_sides(data: bytes, chars: npt.NDArray[np.uint8], form: CsvForm) -> bool:
    """Of values: Arrow takes numbers without them."""
    sep, quote = form.sep, form.quote
    blanks = [np.flatnonzero(chars == ord(one)) for one in " \t" if one != sep and one.encode() in data]
    if not blanks:
        return False
    at = np.concatenate(blanks) if len(blanks) > 1 else blanks[0]
    if at[0] == 0 or (at == len(chars) - 1).any():
        return True
    ahead, behind = chars[at - 1], chars[at + 1]
    beside = _is_one_of(ahead, sep, "\n", "\r") | _is_one_of(behind, sep, "\n", "\r")
    if not quote or quote.encode() not in data:
        return bool(beside.any())
    if (_is_one_of(ahead, quote) | _is_one_of(behind, quote)).any():
        return True
    quotes_ahead = np.searchsorted(np.flatnonzero(chars == ord(quote)), at[beside])
    return bool((quotes_ahead % 2 == 0).any())


def _is_one_of(chars: npt.NDArray[np.uint8], *those: str) -> npt.NDArray[np.bool_]:
    found = chars == ord(those[0])
    for one in those[1:]:
        found |= chars == ord(one)
    return found


def has_hexadecimals(chars: npt.NDArray[np.uint8]) -> bool:
    """Arrow takes ``0x1F`` for a whole number."""
    return any((chars[np.flatnonzero(chars[1:] == ord(letter))] == ord("0")).any() for letter in "xX")
