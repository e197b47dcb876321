"""Configuration of a job: every ``spark.ckpt.*`` key, its type, default and meaning, checked at start.

:class:`JobConfig` is the only place that knows the keys. It is parsed once, on the driver, from the session's conf
and the options of readers and writers, and travels to other processes as options (:meth:`JobConfig.to_options`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from spark_ckpt.config_values import (
    ADDRESS,
    CLASS,
    DURATION,
    ENDS,
    FLAG,
    NAME,
    PATH,
    POSITIONS,
    POSITIVE_DURATION,
    SIZE,
    TEXT,
    Kind,
    count,
    fsspec_options,
    one_of,
    parse_duration_ms,
    parse_size_bytes,
)
from spark_ckpt.errors import ConfigError
from spark_ckpt.redaction import redact_url

__all__ = [
    "PREFIX",
    "JobConfig",
    "config_keys",
    "config_table",
    "is_config_key",
    "is_job_option",
    "parse_duration_ms",
    "parse_size_bytes",
]

PREFIX = "spark.ckpt."
STORAGE = "storage."
QUERY, SESSION, DEFAULT = "query", "session", "default"
"""Where a key was set."""

NO_CLAIM, CLAIM = "no_claim", "claim"
JSON = "json"
EXACTLY_ONCE = "exactly_once"
AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True)
class _Key:
    """One configuration key. ``default`` is what the documentation says; ``field`` is the attribute."""

    name: str
    kind: Kind
    default: str
    meaning: str


def _key(name: str, kind: Kind, default: str | None, meaning: str, otherwise: str = "") -> Any:
    """A field read from ``name``. Without a ``default`` it is None, and the documentation says ``otherwise``."""
    metadata = {"key": _Key(name, kind, otherwise if default is None else default, meaning)}
    return field(default=None if default is None else kind.parse(default), metadata=metadata)


@dataclass(frozen=True)
class JobConfig:
    """The checked configuration of one job. Immutable; safe to print (storage options are not shown)."""

    dir: str = field(
        metadata={"key": _Key("dir", PATH, "(required)", "Folder or fsspec URL that holds the jobs' folders.")}
    )
    job: str | None = _key(
        "job", NAME, None, "The job's name, its identity across restarts and restores.", "the query's name"
    )
    interval_ms: int = _key(
        "interval",
        POSITIVE_DURATION,
        "10s",
        "Time between the triggers of two checkpoints. A barrier goes into the batch that begins nearest to its time.",
    )
    initial_delay_ms: int | None = _key(
        "initialDelay", DURATION, None, "Time before the first trigger.", "random between 0 and `interval`"
    )
    mode: str = _key(
        "mode",
        one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        EXACTLY_ONCE,
        "Whether rows behind a barrier are held back until all channels have delivered it.",
    )
    min_pause_ms: int = _key(
        "minPause", DURATION, "0s", "Shortest time between the end of a checkpoint and the next trigger."
    )
    timeout_ms: int = _key(
        "timeout",
        POSITIVE_DURATION,
        "10min",
        "A checkpoint that is not complete after this time, while the job runs, is aborted.",
    )
    max_concurrent: int = _key("maxConcurrent", count(1), "1", "Checkpoints that may be pending at the same time.")
    tolerable_failures: int = _key(
        "tolerableFailures",
        count(0),
        "0",
        "Checkpoints that may fail in a row before the query fails: those that took longer than `timeout` and those "
        "that storage failed for, not those declined because of `alignment.maxBufferedBytes`.",
    )
    retry_timeout_ms: int = _key(
        "retry.timeout",
        DURATION,
        "30s",
        "How long an operation on storage is tried again when it fails in a way that may pass (network, throttling, "
        "a busy device), before it counts as failed; never longer than half of `timeout`. 0 does not try again.",
    )
    retry_first_pause_ms: int = _key(
        "retry.firstPause",
        POSITIVE_DURATION,
        "100ms",
        "Pause before the first such try; it doubles up to 5s with every further one, and varies at random.",
    )
    retain: int = _key(
        "retain",
        count(1),
        "1",
        "Completed checkpoints to keep, savepoints not counted; older ones are removed. With 2 or more there is an "
        "older one to restore if a file of the newest is damaged.",
    )
    retention: str = _key(
        "retention",
        one_of("delete", "retain"),
        "retain",
        "What happens to the job's checkpoints when its query is stopped on purpose; a failure never deletes them.",
    )
    savepoint_every_ms: int | None = _key(
        "savepoint.every",
        POSITIVE_DURATION,
        None,
        "Take a savepoint into a new folder of `savepoint.dir`, `<job>-<UTC time>`, as often as this: the checkpoint "
        "that comes next is one.",
        "never",
    )
    savepoint_dir: str | None = _key(
        "savepoint.dir",
        PATH,
        None,
        "Folder or URL, outside the job's folder, of the savepoints of `savepoint.every`.",
        "none",
    )
    savepoint_keep: int = _key(
        "savepoint.keep",
        count(1),
        "3",
        "So many of those savepoints are kept, the newest; older ones of the job go when a newer one is there.",
    )
    restore: str = _key(
        "restore",
        PATH,
        "auto",
        "Where a start goes on: `auto` (the Spark location, else the newest checkpoint), `none` (a fresh start), "
        "a checkpoint id, or the path of a savepoint.",
    )
    restore_mode: str = _key(
        "restore.mode",
        one_of(NO_CLAIM, CLAIM),
        NO_CLAIM,
        "Whose the savepoint is that `restore` names: `no_claim`, it stays yours; `claim`, it is the job's, and the "
        "start removes it when the job has all of it.",
    )
    starting_from: Mapping[str, Any] | None = _key(
        "startingFrom",
        POSITIONS,
        None,
        'Where sources go on, by uid, instead of where the checkpoint has them: `{"orders": "latest"}`, `earliest`, '
        "`none` (where its options say), or an offset as `spark-ckpt describe` shows it. [Done once](changing-a-job.md"
        "#sources-that-begin-elsewhere): leave it beside the query.",
        "none",
    )
    ending_at: Mapping[str, Any] | None = _key(
        "endingAt",
        ENDS,
        None,
        'Where the run ends, by uid: `{"orders": {"orders": {"0": 42}}}`, an offset as `spark-ckpt describe` shows it, '
        "or a time with a zone. Its final checkpoint is [exactly there](changing-a-job.md#a-cut-at-a-position).",
        "none",
    )
    allow_non_restored_state: bool = _key(
        "allowNonRestoredState", FLAG, "false", "Restore even if the checkpoint has state of uids the query lacks."
    )
    approve: str = _key(
        "restore.approve",
        one_of("safe", "ask", "auto"),
        "safe",
        "What becomes of a start whose query lacks a source, an operator or an aggregate of the job, which would be "
        "lost: `safe` refuses it (an aggregate may go), `ask` waits with the plan until `spark-ckpt approve`, `auto` "
        "does it.",
    )
    require_uid: bool = _key(
        "requireUid", FLAG, "false", "Refuse keyed operators without `uid(...)`, instead of deriving it."
    )
    idle_timeout_ms: int | None = _key(
        "source.idleTimeout",
        POSITIVE_DURATION,
        None,
        "A source that nothing comes from for so long is idle: until something comes, it does not hold back the "
        "watermark of several `withWatermark` (Flink's `withIdleness`). The watermark never goes back; what comes late "
        "from it then is late.",
        "never",
    )
    close_windows: bool = _key(
        "endOfInput.closeWindows",
        FLAG,
        "false",
        "At the end of bounded input (`availableNow`, or every source has ended) windows and sessions that are open "
        "come out with the final checkpoint. Rows for them that a later start brings are late.",
    )
    max_parallelism: int = _key(
        "maxParallelism", count(1, 32768), "128", "Number of key groups: the most partitions keyed state can use."
    )
    chaining: bool = _key(
        "chaining",
        FLAG,
        "true",
        "Run Python operations that follow each other in one Python worker. Spark then counts batches, not rows, as "
        "the input of a source whose rows never reach the JVM.",
    )
    static_join_max_bytes: int = _key(
        "staticJoin.maxBytes",
        SIZE,
        "128m",
        "Largest static DataFrame, in Arrow, that a stream is joined with in Python; each Python worker keeps one. "
        "Spark joins larger ones.",
    )
    lanes: int | None = _key(
        "lanes", count(1), None, "Parallelism of each source.", "decided at start from the cores of the cluster"
    )
    max_buffered_bytes: int = _key(
        "alignment.maxBufferedBytes",
        SIZE,
        "256m",
        "Rows one operator task may hold back during alignment; beyond it the checkpoint is declined.",
    )
    memtable_max_bytes: int = _key(
        "memtable.maxBytes",
        SIZE,
        "1m",
        "Changed state of one operator task kept in Spark's state store before a flush.",
    )
    spark_dir: str | None = _key(
        "sparkDir",
        PATH,
        None,
        "Folder, or URL that Hadoop knows and executors reach, in which each job has its Spark location.",
        "below `dir`, or, [where Spark cannot write there](object-stores.md#sparks-own-location), a local folder",
    )
    cache_dir: str | None = _key(
        "cache.dir", TEXT, None, "Local folder of an executor's cache of state files.", "the system's temporary folder"
    )
    cache_max_bytes: int = _key("cache.maxBytes", SIZE, "4g", "Size of that cache.")
    compaction_fanout: int = _key("compaction.fanout", count(2), "6", "Runs of similar size that are merged into one.")
    compaction_max_runs: int = _key(
        "compaction.maxRuns", count(1), "12", "Levels of runs a look-up may search before more of them are merged."
    )
    history: bool = _key(
        "history", FLAG, "true", "Keep the Delta table of the job's checkpoints (one row each), and their statistics."
    )
    hooks: str | None = _key(
        "hooks", CLASS, None, "Your class that is told of triggers, snapshots, completions and aborts.", "none"
    )
    hooks_timeout_ms: int = _key(
        "hooks.timeout",
        DURATION,
        "10s",
        "How long `on_trigger` of your hooks may take; beyond it the checkpoint fails.",
    )
    trigger_poll_interval_ms: int = _key(
        "triggerPollInterval", DURATION, "500ms", "How often an idle source looks for requests and triggers."
    )
    metrics_port: str | None = _key(
        "metrics.port",
        ADDRESS,
        None,
        "Port at which the driver answers Prometheus at `/metrics`, at 127.0.0.1 only, while its queries run; or "
        "`address:port`, which needs a token in the driver's environment, `SPARK_CKPT_UI_TOKEN`. 0: one that is free.",
        "none",
    )
    otel: bool = _key(
        "otel", FLAG, "false", "Give metrics and a trace a checkpoint to the driver's OpenTelemetry providers."
    )
    log_format: str = _key(
        "log.format",
        one_of("text", JSON),
        "text",
        "`json`: what the job's Python processes log is one JSON object a line, on standard error, from INFO on.",
    )
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store, by name without ``storage.``. May hold secrets: never print it."""
    set_in: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Key -> ``session`` or ``query``, of those that were set. For people; :meth:`to_options` leaves it out."""

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
        values = {name: _parse(key, given[key.name]) for name, key in _BY_FIELD.items() if key.name in given}
        if "dir" not in values:
            raise ConfigError(
                f"Expected {PREFIX}dir, found none. Set it to the folder or URL where checkpoints are kept, "
                "for example s3://bucket/checkpoints."
            )
        if values.get("savepoint_every_ms") is not None and values.get("savepoint_dir") is None:
            raise ConfigError(
                f"{PREFIX}savepoint.every: expected {PREFIX}savepoint.dir beside it, the folder or URL of the "
                "savepoints, found none."
            )
        set_in = {**dict.fromkeys(_normalised(conf), SESSION), **dict.fromkeys(_normalised(overrides or {}), QUERY)}
        return cls(**values, storage=storage, set_in=set_in)

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

    def checkpoint_settings(self) -> dict[str, str]:
        """How checkpoints are taken, by key without prefix, as text; what a start records. Holds no secret."""
        out = {}
        for name in _CHECKPOINTING:
            key, value = _BY_FIELD[name], getattr(self, name)
            out[key.name] = key.default if value is None else str(key.kind.text(value))
        return out

    def settings_from(self) -> dict[str, str]:
        """Where each of :meth:`checkpoint_settings` was set: ``query``, ``session`` or ``default``."""
        names = (_BY_FIELD[name].name for name in _CHECKPOINTING)
        return {name: self.set_in.get(name, DEFAULT) for name in names}

    def storage_options(self) -> dict[str, Any]:
        """Keyword arguments for ``fsspec.filesystem``: dots nest, ``true``/``false`` and JSON lists are decoded."""
        return fsspec_options(f"{PREFIX}{STORAGE}", self.storage)


def _key_of(f: Field[Any]) -> _Key | None:
    key = f.metadata.get("key")
    return key if isinstance(key, _Key) else None


_BY_FIELD: dict[str, _Key] = {f.name: key for f in fields(JobConfig) if (key := _key_of(f)) is not None}
_CHECKPOINTING = (
    "interval_ms",
    "initial_delay_ms",
    "mode",
    "min_pause_ms",
    "timeout_ms",
    "max_concurrent",
    "tolerable_failures",
    "retain",
    "retention",
    "max_buffered_bytes",
    "history",
)
_BY_LOWER: dict[str, str] = {key.name.lower(): key.name for key in _BY_FIELD.values()}


def config_keys() -> list[str]:
    """The names of all keys, without prefix, in the order of the documentation; ``storage.*`` is not among them."""
    return [key.name for key in _BY_FIELD.values()]


def is_config_key(option: str) -> bool:
    """Whether ``option``, with or without prefix, is read by :meth:`JobConfig.from_options`."""
    bare = option.lower().removeprefix(PREFIX)
    return bare in _BY_LOWER or bare.startswith(STORAGE)


def is_job_option(option: str) -> bool:
    """Whether an option of a reader or writer configures the job, and not its source or sink.

    Without the prefix, ``mode`` (append, merge, upsert) and ``storage.*`` are those of the source or sink. What has
    the prefix is the job's also if there is no such key, so that a typing error is answered with the keys.
    """
    shared = option.lower() == "mode" or option.lower().startswith(STORAGE)
    return option.lower().startswith(PREFIX) or (is_config_key(option) and not shared)


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
    return f"Unknown key {PREFIX}{bare}.{hint} Valid keys: {', '.join(config_keys())}, {STORAGE}<option of the store>."


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
        "Options of the object store of `dir` (names in lower case). Never shown in messages, logs or records.",
    )


def config_table() -> str:
    """All keys as a Markdown table: the generated part of ``docs/configuration.md``."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in _rows()]
    return "\n".join(lines) + "\n"


assert all(f.default is not MISSING for f in fields(JobConfig) if f.name not in ("dir", "storage", "set_in"))
