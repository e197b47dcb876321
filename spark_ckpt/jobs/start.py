"""Starting a query: validate, claim a generation, decide where to go on from, recover, wire, start. Driver.

Nothing is read from a source before the decision is durable. A crash anywhere in here: the next start claims a newer
generation and does it all again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from spark_ckpt import clock
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs._io import JobIO
from spark_ckpt.jobs._said_at_start import say_where
from spark_ckpt.jobs._savepoints import import_savepoint
from spark_ckpt.jobs._settings import tell_changes
from spark_ckpt.jobs._start_facts import newest_generation, read_damage
from spark_ckpt.jobs._state_tables import check_constants, ensure_tables, stands_at
from spark_ckpt.jobs.drained import drained_before
from spark_ckpt.jobs.hooks import hook_name, load_hooks, restore_hook
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import end_open, record_sinks
from spark_ckpt.jobs.spark_folder import Files, SparkFolder
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, job_url, sink_place
from spark_ckpt.names import checked_name
from spark_ckpt.protocol.evolution import changes
from spark_ckpt.protocol.migration import Migration, migrated
from spark_ckpt.protocol.records import UNDECIDED, GenerationRecord, Topology
from spark_ckpt.protocol.recovery import AUTO, NONE, GoOn, RestoreFrom, StartFacts, StartFresh
from spark_ckpt.protocol.startup import Started, start_job
from spark_ckpt.redaction import redact_url
from spark_ckpt.sinks import rejects
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.registry import sink_class, written_columns

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class JobPlan:
    """What is to run: enough to decide and recover, without Spark. ``tables`` maps uid to its state table's schema."""

    job: str
    config: JobConfig
    location: str
    topology: Topology
    sinks: tuple[SinkSpec, ...]
    output: pa.Schema
    tables: dict[str, pa.Schema] = field(default_factory=dict)
    partitions: int = 1
    """Shuffle partitions of the session, for a new location."""
    sinks_known: bool = True
    """False for the plain plugin's reader: its writer commits what earlier generations left."""
    location_files: Files | None = None
    """How the Spark location is read, if not by fsspec."""
    migrations: tuple[Migration, ...] = ()

    @property
    def spark_folder(self) -> SparkFolder:
        return SparkFolder(self.location, self.config, self.location_files)


def checked_sinks(requests: list[tuple[Any, dict[str, str]]], replacing: bool = False) -> tuple[SinkSpec, ...]:
    """Name the sinks (option ``uid``, else the format, numbered) and find their classes. Raises ``ConfigError``.

    ``replacing``: for output mode complete."""
    specs: list[SinkSpec] = []
    for number, (sink, options) in enumerate(requests):
        own = dict(options)
        name = own.pop("uid", None) or (sink if isinstance(sink, str) else sink.__name__.lower())
        if any(s.id == name for s in specs):
            name = f"{name}-{number}"
        checked_name("sink uid", name)
        cls = sink_class(sink) if isinstance(sink, str) else sink
        specs.append(SinkSpec(name, cls, absolute_options(name, cls, own), replacing))
        elsewhere = rejects.target_options(name, cls, specs[-1].options)
        if elsewhere is not None:
            uid = checked_name("sink uid", f"{name}-{rejects.NAME}")
            specs.append(SinkSpec(uid, cls, elsewhere, refused_by=name))
    return tuple(specs)


def validate_sinks(specs: tuple[SinkSpec, ...], place: JobPlace, rows: pa.Schema) -> None:
    """Driver, once in each start. ``rows``: the query's. Raises what the sinks raise."""
    for spec in specs:
        sink = spec.make(place)
        if any(s.refused_by == spec.id for s in specs):
            rejects.check(written_columns(sink, rows))
        sink.validate(spec.rows(rows))


def absolute_options(sink: str, cls: Any, options: dict[str, str]) -> dict[str, str]:
    """``options`` with paths that mean the same in every process. Driver, at start."""
    absolute: dict[str, str] = cls.absolute(options)
    for name in (n for n, value in absolute.items() if value != options[n]):
        _log.warning(
            "Option %s of sink %r is relative: this start uses %s. Set the absolute path, so that a start from another "
            "folder finds it.", name, sink, redact_url(absolute[name]),
        )  # fmt: skip
    return absolute


def begin(plan: JobPlan, on_claim: Callable[[JobRecords, int], None] | None = None) -> RunSpec:
    """Claim a new generation of the job and recover what earlier ones left; returns what the new one is.

    ``on_claim`` is told the generation as soon as it is claimed.

    Raises ``StorageNotWritableError``, ``ConfigError``, ``TopologyError``, ``InvalidInputError``, and what sinks
    raise when they validate or recover.
    """
    if plan.config.hooks is not None:
        load_hooks(plan.config.hooks)
    records = JobRecords(job_url(plan.config, plan.job), plan.config)
    records.store.check_writable(plan.job)
    check_constants(plan.tables, plan.migrations)
    validate_sinks(plan.sinks, sink_place(plan.config, plan.job), plan.output)
    restore = _restore_option(records, plan)
    io = JobIO(
        plan.job,
        plan.config,
        plan.sinks,
        read_facts=lambda g: read_facts(records, plan, g, restore),
        on_claim=None if on_claim is None else partial(on_claim, records),
        empty_location=plan.spark_folder.empty,
    )
    before = _last_decided(records)
    started = io.run(start_job(plan.job, _claim(plan, records), clock.now_ms()))
    if plan.sinks_known:
        record_sinks(records, plan.sinks)
        end_open(records, plan.config, plan.job, plan.sinks, started.generation.generation)
    _say_gave_up(plan, started)
    say_where(plan.job, plan.config.restore, plan.location, records, started.decision)
    tell_changes(plan.job, before, started.generation)
    _say_uncompared(plan, started.decision)
    _say_moved(plan, started)
    _say_changes(plan, started.decision)
    ensure_tables(records, plan.job, plan.tables, started)
    _restore_hook(plan, started.decision)
    return replace(_run_spec(plan, started), drained=drained_before(plan.job, started))


