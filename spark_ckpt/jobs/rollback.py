"""A job that goes back to a checkpoint, with its sinks; and what it had there. Driver, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt import clock
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs._io import JobIO
from spark_ckpt.jobs._start_facts import newest_generation, read_damage
from spark_ckpt.jobs._verify import damaged_state
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import recorded_ids
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.life import UNMARKED, identity, life_of, newest_decided
from spark_ckpt.protocol.records import UNDECIDED, CompletionRecord, GenerationRecord
from spark_ckpt.protocol.recovery import AUTO, Refuse, SparkLocation, StartFacts
from spark_ckpt.protocol.rollback import decide_rollback, roll_back, unfinished
from spark_ckpt.protocol.setback import shown_by
from spark_ckpt.sinks import rejects
from spark_ckpt.sinks.base import PastRows, TwoPhaseSink
from spark_ckpt.sinks.registry import bare
from spark_ckpt.types import CheckpointId


@dataclass(frozen=True)
class SinkBack:
    """What becomes of a sink: ``undone`` goes (nothing if it stands there), or it is ``kept``, for that reason."""

    sink: str
    undone: str = ""
    kept: str = ""

    def __str__(self) -> str:
        if self.kept:
            return f"sink {self.sink}: stays as it is. {self.kept}"
        return f"sink {self.sink}: {f'loses {self.undone}' if self.undone else 'stands there already'}"


@dataclass(frozen=True)
class Rollback:
    """What a rollback to ``checkpoint`` does, or did. ``sources``: where they stand then. Printed, it is a list."""

    job: str
    checkpoint: int
    newest: int
    sources: Mapping[str, Mapping[str, Any]]
    sinks: tuple[SinkBack, ...]

    @property
    def is_whole(self) -> bool:
        return not any(s.kept for s in self.sinks)

    def __str__(self) -> str:
        lines = [f"Job {self.job} goes back to checkpoint {self.checkpoint}. Its newest one is {self.newest}."]
        lines += [f"  source {uid}: reads again from {dict(offset)}" for uid, offset in self.sources.items()]
        return "\n".join([*lines, *(f"  {s}" for s in self.sinks)])


def plan_rollback(records: JobRecords, job: str, checkpoint: int, sinks: Mapping[str, TwoPhaseSink]) -> Rollback:
    """What :func:`run_rollback` would do. Asks the sinks, and changes nothing. Raises ``ConfigError`` if the job cannot
    go back there."""
    facts = _facts(records, 0)
    found = decide_rollback(facts, checkpoint)
    if isinstance(found, Refuse):
        raise found.error()
    _require_state(records, facts, found)
    me = identity(job, life_of(facts.generations, facts.completions) or UNMARKED)
    had = (s for c in facts.completions for s in c.topology.sinks)
    named = dict.fromkeys([*had, *recorded_ids(records), *sinks])  # of the plain plugin only the latter are known
    there = shown_by(found, found.life, checkpoint in facts.committed, facts.abandoned)
    own = {name: _back(name, me, checkpoint, sinks.get(name), there.get(name, (0, ""))) for name in named}
    backs = [_rejects_back(back, own, sinks) for back in own.values()]
    behind = [c for c in facts.completions if c.checkpoint > checkpoint]
    backs += [other for name, sink in sinks.items() for other in _elsewhere(name, sink, behind)]
    newest = max(c.checkpoint for c in facts.completions)
    return Rollback(job, checkpoint, newest, found.sources, tuple(backs))


def _require_state(records: JobRecords, facts: StartFacts, found: CompletionRecord) -> None:
    """A rollback removes all checkpoints behind it: what the next start reads must be whole."""
    wrong = [] if unfinished(facts) is not None else damaged_state(records, found, records.config.storage_options())
    if wrong:
        raise CorruptStorageError(
            f"checkpoint {found.checkpoint} cannot be gone back to: expected its state to be whole, found "
            f"{len(wrong)} damage(s): {' '.join(wrong[:3])} Nothing was changed: put back a good copy, or roll back to "
            "another checkpoint (`spark-ckpt verify` reads all)"
        )


def _back(name: str, job: str, checkpoint: int, sink: TwoPhaseSink | None, there: tuple[int, str]) -> SinkBack:
    """``there``: the newest checkpoint that the target showed at ``checkpoint``, and which target that was."""
    if sink is None:
        return SinkBack(name, kept="Where it writes to is not known here: give its options, or the sink itself")
    try:
        undone = sink.to_undo(job, name, CheckpointId(checkpoint))
        if not undone:
            _refuse_set_back(sink, job, name, there)
        return SinkBack(name, undone)
    except InvalidInputError as refused:
        return SinkBack(name, kept=str(refused))


def _rejects_back(back: SinkBack, own: Mapping[str, SinkBack], sinks: Mapping[str, TwoPhaseSink]) -> SinkBack:
    """What a database refuses of another sink's commit is put there by that commit, and noted nowhere."""
    name = back.sink.removesuffix(f"-{rejects.NAME}")
    sink = sinks.get(name)
    if back.kept or sink is None or name == back.sink or sink.shares is None or not own[name].kept:
        return back
    if rejects.target_options(name, type(bare(sink)), sink.options) is None:
        return back
    return SinkBack(back.sink, kept=f"Its rows do not say which checkpoint of sink {name} refused them, and come again")


