"""The records of one job's folder, typed. Driver (reader process, commit process and the user's own)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.checkpoint_state import Name, Recorded, state_of
from spark_ckpt.protocol.life import life_of
from spark_ckpt.protocol.records import (
    LOST,
    SINK_REFUSED,
    AbandonedRecord,
    AbortedRecord,
    AcceptedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    EndedRecord,
    FailingSink,
    GenerationRecord,
    TriggerRecord,
    VoidRecord,
    checkpoint_from_json,
)
from spark_ckpt.protocol.restore_plan import RestorePlan
from spark_ckpt.storage.job_paths import JobPaths, RecordFolder, batch_of, checkpoint_of, id_of
from spark_ckpt.storage.record_store import Created, RecordStore
from spark_ckpt.storage.retry import Retry, describe

_logger = logging.getLogger(__name__)
_reported: set[str] = set()

Record = TypeVar("Record")


class JobRecords:
    """Reads and writes records by their id.

    A damaged record raises ``CorruptStorageError`` where it is asked for because it is needed (``generation``,
    ``checkpoint``, ``completion``). Everywhere else it is reported, once a process, and taken for what its name says:
    something was aborted, but not why; not known to be committed, so that it is committed again, which changes nothing.
    """

    def __init__(self, url: str, config: JobConfig) -> None:
        self.paths = JobPaths(url)
        self.config = config
        self.store = RecordStore(url, config.storage_options(), Retry.of(config))

    # -- ids ---------------------------------------------------------------------------------------------------

    def ids(self, folder: RecordFolder) -> list[int]:
        found = (id_of(name) for name in self.store.names(folder))
        return [k for k in found if k is not None]

    def newest_id(self) -> int:
        """The largest checkpoint id ever used; 0 if none was. Also one that a start confirmed and died ahead of its
        checkpoint: another checkpoint of that id would look as if its rows were in the sinks."""
        known = (*self.ids("triggers"), *self.ids("checkpoints"), *self.ids("aborted"), *self.ids("committed"))
        return max(known, default=0)

    # -- generations -------------------------------------------------------------------------------------------

    def generations(self) -> list[GenerationRecord]:
        """All that can be read."""
        return list(self._sound(self.generation, self.ids("generations")))

    def decided(self) -> list[GenerationRecord]:
        """The starts, and rollbacks, that decided where the job goes on, oldest first."""
        return sorted((g for g in self.generations() if g.origin > 0), key=lambda g: g.generation)

    def life(self) -> str:
        """The mark of the job's life; empty if it has none."""
        return life_of(self.generations(), self.completions()) or ""

    def generation(self, number: int) -> GenerationRecord | None:
        path = JobPaths.generation(number)
        body = self.store.read(path, "generation")
        return None if body is None else GenerationRecord.from_json(body, path)

    def create_generation(self, record: GenerationRecord) -> bool:
        return self._took(JobPaths.generation(record.generation), "generation", record.to_json())

    def end(self, record: EndedRecord) -> None:
        """The first word stays."""
        self.store.create(JobPaths.ended(record.generation), "ended", record.to_json(), durable=False)

    def ended(self, generation: int) -> EndedRecord | None:
        """None also if it is damaged: it is a report."""
        path = JobPaths.ended(generation)
        return self._or_none(lambda: self._read(path, "ended", EndedRecord.from_json))

    def failed(self, record: FailingSink) -> None:
        """The newest word stays."""
        self.store.replace(JobPaths.failing(record.sink), "failing", record.to_json(), durable=False)

    def failing(self, sink: str) -> FailingSink | None:
        """None also if it is damaged: it is a report."""
        path = JobPaths.failing(sink)
        return self._or_none(lambda: self._read(path, "failing", FailingSink.from_json))

    # -- checkpoints -------------------------------------------------------------------------------------------

    def trigger(self, checkpoint: int) -> TriggerRecord | None:
        """None also if it is damaged: then K is given up, and the next checkpoint takes its rows over."""
        path = JobPaths.trigger(checkpoint)
        return self._or_none(lambda: self._read(path, "trigger", TriggerRecord.from_json))

    def create_trigger(self, record: TriggerRecord) -> bool:
        return self._took(JobPaths.trigger(record.checkpoint), "trigger", record.to_json())

    def replace_trigger(self, record: TriggerRecord) -> None:
        self.store.replace(JobPaths.trigger(record.checkpoint), "trigger", record.to_json())

    def checkpoint(self, checkpoint: int) -> CompletionRecord | VoidRecord | None:
        path = JobPaths.checkpoint(checkpoint)
        body = self.store.read(path, "checkpoint")
        return None if body is None else checkpoint_from_json(body, path)

    def readable_checkpoint(self, checkpoint: int) -> CompletionRecord | VoidRecord | None:
        """None also if it is damaged: a start has passed over it."""
        return self._readable(JobPaths.checkpoint(checkpoint))

    def copies(self, checkpoint: int) -> tuple[CompletionRecord | VoidRecord | None, ...]:
        """What was written before ``checkpoints/K`` was created; None for what cannot be read."""
        return tuple(self._readable(path) for path in self._copies(checkpoint))

    def _copies(self, checkpoint: int) -> list[str]:
        return self._listed("copies", checkpoint)

    def abandoned_of(self, checkpoint: int) -> list[str]:
        """The paths of what says that ``checkpoint`` was given up in a sink."""
        return self._listed("abandoned", checkpoint)

    def _listed(self, folder: RecordFolder, checkpoint: int) -> list[str]:
        return [JobPaths.listed(folder, n) for n in self.store.names(folder) if checkpoint_of(n) == checkpoint]

    def _readable(self, path: str) -> CompletionRecord | VoidRecord | None:
        try:
            body = self.store.read(path, "checkpoint")
            return None if body is None else checkpoint_from_json(body, path)
        except CorruptStorageError as damage:
            report(damage)
            return None

    # -- what became of checkpoints ----------------------------------------------------------------------------

    def name_of(self, checkpoint: int) -> Name:
        """What ``checkpoints/K`` holds."""
        try:
            return Name.of(self.checkpoint(checkpoint))
        except CorruptStorageError as damage:
            report(damage)
            return Name.DAMAGED

    def is_lost(self, checkpoint: int) -> bool:
        """Damaged; or missing, though what was dropped is not committed either."""
        committed = self.store.exists(JobPaths.committed(checkpoint))
        return state_of(self.name_of(checkpoint), committed=committed).lost

    def is_settled(self, checkpoint: int) -> bool:
        """Complete, void or aborted: no barrier of it is waited for any more. Reads nothing."""
        name = Name.TAKEN if self.store.exists(JobPaths.checkpoint(checkpoint)) else Name.FREE
        return state_of(name, aborted=name is Name.FREE and self.is_aborted(checkpoint)).settled

    def is_aborted(self, checkpoint: int) -> bool:
        """Whether ``aborted/K`` is there. Reads nothing."""
        return self.store.exists(JobPaths.aborted(checkpoint))

    def given_up_paths(self, up_to: int) -> list[str]:
        """What tells of checkpoints up to ``up_to`` that no start can restore. Only where a newer one is complete."""

        def gone(folder: RecordFolder) -> list[int]:
            return [k for k in self.ids(folder) if k <= up_to and not self.name_of(k).may_be_restored]

        return [*map(JobPaths.trigger, gone("triggers")), *map(JobPaths.aborted, gone("aborted"))]

    def open_triggers(self, since: int = 0) -> list[TriggerRecord]:
        """Those from id ``since`` on that can be read and are not settled, by id."""
        found = (self.trigger(k) for k in self.ids("triggers") if k >= since and not self.is_settled(k))
        return [t for t in found if t is not None]

    def recorded(self, completions: Iterable[CompletionRecord] | None = None) -> Recorded:
        """What there is of all checkpoints, by id. With ``completions``, those that can be read, it is looked what else
        stands in ``checkpoints/``; without, all that stands there is TAKEN.
        """
        known = None if completions is None else {c.checkpoint for c in completions}
        names = {k: Name.COMPLETION if known and k in known else Name.TAKEN for k in self.ids("checkpoints")}
        if known is not None:
            names |= {k: self.name_of(k) for k in names if k not in known}
        committed, aborted = self.ids("committed"), self.ids("aborted")
        # Triggers last: of a checkpoint that is dropped meanwhile the trigger goes last, and must not look open.
        return Recorded(names, frozenset(self.ids("triggers")), frozenset(committed), frozenset(aborted))

    def newest_committed(self) -> int:
        """0 if none is."""
        return max(self.ids("committed"), default=0)

    def drop_copies(self, checkpoint: int) -> None:
        for path in self._copies(checkpoint):
            self.store.delete(path)

    def completion(self, checkpoint: int) -> CompletionRecord | None:
        found = self.checkpoint(checkpoint)
        return found if isinstance(found, CompletionRecord) else None

    def completions(self) -> list[CompletionRecord]:
        """All that can be read, oldest first. Which others are needed is for a start to say."""
        return list(self._sound(self.completion, self.ids("checkpoints")))

    def table_versions(self) -> dict[str, int]:
        """The newest version of each state table that a checkpoint recorded."""
        found: dict[str, int] = {}
        for record in self.completions():
            found.update({u: max(t.version, found.get(u, -1)) for u, t in record.tables.items()})
        return found

    def committed(self, checkpoint: int) -> CommittedRecord | None:
        path = JobPaths.committed(checkpoint)
        return self._or_none(lambda: self._read(path, "committed", CommittedRecord.from_json))

    def confirmed(self, checkpoints: Iterable[int]) -> frozenset[int]:
        """Those of ``checkpoints`` that are surely committed."""
        known = set(self.ids("committed"))
        return frozenset(k for k in checkpoints if k in known and self.committed(k) is not None)

    def aborted(self, checkpoint: int) -> AbortedRecord | None:
        path = JobPaths.aborted(checkpoint)
        try:
            return self._read(path, "aborted", AbortedRecord.from_json)
        except CorruptStorageError as damage:
            report(damage)
            return AbortedRecord(checkpoint, LOST, "the record of why is damaged", 0, 0)

    def refused(self) -> tuple[AbortedRecord, ...]:
        """Those whose rows a sink refused."""
        found = (self.aborted(k) for k in self.ids("aborted"))
        return tuple(a for a in found if a is not None and a.cause == SINK_REFUSED)

    def abort(self, record: AbortedRecord) -> None:
        """The first reason stays."""
        self.store.create(JobPaths.aborted(record.checkpoint), "aborted", record.to_json())

    def abandoned(self) -> list[AbandonedRecord]:
        found = []
        for name in self.store.names("abandoned"):
            path = JobPaths.listed("abandoned", name)
            body = self.store.read(path, "abandoned")
            if body is not None:
                found.append(AbandonedRecord.from_json(body, path))
        return found

    def abandoned_pairs(self) -> frozenset[tuple[int, str]]:
        return frozenset((r.checkpoint, r.sink) for r in self.abandoned())

    def abandon(self, record: AbandonedRecord) -> None:
        path = JobPaths.abandoned(record.checkpoint, record.sink)
        self.store.create(path, "abandoned", record.to_json())

    def accepted(self) -> tuple[AcceptedRecord, ...]:
        """What sinks may show by hand. One that is damaged is passed over: the start is refused, and says it again."""
        names = self.store.names("accepted")
        paths = (JobPaths.listed("accepted", name) for name in names)
        return tuple(self._sound(lambda path: self._read(path, "accepted", AcceptedRecord.from_json), paths))

    def accept(self, record: AcceptedRecord) -> None:
        path = JobPaths.accepted(record.checkpoint, record.sink)
        self.store.replace(path, "accepted", record.to_json())

    def write_plan(self, generation: int, plan: RestorePlan) -> None:
        self.store.replace(JobPaths.plan(generation), "plan", plan.to_json())

    def plan(self, generation: int) -> RestorePlan | None:
        return self._read(JobPaths.plan(generation), "plan", RestorePlan.from_json)

    def approve(self, generation: int, plan: RestorePlan) -> None:
        self.store.replace(JobPaths.approved(generation), "approved", plan.to_json())

    def approved(self, generation: int) -> RestorePlan | None:
        """The plan that a person approved for the start of ``generation``."""
        return self._read(JobPaths.approved(generation), "approved", RestorePlan.from_json)

    def newest_known(self) -> int:
        """The largest id that was ever complete, or whose name was taken; 0 if there is none."""
        return max([0, *self.ids("checkpoints"), *self.ids("committed")])

    # -- batches -----------------------------------------------------------------------------------------------

    def batches(self, origin: int | None = None) -> list[BatchRecord]:
        """All that can be read."""
        names = [n for n in self.store.names("batches") if origin is None or batch_of(n)[0] == origin]
        return list(self._sound(self.batch, names))

    def batch(self, name: str) -> BatchRecord | None:
        return self._read(JobPaths.listed("batches", name), "batch", BatchRecord.from_json)

    def _took(self, path: str, kind: str, body: dict[str, Any]) -> bool:
        """Whether the number was free. One whose record is damaged is taken, whoever it was."""
        try:
            return isinstance(self.store.create(path, kind, body), Created)
        except CorruptStorageError as damage:
            report(damage)
            return False

    # -- damage ------------------------------------------------------------------------------------------------

    def _read(self, path: str, kind: str, parse: Callable[[Any, str], Record]) -> Record | None:
        body = self.store.read(path, kind)
        return None if body is None else parse(body, path)

    def _sound(self, read: Callable[[Any], Record | None], keys: Iterable[Any]) -> Iterator[Record]:
        for key in keys:
            found = self._or_none(partial(read, key))
            if found is not None:
                yield found

    @staticmethod
    def _or_none(read: Callable[[], Record | None]) -> Record | None:
        try:
            return read()
        except CorruptStorageError as damage:
            report(damage)
            return None


def left_for_later(what: str, error: Exception) -> str:
    """Clean-up failed, which changes nothing but what is left lying about. Logs it, once a process and kind of work;
    returns what went wrong."""
    told = describe(error)
    if what not in _reported:
        _reported.add(what)
        _logger.warning("Clean-up (%s) failed and is tried again with the next one: %s", what, told)
    return told


def is_lost(read: Callable[[], object]) -> bool:
    """Whether what ``read`` reads is missing or damaged."""
    try:
        return read() is None
    except CorruptStorageError:
        return True


def report(damage: CorruptStorageError) -> None:
    """Log what is passed over, once a process."""
    if str(damage) not in _reported:
        _reported.add(str(damage))
        _logger.warning("Passed over, because it is not needed now: %s", damage)