def _restore_hook(plan: JobPlan, decision: Any) -> None:
    start = stands_at(decision)
    if start is not None:
        restore_hook(plan.config, plan.job, start)


def _say_gave_up(plan: JobPlan, started: Started) -> None:
    if started.generation.gave_up is not None:
        begin = started.generation.restored_from
        where = f"from checkpoint {begin}" if begin else "from the beginning"
        _log.warning(
            "Job %s: a sink had refused rows that were staged. They are given up, %s was emptied, and the job reads "
            "again %s.",
            plan.job,
            redact_url(plan.location),
            where,
        )


def _last_decided(records: JobRecords) -> GenerationRecord | None:
    decided = [g for g in records.generations() if g.origin > 0]
    return max(decided, key=lambda g: g.generation, default=None)


def _say_uncompared(plan: JobPlan, decision: Any) -> None:
    if not isinstance(decision, StartFresh) and decision.uncompared:
        _log.warning(
            "Job %s: the state of %s was written by a version that did not record what it is made of, so whether the "
            "query's aggregates are still the same could not be compared. The next checkpoint records it.",
            plan.job,
            ", ".join(decision.uncompared),
        )


def _say_moved(plan: JobPlan, started: Started) -> None:
    for sink, (was, now) in started.moved.items():
        _log.warning(
            "Job %s: sink %r wrote to %s, and writes to %s from now on, which shows nothing of this job. Rows of "
            "earlier checkpoints are not written there.", plan.job, sink, was, now,
        )  # fmt: skip


def _say_changes(plan: JobPlan, decision: Any) -> None:
    old = getattr(decision, "was", None)
    if isinstance(decision, RestoreFrom):
        restored = decision.checkpoint
        old = migrated(restored.topology, plan.topology, plan.migrations, restored.checkpoint)
    for change in () if old is None else changes(old, plan.topology):
        begins = f" New, and empty so far: {', '.join(change.added)}." if change.added else ""
        ends = f" No longer kept: {', '.join(change.removed)}; added again, it begins empty." if change.removed else ""
        _log.warning(
            "Job %s: operator %r goes on from its state with other columns.%s%s", plan.job, change.uid, begins, ends
        )


def _claim(plan: JobPlan, records: JobRecords) -> GenerationRecord:
    """A generation that has not decided yet where it goes on from."""
    return GenerationRecord(
        _next_generation(records),
        UNDECIDED,
        plan.location,
        None,
        clock.now_ms(),
        plan.topology,
        uuid.uuid4().hex[:16],
        plan.config.checkpoint_settings(),
    )


def _next_generation(records: JobRecords) -> int:
    """The first of a life is numbered by the clock: a driver of an earlier life in a folder that was removed, if it
    still runs, must not find its own number in there and take the job for its own."""
    known = newest_generation(records)
    return known + 1 if known else clock.now_ms()


def _run_spec(plan: JobPlan, started: Started) -> RunSpec:
    record, decision = started.generation, started.decision
    return RunSpec(
        job=plan.job,
        config=plan.config,
        generation=record.generation,
        origin=record.origin,
        start_epoch=(record.restored_from or 0) + 1,
        restored_from=record.restored_from,
        adopt=decision.adopt.checkpoint if isinstance(decision, GoOn) and decision.adopt else None,
        topology=record.topology,
        partitions=plan.spark_folder.partitions() or plan.partitions,
        life=record.life,
        inherited=started.inherited,
    )


def _restore_option(records: JobRecords, plan: JobPlan) -> str | int:
    restore = plan.config.restore
    if restore in (AUTO, NONE):
        return restore
    if restore.isdigit():
        return int(restore)
    if plan.spark_folder.location().planned is not None:
        return AUTO
    return import_savepoint(records, restore, plan.config.storage_options(), clock.now_ms())


def read_facts(records: JobRecords, plan: JobPlan, generation: int, restore: str | int) -> StartFacts:
    # Before the completions are read: what an older driver completes meanwhile is found open here, and complete there.
    open_triggers = records.recorded().open_triggers()
    completions = tuple(records.completions())
    ids = [c.checkpoint for c in completions]
    return StartFacts(
        restore=restore,
        location=plan.spark_folder.location(),
        topology=plan.topology,
        generation=generation,
        generations=tuple(g for g in records.generations() if g.generation != generation),
        completions=completions,
        committed=records.confirmed(ids) if plan.sinks_known else frozenset(ids),
        batches=tuple(records.batches()),
        open_triggers=open_triggers,
        allow_non_restored=plan.config.allow_non_restored_state,
        damage=read_damage(records, generation, completions),
        abandoned=records.abandoned_pairs(),
        hook=hook_name(plan.config),
        refused=records.refused(),
        may_empty=plan.sinks_known,
        accepted=records.accepted(),
        newest_known=records.newest_known(),
        migrations=plan.migrations,
    )
