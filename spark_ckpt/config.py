"""Configuration of a job: every ``spark.ckpt.*`` key, its type, default and meaning, checked at start.

:class:`JobConfig` is the only place that knows the keys. It is parsed once, on the driver, from the session's conf
and the options of readers and writers, and travels to other processes as options (:meth:`JobConfig.to_options`).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from spark_ckpt.errors import ConfigError

PREFIX = "spark.ckpt."
STORAGE = "storage."

EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"

# Spark's JavaUtils.timeStringAs and byteStringAs, plus the long unit names of Trigger.ProcessingTime.
_MS_PER_UNIT: dict[str, float] = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 0.001),
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZE_EXPONENT = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_QUANTITY = re.compile(r"([0-9]+)\s*([a-z]*)", re.ASCII)
_JOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_HOOKS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


def redact_url(text: str) -> str:
    """``text`` with user name and password of a URL replaced, fit for messages and logs."""
    return _URL_CREDENTIALS.sub("***@", text)


def parse_duration_ms(text: str) -> int:
    """A duration as Spark writes it (``10s``, ``5 minutes``, ``1min``, ``100ms``; a plain number is milliseconds).

    Raises ``ValueError`` for anything else, and for fractions of a millisecond.
    """
    match = _QUANTITY.fullmatch(text.strip().lower())
    if match is None or match[2] not in _MS_PER_UNIT:
        raise ValueError("a duration such as 10s, 5 minutes, 1min or 100ms (a plain number is milliseconds)")
    value = int(match[1]) * _MS_PER_UNIT[match[2]]
    if value != int(value):
        raise ValueError("a whole number of milliseconds")
    return int(value)


def parse_size_bytes(text: str) -> int:
    """A size as Spark writes it (``64k``, ``4g``, ``10mb``; binary multiples; a plain number is bytes).

    Raises ``ValueError`` for anything else.
    """
    match = _QUANTITY.fullmatch(text.strip().lower())
    unit = match[2] if match else None
    if unit is not None and len(unit) > 1:
        unit = unit.removesuffix("b").removesuffix("i")
    if match is None or unit not in _SIZE_EXPONENT:
        raise ValueError("a size such as 64k, 10m or 4g (a plain number is bytes)")
    return int(int(match[1]) * 1024 ** _SIZE_EXPONENT[unit])


def _size_text(size_bytes: int) -> str:
    for unit in "tgmk":
        if size_bytes and size_bytes % 1024 ** _SIZE_EXPONENT[unit] == 0:
            return f"{size_bytes // 1024 ** _SIZE_EXPONENT[unit]}{unit}"
    return str(size_bytes)


@dataclass(frozen=True)
class _Kind:
    """How a value is read and written. ``parse`` raises ``ValueError`` with what was expected."""

    label: str
    parse: Callable[[str], Any]
    text: Callable[[Any], str] = str


def _at_least(kind: _Kind, low: int) -> _Kind:
    def parse(text: str) -> Any:
        value = kind.parse(text)
        if value < low:
            raise ValueError(f"a {kind.label} of at least {kind.text(low)}")
        return value

    return _Kind(kind.label, parse, kind.text)


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


def _count(low: int, high: int = 2**31 - 1) -> _Kind:
    def parse(text: str) -> int:
        value = _parse_int(text)
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return _Kind("number", parse)


def _one_of(*choices: str) -> _Kind:
    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(" or ".join(choices))
        return text.strip().lower()

    return _Kind(" or ".join(f"`{c}`" for c in choices), parse)


def _matching(label: str, pattern: re.Pattern[str], expected: str) -> _Kind:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text.strip()):
            raise ValueError(expected)
        return text.strip()

    return _Kind(label, parse)


_DURATION = _Kind("duration", parse_duration_ms, lambda ms: f"{ms}ms")
_POSITIVE_DURATION = _at_least(_DURATION, 1)
_SIZE = _at_least(_Kind("size", parse_size_bytes, _size_text), 1)
_FLAG = _Kind("true or false", _parse_flag, lambda flag: str(flag).lower())
_TEXT = _Kind("text", _parse_text)
_NAME = _matching("name", _JOB_NAME, "letters, digits, '_', '.' and '-', not beginning with '.' or '-'")
_CLASS = _matching("module:Class", _HOOKS, "a class as module:Class")


@dataclass(frozen=True)
class _Key:
    """One configuration key. ``default`` is what the documentation says; ``field`` is the attribute."""

    name: str
    kind: _Kind
    default: str
    meaning: str


def _key(name: str, kind: _Kind, default: str | None, meaning: str, otherwise: str = "") -> Any:
    """A field read from ``name``. Without a ``default`` it is None, and the documentation says ``otherwise``."""
    metadata = {"key": _Key(name, kind, otherwise if default is None else default, meaning)}
    return field(default=None if default is None else kind.parse(default), metadata=metadata)


@dataclass(frozen=True)
class JobConfig:
    """The checked configuration of one job. Immutable; safe to print (storage options are not shown)."""

    dir: str = field(
        metadata={"key": _Key("dir", _TEXT, "(required)", "Folder or fsspec URL that holds the jobs' folders.")}
    )
    job: str | None = _key(
        "job", _NAME, None, "The job's name, its identity across restarts and restores.", "the query's name"
    )
    interval_ms: int = _key("interval", _POSITIVE_DURATION, "10s", "Time between the triggers of two checkpoints.")
    initial_delay_ms: int | None = _key(
        "initialDelay", _DURATION, None, "Time before the first trigger.", "random between 0 and `interval`"
    )
    mode: str = _key(
        "mode",
        _one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        EXACTLY_ONCE,
        "Whether rows behind a barrier are held back until all channels have delivered it.",
    )
    min_pause_ms: int = _key(
        "minPause", _DURATION, "0s", "Shortest time between the end of a checkpoint and the next trigger."
    )
    timeout_ms: int = _key(
        "timeout", _POSITIVE_DURATION, "10min", "A checkpoint that is not complete after this time is aborted."
    )
    max_concurrent: int = _key("maxConcurrent", _count(1), "1", "Checkpoints that may be pending at the same time.")
    tolerable_failures: int = _key(
        "tolerableFailures", _count(0), "0", "Checkpoints that may fail in a row before the query fails."
    )
    retain: int = _key("retain", _count(1), "1", "Completed checkpoints to keep; older ones are removed.")
    retention: str = _key(
        "retention",
        _one_of("delete", "retain"),
        "retain",
        "What happens to the job's checkpoints when it is stopped for good (`query.cancel()`). "
        "A failure or a plain `stop()` never deletes them.",
    )
    restore: str = _key(
        "restore",
        _TEXT,
        "auto",
        "Where a start goes on: `auto` (the Spark location, else the newest checkpoint), `none` (a fresh start), "
        "a checkpoint id, or the path of a savepoint.",
    )
    allow_non_restored_state: bool = _key(
        "allowNonRestoredState", _FLAG, "false", "Restore even if the checkpoint has state of uids the query lacks."
    )
    max_parallelism: int = _key(
        "maxParallelism", _count(1, 32768), "128", "Number of key groups: the most partitions keyed state can use."
    )
    lanes: int | None = _key(
        "lanes", _count(1), None, "Parallelism of each source.", "decided at start from the cores of the cluster"
    )
    max_buffered_bytes: int = _key(
        "alignment.maxBufferedBytes",
        _SIZE,
        "64m",
        "Rows one key group may hold back during alignment; beyond it the checkpoint is declined.",
    )
    memtable_max_bytes: int = _key(
        "memtable.maxBytes", _SIZE, "64k", "Changed state of one key group kept in Spark's state store before a flush."
    )
    cache_dir: str | None = _key(
        "cache.dir", _TEXT, None, "Local folder of an executor's cache of state files.", "the system's temporary folder"
    )
    cache_max_bytes: int = _key("cache.maxBytes", _SIZE, "4g", "Size of that cache.")
    compaction_fanout: int = _key(
        "compaction.fanout", _count(2), "2", "Runs of similar size that are merged into one."
    )
    compaction_max_runs: int = _key(
        "compaction.maxRuns", _count(1), "8", "Runs a key group may have before all of them are merged."
    )
    history: bool = _key("history", _FLAG, "true", "Keep the Delta table of the job's checkpoints (one row each).")
    hooks: str | None = _key(
        "hooks", _CLASS, None, "Your class that is told of triggers, snapshots, completions and aborts.", "none"
    )
    trigger_poll_interval_ms: int = _key(
        "triggerPollInterval", _DURATION, "500ms", "How often an idle source looks for requests and triggers."
    )
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the fsspec file system, by name without ``storage.``. May hold secrets: never print it."""

    def __repr__(self) -> str:
        shown = ((f.name, getattr(self, f.name)) for f in fields(self) if f.repr)
        body = ", ".join(f"{n}={redact_url(v) if isinstance(v, str) else v!r}" for n, v in shown)
        return f"JobConfig({body}, storage=<{len(self.storage)} options>)"

    @classmethod
    def from_options(cls, conf: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> JobConfig:
        """Read the configuration from ``conf`` and then ``overrides``, which win.

        Driver, once a query; any process for options baked by :meth:`to_options`. Keys may carry the prefix
        ``spark.ckpt.`` or not and are matched without regard to case (Spark's options do not keep it). Keys of
        other parts of Spark (``spark.sql...``) are passed over, so a whole session conf may be given.

        Raises:
            ConfigError: a key is unknown, given twice or missing, or a value is malformed. The message lists what
                is valid and never shows storage options.
        """
        given = {**_normalised(conf), **_normalised(overrides or {})}
        storage = {k[len(STORAGE) :]: v for k, v in given.items() if k.startswith(STORAGE)}
        values = {
            name: _parse(key, given[key.name]) for name, key in _BY_FIELD.items() if key.name in given
        }
        if "dir" not in values:
            raise ConfigError(
                f"Expected {PREFIX}dir, found none. Set it to the folder or URL where checkpoints are kept, "
                "for example s3://bucket/checkpoints."
            )
        return cls(**values, storage=storage)

    def to_options(self) -> dict[str, str]:
        """Every setting that differs from its default, as options; ``from_options`` of it equals this config."""
        options = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _BY_FIELD and value is not None and value != f.default:
                key = _BY_FIELD[f.name]
                options[PREFIX + key.name] = key.kind.text(value)
        options.update({f"{PREFIX}{STORAGE}{name}": value for name, value in self.storage.items()})
        return options

    def storage_options(self) -> dict[str, Any]:
        """Keyword arguments for ``fsspec.filesystem``: dots nest, ``true``/``false`` and JSON lists are decoded."""
        result: dict[str, Any] = {}
        for name, text in self.storage.items():
            *parents, last = name.split(".")
            target = result
            for parent in parents:
                target = target.setdefault(parent, {})
                if not isinstance(target, dict):
                    raise ConfigError(f"{PREFIX}{STORAGE}{name} is set below a value; remove one of the two.")
            target[last] = _storage_value(name, text)
        return result


def _storage_value(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        # "from None": the JSON error holds the text, which may be a secret.
        raise ConfigError(f"{PREFIX}{STORAGE}{name} looks like JSON and is not; its value is not shown.") from None


def _key_of(f: Field[Any]) -> _Key | None:
    key = f.metadata.get("key")
    return key if isinstance(key, _Key) else None


_BY_FIELD: dict[str, _Key] = {f.name: key for f in fields(JobConfig) if (key := _key_of(f)) is not None}
_BY_LOWER: dict[str, str] = {key.name.lower(): key.name for key in _BY_FIELD.values()}


def config_keys() -> list[str]:
    """The names of all keys, without prefix, in the order of the documentation; ``storage.*`` is not among them."""
    return [key.name for key in _BY_FIELD.values()]


def is_config_key(option: str) -> bool:
    """Whether ``option``, with or without prefix, is read by :meth:`JobConfig.from_options`."""
    bare = option.lower().removeprefix(PREFIX)
    return bare in _BY_LOWER or bare.startswith(STORAGE)


def _normalised(options: Mapping[str, str]) -> dict[str, str]:
    """``options`` by full key name without prefix; unknown keys are refused and foreign ones left out."""
    result: dict[str, str] = {}
    for option, value in options.items():
        bare = option[len(PREFIX) :] if option.lower().startswith(PREFIX) else option
        if bare == option and option.lower().startswith("spark."):
            continue
        name = _canonical(bare)
        if result.setdefault(name, str(value)) != str(value):
            raise ConfigError(f"{PREFIX}{name} is given twice with different values; remove one of them.")
    return result


def _canonical(bare: str) -> str:
    if bare.lower().startswith(STORAGE) and len(bare) > len(STORAGE):
        if bare != bare.lower():
            raise ConfigError(
                f"Expected the name of a storage option in lower case, found {PREFIX}{bare}: Spark's options do not "
                "keep upper case. Put such a name into a JSON value of its parent."
            )
        return bare
    if bare.lower() not in _BY_LOWER:
        raise ConfigError(_unknown(bare))
    return _BY_LOWER[bare.lower()]


def _unknown(bare: str) -> str:
    near = difflib.get_close_matches(bare.lower(), _BY_LOWER, n=1)
    hint = f" Did you mean {PREFIX}{_BY_LOWER[near[0]]}?" if near else ""
    # The value is left out on purpose: a misspelt storage key may carry a secret.
    return f"Unknown key {PREFIX}{bare}.{hint} Valid keys: {', '.join(config_keys())}, {STORAGE}<option of fsspec>."


def _parse(key: _Key, text: str) -> Any:
    try:
        return key.kind.parse(text)
    except ValueError as error:
        raise ConfigError(f"{PREFIX}{key.name}: expected {error}, found {redact_url(text)!r}.") from None


def _rows() -> Iterable[tuple[str, str, str, str]]:
    for key in _BY_FIELD.values():
        plain = key.default.startswith("(") or " " in key.default or key.default == "none"
        yield f"`{PREFIX}{key.name}`", key.kind.label, key.default if plain else f"`{key.default}`", key.meaning
    yield (
        f"`{PREFIX}{STORAGE}*`",
        "text",
        "none",
        "Options of the fsspec file system of `dir` (names in lower case). Never shown in messages, logs or records.",
    )


def config_table() -> str:
    """All keys as a Markdown table: the generated part of ``docs/configuration.md``."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in _rows()]
    return "\n".join(lines) + "\n"


assert all(f.default is not MISSING for f in fields(JobConfig) if f.name not in ("dir", "storage"))
