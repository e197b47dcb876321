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
from spark_ckpt.jobs._claiming import Claim
from spark_ckpt.jobs._io import JobIO
from spark_ckpt.jobs._said_at_start import say_sources, say_where
from spark_ckpt.jobs._samples import with_samples
from spark_ckpt.jobs._savepoint_uses import Noted
from spark_ckpt.jobs._savepoints import import_savepoint, read_savepoint
from spark_ckpt.jobs._settings import tell_changes
from spark_ckpt.jobs._spark_locations import refuse_newer_spark, this_spark
from spark_ckpt.jobs._start_facts import newest_generation, read_damage
from spark_ckpt.jobs._state_tables import check_constants, ensure_tables, stands_at
from spark_ckpt.jobs.ending import drained_before
from spark_ckpt.jobs.hooks import hook_name, load_hooks, restore_hook
from spark_ckpt.jobs.pausing import say_paused
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.rewriting import WriteRows
from spark_ckpt.jobs.sink_records import end_open, record_sinks
from spark_ckpt.jobs.spark_folder import Files, SparkFolder
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, job_url, sink_place
from spark_ckpt.names import checked_name
from spark_ckpt.protocol.evolution import changes
from spark_ckpt.protocol.migration import Migration, migrated
from spark_ckpt.protocol.records import UNDECIDED, Claimed, CompletionRecord, Edge, GenerationRecord, Topology
from spark_ckpt.protocol.recovery import (
    AUTO,
    NONE,
    SAFE,
    GoOn,
    RestoreFrom,
    StartFacts,
    StartFresh,
    as_savepoint,
    decide_start,
)
from spark_ckpt.protocol.restore_plan import RestorePlan, plan_of
from spark_ckpt.protocol.startup import Started, start_job
from spark_ckpt.redaction import redact_url
from spark_ckpt.sinks import rejects
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.registry import sink_class, written_columns
from spark_ckpt.storage.record_store import RecordStore

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class JobPlan:
    """What is to run: enough to decide and recover, without Spark. ``tables`` maps uid to its state table's schema.
    ``location`` is Spark's own, as it was given."""

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
    files_at: Callable[[str], Files | None] = lambda _: None
    """How a Spark location is read; None: by fsspec."""
    own_location: Callable[[int], str] | None = None
    """Where Spark keeps its part of a generation whose query is another one than that of the given location; None: the
    query cannot go elsewhere."""
    migrations: tuple[Migration, ...] = ()
    find_offset: Callable[[str, Any], Any] | None = None
    """The offset at which a source, by its uid, begins where ``startingFrom`` says."""

    write_rows: WriteRows | None = None
    """Writes state anew, by functions over the old rows."""
    edges: tuple[Edge, ...] = ()
    """How rows flow, for people."""
    bounded: bool = False
    """It reads what is available now, and ends."""

    def spark_folder(self, location: str) -> SparkFolder:
        return SparkFolder(location, self.config, self.files_at(location))


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
    say_paused(plan.job, plan.topology, records.store, plan.bounded)
    check_constants(plan.tables, plan.migrations)
    validate_sinks(plan.sinks, sink_place(plan.config, plan.job), plan.output)
    decided = records.decided()
    location = _current_location(decided, plan.location)
    folder = plan.spark_folder(location)
    refuse_newer_spark(folder, decided)
    storage = plan.config.storage_options()
    taken = Claim.asked(plan.config, records.store.url)
    claimed: list[Claimed] = []
    uses: list[Noted] = []

    def imported() -> int:
        claimed.extend([taken.record()] if taken is not None else [])
        uses.append(import_savepoint(records, plan.config.restore, storage, clock.now_ms()))
        return uses[0].use.checkpoint

    restore = _restore_option(plan, folder, decided, taken, imported)
    io = JobIO(
        plan.job,
        plan.config,
        plan.sinks,
        read_facts=lambda g: read_facts(records, plan, folder, g, restore),
        on_claim=None if on_claim is None else partial(on_claim, records),
        empty_location=folder.empty,
        choose_location=plan.own_location,
        find_offset=plan.find_offset,
        write_rows=plan.write_rows,
    )
    claim = replace(_claim(plan, location, records), claimed=next(iter(claimed), None))
    try:
        started = io.run(start_job(plan.job, claim, clock.now_ms()))
    except Exception:
        for noted in uses:
            noted.take_back(records)
        raise
    if taken is not None:
        taken.remove(records.decided())
    if plan.sinks_known:
        record_sinks(records, plan.sinks)
        end_open(records, plan.config, plan.job, plan.sinks, started.generation.generation)
    _say_gave_up(plan, started)
    _say_moved_on(plan, started)
    say_where(plan.job, plan.config.restore, location, records, started.decision)
    say_sources(plan.job, started.generation.topology, started.decision)
    tell_changes(plan.job, decided[-1] if decided else None, started.generation)
    _say_uncompared(plan, started.decision)
    _say_moved(plan, started)
    _say_changes(plan, started.decision)
    ensure_tables(records, plan.job, plan.tables, started)
    _restore_hook(plan, started.decision)
    return replace(_run_spec(plan, started), drained=drained_before(plan.job, started))


