"""Reading a sink's options: case-insensitive names, unknown and malformed ones refused with the valid ones listed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_ckpt.config_values import FLAG, POSITIVE_DURATION, fsspec_options, storage_hint
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.names import path_problem


def with_absolute_path(options: Mapping[str, str]) -> dict[str, str]:
    """``options`` with local paths that mean the same in every process."""
    paths = ("path", "rejects")
    return {k: os.path.abspath(v) if k.lower() in paths and _is_relative(v) else v for k, v in options.items()}


def check_path(sink: str, path: str, refused: str = "") -> None:
    """Raise ``ConfigError`` for a local ``path`` with characters that the sink's libraries would take for others."""
    problem = path_problem(path.removeprefix("file:"), refused)
    if problem is not None:
        rule = f"none of {' '.join(refused)}, no ::" if refused else "no ::"
        raise ConfigError(
            f"sink '{sink}': option 'path' {problem}: expected a path with {rule} and no control characters; choose "
            "another folder"
        )


def misfit(table: str, problems: Sequence[str]) -> InvalidInputError:
    """The rows do not fit a table that is there. Problems come last: one may end with a statement to copy."""
    return InvalidInputError(
        f"{table} does not fit the query (change the table; or cast or rename the query's columns, or leave some out "
        f"with option 'columns'): {'; '.join(problems)}"
    )


def altered(table: str, checkpoint: int | None, problems: Sequence[str]) -> InvalidInputError:
    """Rows wait for the commit of a checkpoint, and the table they were staged for is another one now. ``checkpoint``
    None: they are only tried."""
    if checkpoint is None:
        return InvalidInputError(f"{table} was altered since the query started: {'; '.join(problems)}")
    return InvalidInputError(
        f"{table} was altered behind the rows that wait for checkpoint {checkpoint}: {'; '.join(problems)}. None of "
        "them was written. Give the table what they need and start the query again, which commits them, or give them "
        "up with spark-ckpt abandon"
    )


def _is_relative(path: str) -> bool:
    return bool(path.strip()) and "://" not in path and not path.startswith(("/", "file:"))


def parse_names(sink: str, option: str, value: str) -> tuple[str, ...]:
    """A comma separated list of column names; blanks around names are dropped.

    Raises ``ConfigError`` for an empty or repeated name.
    """
    names = tuple(part.strip() for part in value.split(","))
    if "" in names or len(set(names)) != len(names):
        raise ConfigError(
            f"sink '{sink}': option '{option}' must be a comma separated list of distinct column names, got {value!r}"
        )
    return names


@dataclass(frozen=True)
class SinkOption:
    """One option as a sink declares it: read by :class:`SinkOptions`, listed by the documentation.

    ``default`` is what a user would write. A name that ends in ``.*`` is a family, passed through as it is.
    """

    name: str
    expects: str = "text"
    meaning: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    required: bool = False

    @property
    def is_family(self) -> bool:
        return self.name.endswith(".*")


STORAGE_OPTIONS = SinkOption(
    "storage.*",
    "text",
    "Options of the object store, as `spark.ckpt.storage.*` are for the job. Without any, those of the job are used "
    "where the scheme is the same.",
)


def option_names(declared: Sequence[SinkOption]) -> tuple[str, ...]:
    """The names of single options, for :attr:`TwoPhaseSink.OPTIONS`."""
    return tuple(o.name for o in declared if not o.is_family)


class SinkOptions:
    """The options of one sink, checked against those it declares; a bare name declares an option without a default.

    Values may be secrets, so there is no useful ``repr``, and only values of closed choices appear in errors.

    Raises:
        ConfigError: an option is unknown.
    """

    def __init__(self, sink: str, raw: Mapping[str, str], valid: Sequence[str | SinkOption]) -> None:
        self._sink = sink
        declared = [SinkOption(o) if isinstance(o, str) else o for o in valid]
        self._declared = {o.name.lower(): o for o in declared}
        self._valid = [*(o.name for o in declared), "columns", "where"]
        known = {name.lower() for name in option_names(declared)}
        prefixes = [o.name[:-1].lower() for o in declared if o.is_family]
        self._values = {k.lower(): v for k, v in raw.items() if k.lower() in known}
        self._prefixed = {k: v for k, v in raw.items() if k.lower().startswith(tuple(prefixes))}
        unknown = sorted(k for k in raw if k.lower() not in known and k not in self._prefixed)
        if unknown:
            raise ConfigError(
                f"sink '{sink}': unknown option(s) {', '.join(unknown)}; {self._valid_text()}{storage_hint(unknown)}"
            )

    def _valid_text(self) -> str:
        return f"valid options are {', '.join(self._valid)}"

    def text(self, name: str, default: str | None = None) -> str | None:
        """The value, or its default if the option is absent or blank."""
        value = self._values.get(name.lower(), "").strip()
        return value or default or self._declared[name.lower()].default

    def raw(self, name: str) -> str:
        """The value with its blanks, which may mean something, or its default."""
        return self._values.get(name.lower()) or self._declared[name.lower()].default or ""

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise ConfigError(f"sink '{self._sink}': option '{name}' is required; {self._valid_text()}")
        return value

    def choice(self, name: str, default: str | None = None) -> str:
        """One of the declared choices."""
        choices = self._declared[name.lower()].choices
        value = (self.text(name, default) or "").lower()
        if value not in choices:
            raise self.malformed(name, value, f"one of {', '.join(choices)}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.text(name)
        try:
            return default if value is None else bool(FLAG.parse(value))
        except ValueError as error:
            raise self.malformed(name, str(value), str(error)) from None

    def duration_ms(self, name: str, default: str = "") -> int:
        """A duration above 0, read as those of ``spark.ckpt.*`` are."""
        value = self.text(name, default) or ""
        try:
            return int(POSITIVE_DURATION.parse(value))
        except ValueError as error:
            raise self.malformed(name, value, str(error)) from None

    def names(self, name: str) -> tuple[str, ...]:
        """A comma separated list of column names, or the empty tuple if the option is absent."""
        value = self.text(name)
        return () if value is None else parse_names(self._sink, name, value)

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The family ``prefix*`` with the prefix removed."""
        return {k[len(prefix) :]: v for k, v in self._prefixed.items() if k.lower().startswith(prefix)}

    def fsspec(self) -> dict[str, Any]:
        """The family ``storage.*`` as keyword arguments for fsspec."""
        return fsspec_options(f"sink '{self._sink}': storage.", self.prefixed("storage."))

    def merge_keys(self) -> tuple[str, ...]:
        """``mergeKeys`` of a sink that declares two choices of ``mode``: the plain one, and the one that needs keys.

        Without ``mode``, giving keys asks for the second. Raises ``ConfigError`` if the two options disagree.
        """
        plain, keyed = self._declared["mode"].choices
        keys = self.names("mergeKeys")
        mode = self.choice("mode", keyed if keys else plain)
        if (mode == keyed) != bool(keys):
            raise ConfigError(
                f"sink '{self._sink}': mode '{keyed}' and option 'mergeKeys' need each other; "
                f"found mode '{mode}' {'with' if keys else 'without'} mergeKeys"
            )
        return keys

    def malformed(self, name: str, found: str, expected: str) -> ConfigError:
        return ConfigError(f"sink '{self._sink}': option '{name}' must be {expected}, got {found!r}")
