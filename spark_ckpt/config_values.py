"""How values are read and written, of ``spark.ckpt.*`` and of sources and sinks: durations, sizes, numbers, flags.

Each :class:`Kind` parses one type of value and raises ``ValueError`` with what was expected; :mod:`spark_ckpt.config`
adds the key and what was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from spark_ckpt.errors import ConfigError
from spark_ckpt.names import RULE, name_problem, similar_name
from spark_ckpt.redaction import has_secret

# Spark's JavaUtils.timeStringAs and byteStringAs, plus the long unit names of Trigger.ProcessingTime.
_US_PER_UNIT: dict[str, int] = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
}
_SIZE_EXPONENT = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", re.ASCII)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgtp])(?:i?b)?|b)?", re.ASCII)
_HOOKS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def parse_duration_ms(text: str) -> int:
    """A duration as Spark writes it (``10s``, ``5 minutes``, ``1min``, ``1.5h``; a plain number is milliseconds).

    Raises ``ValueError`` for anything else, and for fractions of a millisecond.
    """
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or match[2] not in _US_PER_UNIT:
        raise ValueError("a duration such as 10s, 5 minutes, 1min or 100ms (a plain number is milliseconds)")
    return _whole(Fraction(match[1]) * _US_PER_UNIT[match[2]] / 1000, "milliseconds")


def parse_size_bytes(text: str) -> int:
    """A size as Spark writes it (``64k``, ``4g``, ``10mb``, ``1.5g``; binary multiples; a plain number is bytes).

    Raises ``ValueError`` for anything else, and for fractions of a byte.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("a size such as 64k, 10m or 4g (a plain number is bytes)")
    return _whole(Fraction(match[1]) * 1024 ** _SIZE_EXPONENT[match[2]], "bytes")


def _whole(value: Fraction, unit: str) -> int:
    if value.denominator != 1:
        raise ValueError(f"a whole number of {unit}")
    return int(value)


def fsspec_options(prefix: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Options of a file system as keyword arguments for fsspec: dots nest, ``true``, ``false`` and JSON are decoded.

    ``prefix`` stands before the names in messages. Raises ``ConfigError``, without the value, which may be a secret.
    """
    result: dict[str, Any] = {}
    for name, text in options.items():
        *parents, last = name.split(".")
        target = result
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{prefix}{name} is set below a value; remove one of the two.")
        target[last] = _fsspec_value(f"{prefix}{name}", text)
    return result


def option_text(value: Any) -> str:
    """An option of a reader or writer as the text that Spark makes of it; a dict as JSON, such as offsets are."""
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def set_option(options: dict[str, str], key: str, value: Any) -> None:
    """As Spark's readers and writers do it: the last one of a name, in any case, counts, and None is none."""
    for same in [name for name in options if name.lower() == key.lower()]:
        del options[same]
    if value is not None:
        options[key] = option_text(value)


def storage_hint(unknown: Iterable[str]) -> str:
    """What to say where a source or sink without a file system is given ``storage.*``."""
    if not any(name.lower().startswith("storage.") for name in unknown):
        return ""
    return ". As an option of a source or sink, storage.* is its own; that of the job is spark.ckpt.storage.*"


def _fsspec_value(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        # "from None": the JSON error holds the text, which may be a secret.
        raise ConfigError(f"{name} looks like JSON and is not; its value is not shown.") from None


def _size_text(size_bytes: int) -> str:
    for unit in "tgmk":
        if size_bytes and size_bytes % 1024 ** _SIZE_EXPONENT[unit] == 0:
            return f"{size_bytes // 1024 ** _SIZE_EXPONENT[unit]}{unit}"
    return str(size_bytes)


@dataclass(frozen=True)
class Kind:
    """How a value is read and written. ``parse`` raises ``ValueError`` with what was expected."""

    label: str
    parse: Callable[[str], Any]
    text: Callable[[Any], str] = str


def at_least(kind: Kind, low: int) -> Kind:
    def parse(text: str) -> Any:
        value = kind.parse(text)
        if value < low:
            raise ValueError(f"a {kind.label} of at least {kind.text(low)}")
        return value

    return Kind(kind.label, parse, kind.text)


def _parse_int(text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]+\s*", text, re.ASCII):
        raise ValueError("a whole number")
    return int(text)


def _parse_flag(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("a value that is not empty")
    return text.strip()


def _parse_name(text: str) -> str:
    if name_problem(text.strip()):
        raise ValueError(f"{RULE} (such as {similar_name(text)!r})")
    return text.strip()


def _parse_path(text: str) -> str:
    if has_secret(text):
        raise ValueError("a path or URL without a password (put credentials into spark.ckpt.storage.*)")
    return _parse_text(text)


def count(low: int, high: int = 2**31 - 1) -> Kind:
    def parse(text: str) -> int:
        value = _parse_int(text)
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return Kind("number", parse)


def one_of(*choices: str) -> Kind:
    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(" or ".join(choices))
        return text.strip().lower()

    return Kind(" or ".join(f"`{c}`" for c in choices), parse)


def _matching(label: str, pattern: re.Pattern[str], expected: str) -> Kind:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text.strip()):
            raise ValueError(expected)
        return text.strip()

    return Kind(label, parse)


_WORDS = ("earliest", "latest", "none")


def _parse_positions(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, dict) or v in _WORDS for v in found.values()):
        raise ValueError(f"JSON of a source's uid and an offset of it, or {', '.join(_WORDS)}, for each")
    return found


def _parse_ends(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found or not all(isinstance(v, dict) or _is_time(v) for v in found.values()):
        raise ValueError("JSON of a source's uid and an offset of it, or a time with a zone as 2026-01-31T00:00:00Z")
    return found


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(str(value).strip().replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


ENDS = Kind("JSON", _parse_ends, json.dumps)
POSITIONS = Kind("JSON", _parse_positions, json.dumps)
DURATION = Kind("duration", parse_duration_ms, lambda ms: f"{ms}ms")
POSITIVE_DURATION = at_least(DURATION, 1)
SIZE = at_least(Kind("size", parse_size_bytes, _size_text), 1)
FLAG = Kind("true or false", _parse_flag, lambda flag: str(flag).lower())


def _parse_address(text: str) -> str:
    host, _, port = text.strip().rpartition(":")
    if not port.isdigit() or int(port) > 65535 or any(c.isspace() or c == "/" for c in host):
        raise ValueError("a port from 0 to 65535, or address:port")
    return text.strip()


TEXT = Kind("text", _parse_text)
ADDRESS = Kind("port or address:port", _parse_address)
PATH = Kind("path or URL", _parse_path)
NAME = Kind("name", _parse_name)
CLASS = _matching("module:Class", _HOOKS, "a class as module:Class")
