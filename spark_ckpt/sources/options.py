"""Options of the built-in sources: declared once, checked at start, keys case-insensitive as in Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.errors import ConfigError

_SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Option:
    """One option: how to read it (``parse`` raises ``ValueError``), what it expects in words, its default."""

    parse: Callable[[str], Any]
    expects: str
    default: Any = None


def parse_options(source: str, declared: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of every declared option, by its declared name.

    Raises ``ConfigError`` naming the valid options for an unknown key, or what was expected for a malformed value.
    """
    names = {name.lower(): name for name in declared}
    values = {name: option.default for name, option in declared.items()}
    for key, text in given.items():
        name = names.get(key.lower())
        if name is None:
            raise ConfigError(f"source '{source}' has no option '{key}'; valid options: {', '.join(sorted(declared))}")
        values[name] = _parse(source, name, declared[name], text)
    return values


def storage_options_of(given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The ``storage.*`` options as keyword arguments for fsspec (dots nest), and the other options."""
    storage: dict[str, Any] = {}
    rest = {}
    for key, value in given.items():
        if not key.lower().startswith("storage."):
            rest[key] = value
            continue
        *parents, last = key[len("storage.") :].split(".")
        target = storage
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = {"true": True, "false": False}.get(value.lower(), value)
    return storage, rest


def _parse(source: str, name: str, option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError:
        raise ConfigError(f"option '{name}' of source '{source}': expected {option.expects}, found '{text}'") from None


def text(default: str | None = None, expects: str = "text") -> Option:
    return Option(_non_empty, expects, default)


def anything(default: str) -> Option:
    return Option(str, "text, which may be empty", default)


def positive(default: int | None = None, expects: str = "a whole number of at least 1") -> Option:
    return Option(lambda value: _at_least(1, int(value)), expects, default)


def natural(default: int | None = None, expects: str = "a whole number of at least 0") -> Option:
    return Option(lambda value: _at_least(0, int(value)), expects, default)


def flag(default: bool = False) -> Option:
    return Option(_bool, "true or false", default)


def choice(*values: str, default: str | None = None) -> Option:
    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(value)
        return value.lower()

    return Option(parse, f"one of {', '.join(values)}", default)


def size(default: int | None = None) -> Option:
    """A number of bytes: ``1048576``, ``64m``, ``1g``."""
    return Option(lambda value: _at_least(1, int(_with_unit(value, _SIZE_UNITS))), "a size such as 64m or 1g", default)


def duration_s(default: float) -> Option:
    """A duration in seconds: ``1s``, ``500ms``, ``2 minutes`` is written ``2m``."""
    return Option(lambda value: _with_unit(value, _TIME_UNITS), "a duration such as 500ms, 1s or 2m", default)


def one_character(default: str) -> Option:
    def parse(value: str) -> str:
        value = {"\\t": "\t"}.get(value, value)
        if len(value) != 1 or not value.isascii():
            raise ValueError(value)
        return value

    return Option(parse, "one ASCII character", default)


def _non_empty(value: str) -> str:
    if not value.strip():
        raise ValueError(value)
    return value


def _at_least(minimum: int, value: int) -> int:
    if value < minimum:
        raise ValueError(value)
    return value


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


def _with_unit(value: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower())
    if match is None or match[2] not in units:
        raise ValueError(value)
    return float(match[1]) * units[match[2]]
