"""A double as Java writes it: the shortest text since version 19, before that sometimes a longer one.

The shortest has two digits at least: the smallest double is ``4.9E-324``, where Python writes ``5e-324``.
"""

from __future__ import annotations

import math
import struct

_PRECISION = 53
_FIVES = (0, 3, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28, 31, 33, 35, 38, 40, 42, 45, 47, 49, 52, 54, 56, 59, 61)
"""Bits that Java reserves for each power of five."""


def java_double(number: float, shortest: bool) -> str:
    """``shortest``: as of Java 19."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return f"{sign}0.0"
    digits, exponent = _shortest(abs(number)) if shortest else _before_19(abs(number))
    return sign + _written(digits, exponent)


def _written(digits: str, exponent: int) -> str:
    """``0.digits`` times ten to the ``exponent``."""
    if 0 < exponent < 8:
        return f"{digits[:exponent].ljust(exponent, '0')}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return f"0.{'0' * -exponent}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"


def _shortest(number: float) -> tuple[str, int]:
    two = f"{number:.1e}" if number < 1e-300 else ""
    mantissa, _, power = (two if two and float(two) == number else f"{number!r}").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) + int(power or 0) - (len(whole + fraction) - len(digits))
    return digits.rstrip("0"), exponent


def _before_19(number: float) -> tuple[str, int]:
    """By long division until the rest is within half of the last place, whose rounding is Java's own."""
    bits = struct.unpack("<q", struct.pack("<d", number))[0]
    fraction, biased = bits & ((1 << 52) - 1), bits >> 52
    significant = _PRECISION if biased else fraction.bit_length()
    if biased:
        fraction |= 1 << 52
    else:
        shift = _PRECISION - significant
        fraction, biased = fraction << shift, 1 - shift
    power = biased - 1023
    zeros = (fraction & -fraction).bit_length() - 1
    tiny = max(0, _PRECISION - zeros - power - 1)
    if tiny == 0 and power <= 62:
        return _whole(fraction, power, significant)
    return _divided(fraction, power, significant, zeros, tiny)


def _whole(fraction: int, power: int, significant: int) -> tuple[str, int]:
    number = fraction << (power - 52) if power >= 52 else fraction >> (52 - power)
    spare = power - significant - 1
    dropped = len(str(1 << spare)) - 1 if spare > 1 else 0
    number, rest = divmod(number, 10**dropped)
    if dropped and rest >= 10**dropped >> 1:
        number += 1
    return str(number).rstrip("0"), len(str(number)) + dropped


def _divided(fraction: int, power: int, significant: int, zeros: int, tiny: int) -> tuple[str, int]:
    exponent = _estimated(fraction, power)
    fives, tens = max(0, -exponent), max(0, exponent)
    twos = fives + tiny + power
    half, below = twos - significant, tens + tiny
    width = _PRECISION - zeros
    fraction, twos = fraction >> zeros, twos - (width - 1)
    common = min(twos, below)
    twos, below, half = twos - common, below - common, half - common - (width == 1)
    if half < 0:
        twos, below, half = twos - half, below - half, 0
    top, scale, margin = fraction * 5**fives << twos, 5**tens << below, 5**fives << half
    large = width + twos + _bits(fives) >= 64 or below + 1 + _bits(tens + 1) >= 64
    return _digits(top, scale, margin, exponent, large)


def _digits(top: int, scale: int, margin: int, exponent: int, large: bool) -> tuple[str, int]:
    digits: list[int] = []
    first = True
    while True:
        digit, rest = divmod(top, scale)
        top, margin = 10 * rest, 10 * margin
        low = top < margin
        high = top + margin >= 10 * scale if large else top + margin > 10 * scale
        if first and digit == 0 and not high:
            exponent -= 1
        else:
            digits.append(digit)
        if first and not -3 <= exponent < 8:
            low = high = False
        first = False
        if low or high:
            break
    twice = 2 * top - 10 * scale
    up = high and (not low or twice > 0 or (twice == 0 and digits[-1] % 2 == 1))
    number = int("".join(map(str, digits))) + up
    text = str(number)
    return text, exponent + 1 + (len(text) - len(digits) if digits[0] else 0)


def _bits(fives: int) -> int:
    return _FIVES[fives] if fives < len(_FIVES) else fives * 3


def _estimated(fraction: int, power: int) -> int:
    """Of ten, by a line through the logarithm, as Java does it: what it takes for the exponent shows in the digits."""
    mantissa = fraction / (1 << 52)
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + power * 0.301029995663981)
