"""A job by its folder, running or not: history, state, savepoints, clean-up. Needs no Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

from spark_ckpt import clock, shown
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs._deletion import delete_checkpoints
from spark_ckpt.jobs._garbage import GarbageCollector
from spark_ckpt.jobs._samples import with_samples
from spark_ckpt.jobs._savepoints import copy_retained
from spark_ckpt.jobs._unheard import Unheard
from spark_ckpt.jobs._verify import verify_job
from spark_ckpt.jobs.checkpoints import Checkpoints
from spark_ckpt.jobs.heartbeat import is_heard, require_stopped
from spark_ckpt.jobs.pausing import end_pause, note_pause, pause_stands, paused
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.report import recorded_row, recorded_rows
from spark_ckpt.jobs.requests import Requested, RequestWatch, ask, leave_request
from spark_ckpt.jobs.rollback import AsOf, Rollback, plan_rollback, run_rollback
from spark_ckpt.jobs.sink_records import by_sink, find_sinks, recorded_ids
from spark_ckpt.jobs.spec import SinkSpec, job_url, sink_place, with_job_storage
from spark_ckpt.jobs.state import State
from spark_ckpt.jobs.statistics import tell
from spark_ckpt.jobs.visible import await_visible, check_targets, topology_of
from spark_ckpt.protocol.abandon import decide_abandon
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import (
    CHECKPOINT,
    FINAL,
    SAVEPOINT,
    AbandonedRecord,
    AbortedRecord,
    AcceptedRecord,
    CompletionRecord,
    Kind,
    PausedRecord,
)
from spark_ckpt.protocol.restore_plan import RestorePlan
from spark_ckpt.protocol.setback import shown_by
from spark_ckpt.protocol.topology import Refuse
from spark_ckpt.redaction import redact_url
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.registry import sink_class
from spark_ckpt.sinks.staging import is_of_job, tag
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.history import History, HistoryRow
from spark_ckpt.storage.history_repair import rebuild_history
from spark_ckpt.storage.job_paths import JOB_RECORD


class Job(Hinting):
    """One job's folder. ``sinks`` are needed only to clean up behind them."""

    def __init__(self, config: JobConfig, name: str, sinks: tuple[SinkSpec, ...] = ()) -> None:
        self.config = config
        self.name = name
        self.url = job_url(config, name)
        self.records = JobRecords(self.url, config)
        self._sinks = sinks

    def __repr__(self) -> str:
        return f"Job({self.name!r}, dir={redact_url(self.config.dir)!r})"

    def _repr_html_(self) -> str | None:
        return shown.html("job", self)

    def checkpoints(self) -> Checkpoints:
        """The checkpoint history, oldest first; also a Delta table at ``<dir>/<job>/history``.

        A dict for each, those that were given up too: ``id``, ``kind`` (checkpoint, savepoint, final), ``outcome``
        (completed, aborted, ...), ``start`` (1: the job's first), times in epoch milliseconds, ``duration_ms``,
        sizes in bytes, rows and keys. Empty with ``spark.ckpt.history=false``. What
        :meth:`spark_ckpt.CkptQuery.checkpoint` returned is in it. ``.pandas()`` makes a DataFrame of it.
        """
        rows = self._rows_so_far()
        starts = {g: n for n, g in enumerate(sorted(self.records.ids("generations")), 1)}
        return Checkpoints(
            {
                **{f.name: getattr(r, f.name) for f in fields(r)},
                "duration_ms": r.duration_ms,
                "start": starts.get(r.generation),
            }
            for r in rows
        )

    def _rows_so_far(self) -> list[HistoryRow]:
        """Whoever asked for a checkpoint has its answer a moment before its row is there. The records have it then."""
        rows = History(self.records.paths.history, self.config.storage_options()).read()
        newest = self.records.newest_committed()
        if not newest or (rows and rows[-1].id >= newest):
            return rows
        row = recorded_row(self.records, newest)
        start = self.records.generation(row.generation) if row is not None else None
        kept = start is not None and start.settings.get("history") != "false"
        return [*rows, row] if row is not None and kept else rows

    def statistics(self) -> dict[str, Any]:
        """What the job's checkpoints were like since it began, whatever has been retained, as plain values.

        ``counts`` by outcome, with those pending and restored; ``checkpoints`` and ``operators`` (``all`` and by
        ``subtasks``) give for sizes, rows and each phase ``count``, ``min``, ``mean``, ``max`` and percentiles (``p50``
        to ``p99.9``, off by 2 % at most); ``restored``: the newest restores. Nothing is kept with
        ``spark.ckpt.history=false``.
        """
        return tell(self.records)

    def repair_history(self) -> int:
        """Make the checkpoint history anew, from the records and from its rows that can still be read.

        Returns how many checkpoints it has then. The job need not be stopped.
        """
        return rebuild_history(self.records.paths.history, recorded_rows(self.records), self.config.storage_options())

    def completed(self) -> list[CompletionRecord]:
        """The checkpoints that can be restored, oldest first."""
        return self.records.completions()

    def show(self, checkpoint: int) -> CompletionRecord:
        """The completion record of ``checkpoint``, an id. Raises ``InvalidInputError`` if there is none."""
        found = self.records.completion(checkpoint)
        if found is None:
            have = [c.checkpoint for c in self.completed()]
            raise InvalidInputError(f"job {self.name!r} has no checkpoint {checkpoint}; it has {have}")
        return found

    def aborted(self, checkpoint: int) -> AbortedRecord | None:
        """Why ``checkpoint`` was given up; None if it was not, or that is no longer recorded."""
        if self.records.completion(checkpoint) is not None:
            return None
        return self.records.aborted(checkpoint)

    def settings(self, checkpoint: int) -> dict[str, str]:
        """The checkpointing settings of the start that completed ``checkpoint``; empty if that recorded none."""
        start = self.records.generation(self.show(checkpoint).generation)
        return {} if start is None else dict(start.settings)

    def state_table(self, uid: str, checkpoint: int | None = None) -> tuple[str, int]:
        """(URL, version) of the Delta table that is ``uid``'s state at ``checkpoint`` (default: the newest).

        Raises ``InvalidInputError`` if there is no such checkpoint, or no such operator in it::

            url, version = spark_ckpt.job("/data/checkpoints", "orders").state_table("totals")
            spark.read.format("delta").option("versionAsOf", version).load(url)
        """
        record = self._completion(checkpoint)
        if uid not in record.tables:
            raise InvalidInputError(
                f"checkpoint {record.checkpoint} has no state of {uid!r}, only of {list(record.tables)}"
            )
        return self.records.paths.state(uid), record.tables[uid].version

    def state(self, uid: str, checkpoint: int | None = None) -> State:
        """The state of ``uid`` at ``checkpoint`` (default: the newest): as Arrow or pandas, one key, what changed.

        Raises ``InvalidInputError`` if there is no such checkpoint, or no such operator in it::

            state = spark_ckpt.job("/data/checkpoints", "orders").state("totals")
            state.get("alice")
            state.diff(6, 7).to_pandas()
        """
        return State(self.records.store, self._completion(checkpoint), uid, lambda k: self.state(uid, k))

    def _completion(self, checkpoint: int | None) -> CompletionRecord:
        if checkpoint is not None:
            return self.show(checkpoint)
        done = self.completed()
        if not done:
            raise InvalidInputError(f"job {self.name!r} has no completed checkpoint yet")
        return done[-1]

    def savepoint(
        self,
        path: str,
        timeout_s: float = 600.0,
        progress: Callable[[str], None] = lambda _: None,
        checkpoint: int | None = None,
    ) -> int:
        """Ask the running job for a savepoint in the empty folder ``path`` (or URL) and wait for it; returns its id.

        With ``checkpoint``, the id of a retained one, nobody is asked: that one is copied, whether the job runs or not,
        and can start or not. Stopped on the way, the same call finishes it.

        ``progress`` is told, every ten seconds, if the driver of the job is not heard of any more. Raises as
        :meth:`spark_ckpt.CkptQuery.savepoint`, after ``timeout_s`` seconds if the job does not answer, and
        ``InvalidInputError`` at once if no driver runs it, or if some sink lacks the rows of ``checkpoint`` yet.
        """
        if checkpoint is None:
            return self._ask(path, False, timeout_s, progress)
        copy_retained(self.name, self.records, checkpoint, path)
        return checkpoint

    def checkpoint(self, timeout_s: float = 600.0, progress: Callable[[str], None] = lambda _: None) -> int:
        """Ask the running job for a checkpoint and wait until every sink has committed it; returns its id.

        ``progress``, ``timeout_s`` (seconds) and what it raises are as with :meth:`savepoint`.
        """
        return self._ask(None, False, timeout_s, progress, kind=CHECKPOINT)

    def request_checkpoint(self, timeout_s: float = 3600.0) -> str:
        """As :meth:`checkpoint`, without waiting: as :meth:`request_savepoint`, ``timeout_s`` too."""
        return self._leave(CHECKPOINT, None, timeout_s)

    def request_stop(self, path: str | None = None, timeout_s: float = 3600.0, drain: bool = False) -> str:
        """As :meth:`stop` with ``path`` and ``drain``, without waiting: as :meth:`request_savepoint`, and
        ``timeout_s``, too."""
        _require_target(path, drain)
        return self._leave(SAVEPOINT if path is not None else FINAL, path, timeout_s, True, drain)

    def request_pause(self, reason: str, timeout_s: float = 3600.0) -> str | None:
        """As :meth:`pause` for ``reason``, without waiting: as :meth:`request_savepoint`, ``timeout_s`` too; None if no
        driver runs the job."""
        note_pause(self.records, self.name, reason)
        return self._leave(CHECKPOINT, None, timeout_s) if is_heard(self.records) else None

    def request_savepoint(self, path: str, timeout_s: float = 3600.0) -> str:
        """As :meth:`savepoint`, without waiting: returns an id to ask :meth:`requested` for.

        The job begins it within ``timeout_s`` seconds, or never. Raises ``InvalidInputError`` if no driver runs the
        job, or if ``path`` is not free.
        """
        return self._leave(SAVEPOINT, path, timeout_s)

    def _leave(
        self, kind: Kind, path: str | None, timeout_s: float, terminal: bool = False, drain: bool = False
    ) -> str:
        Unheard(self.records, self.name, timeout_s, lambda _: None).require_heard()
        return leave_request(self.records, kind, path, terminal, timeout_s, drain)

    def requested(self, request: str) -> Requested:
        """What became of ``request``, an id of :meth:`request_savepoint` and the like, for a day.

        ``state`` is ``open``, ``complete`` or ``failed``. Raises ``InvalidInputError`` if nothing is known of it."""
        return RequestWatch(self.records, request).look()

    def stop(
        self,
        path: str | None = None,
        timeout_s: float = 600.0,
        drain: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Ask the running job for a synchronous savepoint in ``path``; returns its id, within ``timeout_s`` seconds.

        The query then idles until its owner stops it. With ``drain``, which needs no ``path``, it ends by itself, for
        good: see :meth:`spark_ckpt.CkptQuery.stop`, which says what it raises. ``InvalidInputError`` for neither.
        ``progress`` is as with :meth:`savepoint`.
        """
        _require_target(path, drain)
        return self._ask(path, True, timeout_s, progress, drain)

    def _ask(
        self,
        path: str | None,
        terminal: bool,
        timeout_s: float,
        progress: Callable[[str], None],
        drain: bool = False,
        kind: Kind | None = None,
    ) -> int:
        kind = kind or (SAVEPOINT if path is not None else FINAL)
        unheard = Unheard(self.records, self.name, timeout_s, progress)
        unheard.require_heard()
        return ask(self.records, kind, path, terminal, timeout_s, unheard, drain)

    def pause(
        self, reason: str, timeout_s: float = 600.0, progress: Callable[[str], None] = lambda _: None
    ) -> int | None:
        """Let the job's sources stand still behind a checkpoint, until :meth:`resume`; the query goes on, with
        checkpoints of what it has.

        Returns the id of that checkpoint, once sinks show all that was read; None if no driver runs the job. It holds
        for later starts, too, which read nothing and say ``reason`` in the log; a start with ``availableNow`` is
        refused. Of a job that is paused the first reason stays. Raises ``InvalidInputError`` for an empty ``reason``
        and for a job with streams that Spark itself reads, and ``CheckpointFailedError`` if the checkpoint fails or is
        not complete within ``timeout_s`` seconds: the pause stands all the same, from the next checkpoint on.
        ``progress`` is as with :meth:`savepoint`::

            spark_ckpt.job("/data/checkpoints", "orders").pause("the warehouse is migrated until noon")
        """
        note_pause(self.records, self.name, reason)
        if not is_heard(self.records):
            return None
        with pause_stands(self.name):
            return self._ask(None, False, timeout_s, progress, kind=CHECKPOINT)

    def await_visible(
        self,
        offsets: Mapping[str, Any],
        timeout_s: float = 600.0,
        progress: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Wait until every sink shows all that sources had in front of ``offsets``, by uid; returns the checkpoint.

        Offsets are as :meth:`spark_ckpt.Savepoint.describe` and ``spark-ckpt status`` show them. The job is asked for
        checkpoints meanwhile. Raises ``ConfigError`` for sources whose offsets cannot be compared (those of Kafka,
        Delta, files, databases and ``rate`` can), ``CheckpointFailedError`` after ``timeout_s`` seconds, and
        ``InvalidInputError`` if nobody runs the job, or it is paused. ``progress`` is as with :meth:`savepoint`::

            job.await_visible({"orders": {"offsets": {"orders": {"0": 1200, "1": 1180}}}})
        """
        check_targets(topology_of(self.records, self.name), offsets)

        def checkpoint(left_s: float) -> int:
            return self.checkpoint(left_s, progress)

        return await_visible(self.records, self.name, lambda: offsets, checkpoint, timeout_s)

    def paused(self) -> PausedRecord | None:
        """Since when the job is paused (``time_ms``), and why (``reason``); None if it is not."""
        return paused(self.records.store)

    def resume(self) -> PausedRecord | None:
        """End a pause: sources read on within ``spark.ckpt.triggerPollInterval``. Returns what the pause was, None if
        there was none."""
        return end_pause(self.records.store)

    def abandon(self, checkpoint: int, sink: str, force: bool = False) -> None:
        """Give up, for good, what completed ``checkpoint`` would commit in ``sink``; only while the job is stopped.

        For a commit that can never succeed and that every start tries first. The next start commits the checkpoint in
        its other sinks and passes over this one; ``gc`` removes what was staged there. Raises ``InvalidInputError`` if
        there is no such commit to give up, or a driver runs the job (``force``: you know that none does). Rows the sink
        took before it failed (files already moved) stay.
        """
        self._require_stopped("abandon", force)
        records = self.records
        decided = decide_abandon(checkpoint, sink, records.completions(), records.ids("committed"), clock.now_ms())
        if isinstance(decided, Refuse):
            raise InvalidInputError(f"job {self.name!r}: {decided.reason}")
        records.abandon(decided)

    def accept(self, checkpoint: int, sink: str, force: bool = False) -> None:
        """Let the job start though ``sink`` shows ``checkpoint`` as its newest; only while the job is stopped.

        For a target, or a job's folder, that was set back to an older copy, as the refused start says: the job goes on
        with the gap in that sink, or writes rows there again. It holds for this set-back and no later one. Raises
        ``InvalidInputError`` if the job has no such sink, or a driver runs the job (``force``: you know that none
        does).
        """
        self._require_stopped("accept", force)
        records = self.records
        sinks = {s for g in records.generations() for s in g.topology.sinks} | set(recorded_ids(records))
        if sink not in sinks or checkpoint < 0:
            raise InvalidInputError(
                f"job {self.name!r}: expected one of its sinks {sorted(sinks)} and the id of a checkpoint, or 0, "
                f"found {sink!r} and {checkpoint}"
            )
        newest = max(records.ids("generations"), default=0)
        records.accept(AcceptedRecord(sink, checkpoint, records.newest_known(), clock.now_ms(), newest))

    def plan(self, samples: int = 0) -> RestorePlan | None:
        """What the start that waits for an approval (``spark.ckpt.restore.approve=ask``) would make of the job; None if
        none waits. Printed, it is a table. ``samples``: with so many rows, keys and values, of each state table that
        changes."""
        found = self.records.plan(max(self.records.ids("generations"), default=0))
        if found is None or found.checkpoint is None or not samples:
            return found
        return with_samples(found, self.records.store, self.show(found.checkpoint), samples)

    def approve(self) -> RestorePlan:
        """Let the start that waits go on, and lose what its plan says. Returns the plan.

        It holds for that start and that plan: if the job completes a checkpoint meanwhile, the start asks again. Raises
        ``InvalidInputError`` if none waits.
        """
        plan = self.plan()
        if plan is None:
            raise InvalidInputError(
                f"job {self.name!r}: expected a start that waits to be approved, found none; a start waits with "
                "spark.ckpt.restore.approve=ask where the query lacks something that the job has"
            )
        self.records.approve(max(self.records.ids("generations")), plan)
        return plan

    def rollback(self, checkpoint: int, partial: bool = False, dry_run: bool = False, force: bool = False) -> Rollback:
        """Take the job back to ``checkpoint``, a retained one: its state, its offsets, and the targets of its sinks.

        Only while the job is stopped. The next start goes on from there; what is complete behind it and waits for a
        sink is given up. Delta and Iceberg tables go back to the version that they had, if nobody else changed rows
        since; files and rows of option ``checkpointColumn`` behind the checkpoint are removed. Other targets keep what
        they have: then it is refused, unless ``partial``. Sinks are those that the job was opened with, or else those
        that its folder names. Returns what it did; with ``dry_run`` what it would do, and nothing is changed.

        Stopped on the way, no start goes on until the same call has finished it. Raises ``ConfigError`` for a
        checkpoint that is not retained, ``InvalidInputError`` for half a rollback, or if a driver runs the job
        (``force``: you know that none does)::

            job = spark_ckpt.job("/data/checkpoints", "orders")
            print(job.rollback(7, dry_run=True))
            job.rollback(7)
        """
        self._require_stopped("rollback", force)
        specs = self._own_sinks()
        plan = plan_rollback(self.records, self.name, checkpoint, {s.id: self._made(s) for s in specs})
        if not dry_run:
            run_rollback(self.records, plan, specs, partial)
        return plan

    def as_of(self, checkpoint: int) -> AsOf:
        """The job as it was at ``checkpoint``, a retained one: state of operators, offsets of sources, rows of sinks.

        Sinks are as with :meth:`rollback`. Raises ``InvalidInputError`` if there is no such checkpoint::

            then = spark_ckpt.job("/data/checkpoints", "orders").as_of(7)
            then.state("totals").arrow()
            then.sink("delta").read().read_all()
        """
        if not isinstance(checkpoint, int):
            raise InvalidInputError(f"expected the id of a checkpoint, a number, found {checkpoint!r}")
        sinks = {s.id: self._made(s) for s in self._own_sinks()}
        me = identity(self.name, self.records.life())
        record, records = self.show(checkpoint), self.records
        there = shown_by(record, record.life, bool(records.confirmed([checkpoint])), records.abandoned_pairs())
        return AsOf(record, lambda uid: self.state(uid, checkpoint), sinks, me, there)

    def _own_sinks(self) -> tuple[SinkSpec, ...]:
        return self._sinks or self.with_recorded_sinks()[0]._sinks

    def abandoned(self) -> list[AbandonedRecord]:
        """What was given up by hand, of the checkpoints that are retained."""
        return self.records.abandoned()

    # -- checks and clean-up -------------------------------------------------------------------------------------

    def verify(self, progress: Callable[[str], None] = lambda _: None) -> list[str]:
        """Read all that the job's checkpoints need, checksums included; returns what is wrong, empty if nothing.

        Costs reading the state. ``progress`` is told the name of what is read next.
        """
        return verify_job(self.records, self.config.storage_options(), progress)

    def require(self) -> None:
        """Raise ``InvalidInputError`` if there is no such job."""
        if self.exists():
            return
        there = Folder(self.config.dir, self.config.storage_options()).folders()
        raise InvalidInputError(f"there is no job {self.name!r} in {redact_url(self.config.dir)}; there are {there}")

    def exists(self) -> bool:
        """Whether the folder holds a job: one that started at least once."""
        store = self.records.store
        return store.exists(JOB_RECORD) or any(store.names(f) for f in ("generations", "checkpoints", "triggers"))

    def gc(self, min_age_s: float = 0.0, force: bool = False) -> list[str]:
        """Remove what no retained checkpoint needs: orphan state files, manifests, staged sink data.

        Only while the job is stopped. What it may still commit or go on from is kept, and so are files of the last
        ``min_age_s`` seconds. Returns what was removed. Raises
        ``CorruptStorageError`` and removes nothing if a record that could name files is damaged or missing, and
        ``InvalidInputError`` if a driver runs the job (``force``: you know that none does).
        """
        self.require()
        self._require_stopped("gc", force)
        return GarbageCollector(self.records, self.config, self.name).collect(self._sinks, min_age_s)

    def staged_by_others(self) -> list[tuple[str, str, int]]:
        """What the job's sinks hold of other jobs of its name: (sink, who, how many things).

        Their folders are elsewhere, or were removed: a folder that is made anew is another life of the job.
        """
        own = self._own_names()
        found = ((s.id, self._made(s).staged_by()) for s in self._sinks)
        return [(i, w, n) for i, by in found for w, n in by.items() if w not in own and is_of_job(w, self.name)]

    def discard(self, who: str) -> list[str]:
        """Remove what ``who``, as :meth:`staged_by_others` names it, staged in the job's sinks and never committed.

        Only if you know that it is gone for good: a job of that name that runs in another folder would lose rows.
        Raises ``InvalidInputError`` if it is this job itself, or is called otherwise.
        """
        if who in self._own_names() or not is_of_job(who, self.name):
            raise InvalidInputError(
                f"expected another life of job {self.name!r}, as `spark-ckpt gc --others` names it, found {who!r}; "
                "what this job itself staged in vain is for plain gc"
            )
        return [name for s in self._sinks for name in self._made(s).discard(who)]

    def _made(self, spec: SinkSpec) -> TwoPhaseSink:
        return spec.make(sink_place(self.config, self.name))

    def _own_names(self) -> set[str]:
        if not self.exists():
            return set()
        me = identity(self.name, self.records.life())
        return {me, tag(me)}

    def with_sinks(self, formats: Iterable[str], given: Mapping[str, str]) -> Job:
        """The job with sinks of these ``formats``, for a folder that does not tell them; ``given``: their options.

        By ``sink.option``, as in :meth:`with_recorded_sinks`.
        """
        own = by_sink(given, list(formats))
        specs = (with_job_storage(SinkSpec(f, sink_class(f), own[f]), self.config) for f in own)
        return Job(self.config, self.name, tuple(specs))

    def with_recorded_sinks(
        self, given: Mapping[str, str] | None = None, confirmed: Collection[str] = ()
    ) -> tuple[Job, tuple[str, ...]]:
        """The job with the sinks of its newest start, so that ``gc`` cleans up behind them; and which were left out.

        Options that hold a secret are not recorded: they come from ``given``, by ``sink.option``, or from environment
        variables ``SPARK_CKPT_SINK_<ID>_<OPTION>``. Where they are sent to is what the folder says: it must be given,
        too, or the sink be among ``confirmed``.
        """
        found = find_sinks(self.records, given or {}, os.environ, confirmed)
        return Job(self.config, self.name, found.specs), found.left_out

    def _require_stopped(self, what: str, force: bool, besides: int | None = None) -> None:
        if not force:
            require_stopped(self.records, self.name, what, besides)

    def delete_checkpoints(self, force: bool = False, besides: int | None = None) -> None:
        """Remove every checkpoint of the job, its state and Spark's own folder. Savepoints elsewhere stay.

        Raises ``InvalidInputError`` if a driver runs the job (``force``: you know that none does), that of generation
        ``besides`` excepted.
        The job's life goes on: the largest id stays taken, by a void record, because sinks know those before it.
        """
        self._require_stopped("deleting the checkpoints", force, besides)
        delete_checkpoints(self.records, self.config)


def _require_target(path: str | None, drain: bool) -> None:
    if path is None and not drain:
        raise InvalidInputError("expected a folder for the savepoint, or drain=True, found neither")


def job(dir: str, name: str, sinks: tuple[SinkSpec, ...] = (), **options: str) -> Job:
    """The job ``name`` below ``dir``, running or not; ``options`` are settings such as ``**{"storage.key": "..."}``.

    ``sinks`` are found by :meth:`Job.with_recorded_sinks`, for clean-up. Raises ``ConfigError`` for unknown settings.
    Nothing is read yet: ask :meth:`Job.exists`::

        for checkpoint in spark_ckpt.job("/data/checkpoints", "orders").checkpoints():
            print(checkpoint["id"], checkpoint["kind"], checkpoint["outcome"], checkpoint["duration_ms"])
    """
    return Job(JobConfig.from_options({"dir": dir, **options}), name, sinks)
