"""Which sinks a job has, in ``sinks.json`` of its folder: written with each start, for clean-up from the command line.

No secret is written: of an option whose value is or holds one, only the name. Nothing that is read is imported: a sink
is named by its format, and resolved only if that is built in or registered in the process that reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError
from spark_ckpt.jobs.records import JobRecords, left_for_later
from spark_ckpt.jobs.spec import SinkSpec, sink_place, with_job_storage
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.life import identity
from spark_ckpt.redaction import has_secret, redact_url, secret_values
from spark_ckpt.sinks.registry import sink_class, sink_format
from spark_ckpt.storage.job_paths import SINKS_RECORD

_ENV = "SPARK_CKPT_SINK_"
_NOT_SECRET = {"mergekeys"}
"""Options whose names only look like a secret's."""


@dataclass(frozen=True)
class SinkEntry:
    """One sink as recorded. ``format`` None: a class of the user's own. ``secret``: options that are not recorded."""

    id: str
    format: str | None
    made_by: str = codec.named("class")
    options: Mapping[str, Any] = field(default_factory=dict)
    secret: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkEntries:
    sinks: tuple[SinkEntry, ...]


@dataclass(frozen=True)
class FoundSinks:
    """``left_out`` says, a sentence each, which sinks could not be made and what to do."""

    specs: tuple[SinkSpec, ...]
    left_out: tuple[str, ...]


def record_sinks(records: JobRecords, sinks: tuple[SinkSpec, ...]) -> None:
    """Driver, with each start. Sinks that the query no longer has go: their rows were committed or given up."""
    records.store.replace(SINKS_RECORD, "sinks", codec.write(SinkEntries(tuple(_entry(s) for s in sinks))))


def end_open(records: JobRecords, config: JobConfig, job: str, sinks: tuple[SinkSpec, ...], generation: int) -> None:
    """Let each sink end what generations before ``generation`` left open and no record names. Driver, with each start,
    behind its commits. What batch records name is aborted or committed by the protocol."""
    made = [spec.make(sink_place(config, job)) for spec in sinks]
    keep = [c for b in records.batches() for c in b.staged] + [c for k in records.completions() for c in k.committables]
    known_as = identity(job, records.life())
    for sink in made:
        try:
            sink.end_open(known_as, generation, keep)
        except CkptError as error:
            left_for_later("what earlier starts left open in sinks", error)


def recorded_sinks(records: JobRecords) -> tuple[SinkEntry, ...]:
    """The sinks of the job's newest start, without secrets. Raises ``CorruptStorageError`` for a damaged record."""
    try:
        found = records.store.read(SINKS_RECORD, "sinks")
        return () if found is None else codec.read(SinkEntries, found, SINKS_RECORD).sinks
    except CorruptStorageError as damage:
        raise CorruptStorageError(
            f"{str(damage).split(';')[0]}. It only says which sinks gc cleans up behind: the next start writes it"
            " again, and without the file gc goes on without sinks."
        ) from None


def recorded_ids(records: JobRecords) -> tuple[str, ...]:
    """As :func:`recorded_sinks`, of each its id."""
    return tuple(entry.id for entry in recorded_sinks(records))


def find_sinks(
    records: JobRecords, given: Mapping[str, str], environ: Mapping[str, str], confirmed: Collection[str] = ()
) -> FoundSinks:
    """The job's sinks as recorded; options in ``given``, by ``sink.option``, count before those in ``environ``.

    Whoever can write the folder could have secrets sent elsewhere: where they go to is given as they are, or the sink
    is among ``confirmed``, by somebody who was shown it.

    Raises ``ConfigError`` for an option of a sink that the job has not, ``CorruptStorageError`` for a damaged record.
    """
    entries = recorded_sinks(records)
    own = by_sink(given, [e.id for e in entries])
    specs, left_out = [], []
    for entry in entries:
        sink = entry.id
        try:
            specs.append(_resolved(entry, own[sink], environ, sink in confirmed, records.config))
        except CkptError as e:
            left_out.append(f"sink {sink!r}: {e}")
    return FoundSinks(tuple(specs), tuple(left_out))


