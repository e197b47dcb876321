"""Options of the built-in sources: declared once, checked at start, keys case-insensitive as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.config_values import FLAG, SIZE, count, fsspec_options, parse_duration_ms, storage_hint
from spark_ckpt.errors import ConfigError
from spark_ckpt.expressions.java_regex import Searcher, UnsureError, searcher

_MOST = 2**63 - 1


@dataclass(frozen=True)
class Option:
    """One option: how to read it (``parse`` raises ``ValueError``), what it expects in words, its default.

    The documentation's tables are made of these, too (``scripts/site_docs.py``); ``shown`` writes the default there.
    """

    parse: Callable[[str], Any]
    expects: str
    default: Any = None
    shown: Callable[[Any], str] = str
    meaning: str = ""
    required: bool = False

    def means(self, meaning: str, required: bool = False) -> Option:
        """The same option with a line for the documentation."""
        return replace(self, meaning=meaning, required=required)


def parse_options(source: str, declared: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of every declared option, by its declared name.

    Raises ``ConfigError`` naming the valid options for an unknown key, or what was expected for a malformed value.
    """
    names = {name.lower(): name for name in declared}
    values = {name: option.default for name, option in declared.items()}
    for key, text in given.items():
        name = names.get(key.lower())
        if name is None:
            valid = f"valid options: {', '.join(sorted(declared))}"
            raise ConfigError(f"source '{source}' has no option '{key}'; {valid}{storage_hint([key])}")
        values[name] = _parse(source, name, declared[name], text)
    return values


def storage_options_of(given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The ``storage.*`` options as keyword arguments for fsspec (see ``fsspec_options``), and the other options."""
    prefix = "storage."
    storage = {key[len(prefix) :]: value for key, value in given.items() if key.lower().startswith(prefix)}
    rest = {key: value for key, value in given.items() if not key.lower().startswith(prefix)}
    return fsspec_options(prefix, storage), rest


def _parse(source: str, name: str, option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        why = f": {error}" if isinstance(error, UnsureError) else ""
        raise ConfigError(
            f"option '{name}' of source '{source}': expected {option.expects}, found '{text}'{why}"
        ) from None


def text(default: str | None = None, expects: str = "text") -> Option:
    return Option(_non_empty, expects, default)


def anything(default: str) -> Option:
    return Option(str, "text, which may be empty", default)


def positive(default: int | None = None, expects: str = "a whole number of at least 1") -> Option:
    return Option(count(1, _MOST).parse, expects, default)


def natural(default: int | None = None, expects: str = "a whole number of at least 0") -> Option:
    return Option(count(0, _MOST).parse, expects, default)


def flag(default: bool | None = False) -> Option:
    return Option(FLAG.parse, "true or false", default, FLAG.text)


def choice(*values: str, default: str | None = None) -> Option:
    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(value)
        return value.lower()

    return Option(parse, f"one of {', '.join(values)}", default)


def size(default: int | None = None) -> Option:
    """A number of bytes: ``1048576``, ``64m``, ``1g``."""
    return Option(SIZE.parse, "a size such as 64m or 1g", default, SIZE.text)


def duration_s(default: float | None) -> Option:
    """A duration in seconds: ``1s``, ``500ms``, ``2 minutes``. A plain number is refused: it used to be seconds here
    and is milliseconds in ``spark.ckpt.*``.
    """

    def parse(value: str) -> float:
        if value.strip().isdigit() and int(value) > 0:
            raise ValueError(value)
        return parse_duration_ms(value) / 1000

    return Option(parse, "a duration with its unit, such as 500ms, 1s or 2m", default, "{:g}s".format)


def whole_seconds(default: int) -> Option:
    """Whole seconds, as Spark's readers take them: ``5s``, ``2m``, or a plain number."""

    def parse(value: str) -> int:
        return int(value) if value.strip().isdigit() else parse_duration_ms(value) // 1000

    return Option(parse, "a time such as 5s or 2m, or a number of seconds", default, "{}s".format)


def one_character(default: str) -> Option:
    def parse(value: str) -> str:
        value = {"\\t": "\t"}.get(value, value)
        if len(value) != 1 or not value.isascii():
            raise ValueError(value)
        return value

    return Option(parse, "one ASCII character", default)


def character_or_none(default: str | None) -> Option:
    def parse(value: str) -> str:
        if len(value) > 1 or not value.isascii():
            raise ValueError(value)
        return value

    return Option(parse, "one ASCII character, or none", default)


def java_regex(expects: str, ascii_texts: bool = False) -> Option:
    """What Spark gives to ``java.util.regex``, to be found in texts; ``ascii_texts``: in texts of ASCII alone."""

    def parse(value: str) -> Searcher:
        try:
            return searcher(_non_empty(value).strip(), ascii_texts)
        except UnsureError as error:
            raise UnsureError(f"{error}, which Java refuses or which is not read here; write it otherwise") from None

    return Option(parse, expects)


def _non_empty(value: str) -> str:
    if not value.strip():
        raise ValueError(value)
    return value