def _refuse_set_back(sink: TwoPhaseSink, job: str, name: str, there: tuple[int, str]) -> None:
    """Somebody has taken it back further: what it had at a checkpoint is not there, and a start would be refused."""
    newest, (expected, target) = sink.newest_checkpoint(job, name), there
    if newest is not None and newest < expected and target in ("", sink.target):
        raise InvalidInputError(
            f"{sink!r} shows checkpoint {newest} as its newest, and showed {expected} then: it was set back or emptied "
            "since. Go back to a checkpoint where it stood so, or put the newer copy back"
        )


def _elsewhere(name: str, sink: TwoPhaseSink, behind: list[CompletionRecord]) -> list[SinkBack]:
    """The targets that the sink had meanwhile, and that are not open here."""
    given = [(c.shown[name].target, c.checkpoint) for c in behind if _has_rows(c, name)]
    out = []
    for target in dict.fromkeys(t for t, _ in given if t not in ("", sink.target)):
        ids = ", ".join(str(k) for t, k in sorted(given) if t == target)
        out.append(SinkBack(name, kept=f"Rows of checkpoint(s) {ids} are in {target}, which it wrote to then"))
    return out


def _has_rows(record: CompletionRecord, sink: str) -> bool:
    return sink in record.shown and record.shown[sink].checkpoint == record.checkpoint


def run_rollback(records: JobRecords, plan: Rollback, sinks: tuple[SinkSpec, ...], partial: bool) -> None:
    """Do what ``plan`` says. Raises ``InvalidInputError`` if some sink would stay ahead, unless ``partial``."""
    if not (plan.is_whole or partial):
        raise InvalidInputError(
            f"{plan}\nThat is half a rollback: rows behind checkpoint {plan.checkpoint} would be written again to "
            "sinks that keep them. Nothing was changed. If that is right, as for a sink that merges by key, say "
            "--partial (partial=True); else set these targets back yourself first"
        )
    io = JobIO(plan.job, records.config, sinks, read_facts=lambda g: _facts(records, g))
    last = newest_decided(records.generations())
    assert last is not None  # it has a checkpoint
    claim = GenerationRecord(
        newest_generation(records) + 1,
        UNDECIDED,
        last.spark_location,
        None,
        clock.now_ms(),
        last.topology,
        last.life or uuid.uuid4().hex[:16],
    )
    back = tuple(s.sink for s in plan.sinks if not s.kept)
    io.run(roll_back(plan.job, claim, plan.checkpoint, back, clock.now_ms()))


def _facts(records: JobRecords, generation: int) -> StartFacts:
    """Of the job as it is; ``generation`` 0: nobody claimed one yet."""
    open_triggers = records.recorded().open_triggers()  # before the completions, as a start reads them
    completions = tuple(records.completions())
    generations = tuple(g for g in records.generations() if g.generation != generation)
    decided = newest_decided(generations)
    if decided is None or not completions:
        raise InvalidInputError("expected a job with a completed checkpoint to roll back to, found none")
    return StartFacts(
        restore=AUTO,
        location=SparkLocation(decided.spark_location),
        topology=decided.topology,
        generation=generation,
        generations=generations,
        completions=completions,
        committed=records.confirmed([c.checkpoint for c in completions]),
        open_triggers=open_triggers,
        damage=read_damage(records, generation, completions),
        abandoned=records.abandoned_pairs(),
    )


class AsOf(Hinting):
    """A job as it was at a checkpoint: the state of its operators, and the rows of its sinks. Nothing is read until a
    method asks for it.

    State is there while the checkpoint is retained; rows as long as the target keeps them.
    """

    def __init__(
        self,
        record: CompletionRecord,
        state: Callable[[str], State],
        sinks: Mapping[str, TwoPhaseSink],
        job: str,
        there: Mapping[str, tuple[int, str]],
    ) -> None:
        """``there``: as :func:`spark_ckpt.protocol.setback.shown_by` gives it of ``record``."""
        self.record = record
        self._state, self._sinks, self._job, self._there = state, sinks, job, there

    def __repr__(self) -> str:
        return f"AsOf({self.record.checkpoint})"

    @property
    def checkpoint(self) -> int:
        return self.record.checkpoint

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """By uid, the offset that each stood at."""
        return {uid: dict(offset) for uid, offset in self.record.sources.items()}

    def state(self, uid: str) -> State:
        """As :meth:`spark_ckpt.Job.state` at this checkpoint."""
        return self._state(uid)

    def sink(self, name: str) -> PastRows:
        """What the target of sink ``name`` showed. Raises ``InvalidInputError`` if the job has no such sink, or its
        target does not keep that."""
        if name not in self._sinks:
            raise InvalidInputError(
                f"expected one of the sinks that are known here, {sorted(self._sinks)}, found {name!r}"
            )
        sink, there = self._sinks[name], self._there.get(name, (0, ""))
        if there[1] not in ("", sink.target):
            raise InvalidInputError(
                f"sink {name!r} wrote to {there[1]} at checkpoint {self.checkpoint}, and the one that is known here "
                f"writes to {sink.target}: open the job with that one, spark_ckpt.job(dir, name, sinks)"
            )
        _refuse_set_back(sink, self._job, name, there)
        return sink.as_of(self._job, name, CheckpointId(self.record.checkpoint))