def variable(sink: str, option: str) -> str:
    """The environment variable for an option: ``SPARK_CKPT_SINK_<ID>_<OPTION>``, what is no letter or digit as _."""
    return _ENV + re.sub(r"[^A-Z0-9]", "_", f"{sink}_{option}".upper())


def _entry(spec: SinkSpec) -> SinkEntry:
    secret = tuple(sorted(k for k, v in spec.options.items() if _is_secret(k, v)))
    plain = {k: v for k, v in spec.options.items() if k not in secret}
    made_by = f"{spec.cls.__module__}:{spec.cls.__qualname__}"
    return SinkEntry(spec.id, sink_format(spec.cls), made_by, plain, secret)


def _is_secret(name: str, value: str) -> bool:
    """Rather one too many: it only has to be given again."""
    if name.lower() in _NOT_SECRET:
        return False
    # A value of JSON may hold another level of names.
    inside = name.lower().startswith("storage.") and bool(secret_values({value: value}))
    return bool(secret_values({name: value})) or has_secret(value) or redact_url(value) != value or inside


def by_sink(given: Mapping[str, str], sinks: list[str]) -> dict[str, dict[str, str]]:
    own: dict[str, dict[str, str]] = {s: {} for s in sinks}
    for name, value in given.items():
        sink = max((s for s in sinks if name.startswith(f"{s}.")), key=len, default=None)
        if sink is None:
            raise ConfigError(f"expected an option as SINK.NAME of one of the job's sinks {sinks}, got {name!r}")
        own[sink][name[len(sink) + 1 :]] = value
    return own


def _check_where(sink: str, own: set[str], options: Mapping[str, str], given: Collection[str]) -> None:
    """``own``: the sink's options that say what it does there, and not where it is."""
    where = {k: v for k, v in options.items() if k not in given and k.lower() not in own}
    if where and any(_is_secret(n, options[n]) for n in given):
        shown = ", ".join(f"{k}={redact_url(v)}" for k, v in sorted(where.items()))
        raise ConfigError(
            f"its secrets would go to where the job's folder says it is: {shown}. If that is right, say so with "
            f"--confirm {sink}, or give it: --option {sink}.{min(where)}=..."
        )


def _check_secrets_there(entry: SinkEntry, options: Mapping[str, str]) -> None:
    have = {k.lower() for k in options}
    missing = [n for n in entry.secret if n.lower() not in have]
    if missing:
        ways = " and ".join(f"{variable(entry.id, n)} (or --option {entry.id}.{n}=...)" for n in missing)
        raise ConfigError(f"its option(s) {', '.join(missing)} hold a secret and are not recorded; set {ways}")


def _resolved(
    entry: SinkEntry, given: Mapping[str, str], environ: Mapping[str, str], confirmed: bool, config: JobConfig
) -> SinkSpec:
    sink, kind = entry.id, entry.format
    if kind is None:
        raise ConfigError(
            f"it is of your own class {entry.made_by}, and nothing that storage names is imported; run gc in"
            " Python: spark_ckpt.job(dir, name, sinks).gc()"
        )
    cls, recorded = sink_class(kind), {k: str(v) for k, v in entry.options.items()}
    set_there = {n: variable(sink, n) for n in {*entry.secret, *recorded, *cls.OPTIONS}}
    named = {n: environ[v] for n, v in set_there.items() if v in environ}
    options = recorded
    for name, value in (*named.items(), *given.items()):
        options = {**{k: v for k, v in options.items() if k.lower() != name.lower()}, name: value}
    _check_secrets_there(entry, options)
    if not confirmed:
        plain = {n.lower() for n in (*cls.OPTIONS, "columns", "where")} - {"url", "path"}
        _check_where(sink, plain, options, {*named, *given})
    spec = with_job_storage(SinkSpec(sink, cls, options), config)
    spec.make()  # what is wrong with the options is said before anything is removed
    return spec