def dry_run(plan: JobPlan, with_sinks: bool = True, samples: int = 0) -> RestorePlan:
    """What :func:`begin` would make of the job, ``with_sinks`` of the plan or those that it has. Writes nothing.
    ``samples``: so many rows of each state table that changes.

    Raises what :func:`begin` raises ahead of its claim."""
    records = JobRecords(job_url(plan.config, plan.job), plan.config)
    check_constants(plan.tables, plan.migrations)
    decided = records.decided()
    if with_sinks:
        validate_sinks(plan.sinks, sink_place(plan.config, plan.job), plan.output)
    elif decided:
        plan = replace(plan, topology=replace(plan.topology, sinks=decided[-1].topology.sinks))
    folder = plan.spark_folder(_current_location(decided, plan.location))
    savepoints: list[CompletionRecord] = []
    stores: dict[int, RecordStore] = {}

    def not_imported() -> int:
        store = RecordStore(plan.config.restore, plan.config.storage_options())
        found = as_savepoint(read_savepoint(store)[1])
        savepoints.append(replace(found, checkpoint=max(records.newest_id(), found.checkpoint) + 1))
        stores[savepoints[0].checkpoint] = store
        return savepoints[0].checkpoint

    restore = _restore_option(plan, folder, decided, Claim.asked(plan.config, records.store.url), not_imported)
    facts = read_facts(records, plan, folder, _next_generation(records), restore)
    facts = replace(facts, completions=(*facts.completions, *savepoints))
    told = plan_of(facts, decide_start(facts))
    at = next((c for c in facts.completions if c.checkpoint == told.checkpoint), None)
    if at is None or not samples:
        return told
    return with_samples(told, stores.get(at.checkpoint, records.store), at, samples)


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
            redact_url(started.generation.spark_location),
            where,
        )


def _say_moved_on(plan: JobPlan, started: Started) -> None:
    """The one paragraph that tells whoever changed a query what became of it."""
    decision = started.decision
    if isinstance(decision, RestoreFrom) and decision.changed:
        begins = _listed(" These begin empty: ", decision.fresh_uids)
        dropped = _listed(" What the checkpoint has of these is dropped: ", decision.dropped_uids)
        _log.warning(
            "Job %s: %s. So the job goes on from its checkpoint %d: state and sources are where they were at it, and "
            "what was read since is read again.%s%s Spark's part of the job is at %s from now on; start it with the "
            "same checkpointLocation as ever.",
            plan.job,
            decision.changed.partition(";")[0],
            decision.checkpoint.checkpoint,
            begins,
            dropped,
            redact_url(started.generation.spark_location),
        )


def _listed(what: str, names: tuple[str, ...]) -> str:
    return f"{what}{', '.join(names)}." if names else ""


def _current_location(decided: list[GenerationRecord], given: str) -> str:
    """Where Spark keeps its part of the job that is started with the location ``given``: there, or where later starts
    went on, as the query had changed."""
    at, leads_here = given, {given}
    for g in decided:
        if leads_here & {g.spark_location, g.given_location}:
            at = g.spark_location
            leads_here.add(at)
    return at


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


def _claim(plan: JobPlan, location: str, records: JobRecords) -> GenerationRecord:
    """A generation that has not decided yet where it goes on from."""
    return GenerationRecord(
        _next_generation(records),
        UNDECIDED,
        location,
        None,
        clock.now_ms(),
        plan.topology,
        uuid.uuid4().hex[:16],
        plan.config.checkpoint_settings(),
        given_location=plan.location if location != plan.location else "",
        settings_from=plan.config.settings_from(),
        edges=plan.edges,
        spark=this_spark(),
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
        partitions=plan.spark_folder(record.spark_location).partitions() or plan.partitions,
        life=record.life,
        location=record.spark_location,
        inherited=started.inherited,
    )


def _restore_option(
    plan: JobPlan,
    folder: SparkFolder,
    decided: list[GenerationRecord],
    taken: Claim | None,
    imported: Callable[[], int],
) -> str | int:
    """``imported``: the id of the savepoint that it names; ``taken``: it is claimed."""
    restore = plan.config.restore
    if restore in (AUTO, NONE):
        return restore
    if restore.isdigit():
        return int(restore)
    if folder.location().planned is not None or (taken is not None and taken.is_done(decided)):
        return AUTO
    return imported()


def read_facts(
    records: JobRecords, plan: JobPlan, folder: SparkFolder, generation: int, restore: str | int
) -> StartFacts:
    # Before the completions are read: what an older driver completes meanwhile is found open here, and complete there.
    open_triggers = records.recorded().open_triggers()
    completions = tuple(records.completions())
    ids = [c.checkpoint for c in completions]
    return StartFacts(
        restore=restore,
        location=folder.location(),
        topology=plan.topology,
        generation=generation,
        generations=tuple(g for g in records.generations() if g.generation != generation),
        completions=completions,
        committed=records.confirmed(ids) if plan.sinks_known else frozenset(ids),
        batches=tuple(records.batches()),
        open_triggers=open_triggers,
        allow_non_restored=plan.config.allow_non_restored_state or plan.config.approve != SAFE,
        approve=plan.config.approve,
        damage=read_damage(records, generation, completions),
        abandoned=records.abandoned_pairs(),
        hook=hook_name(plan.config),
        refused=records.refused(),
        may_empty=plan.sinks_known,
        accepted=records.accepted(),
        newest_known=records.newest_known(),
        migrations=plan.migrations,
        may_move=plan.own_location is not None,
    )
