"""The simulation's sink: two-phase, as any other, over rows in memory; and what must hold whenever it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.sinks.base import Part, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.testing.simulation._folder import CONFIG, records_of
from spark_ckpt.testing.simulation.durable import ToySink, Visible
from spark_ckpt.testing.simulation.world import World, current
from spark_ckpt.types import CheckpointId, CommitPermit, Committable


class SimulatedSink(TwoPhaseSink):
    """Commits of one sink never overlap; what it remembers of them it forgets at once as far as it may."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("name",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.name = options["name"]

    @property
    def _world(self) -> World:
        return current()

    @property
    def _toy(self) -> ToySink:
        return self._world.sink

    def writer(self, ctx: WriterContext) -> SinkWriter:
        raise NotImplementedError("the simulated tasks call stage")

    def stage(self, identity: str, rows: list[Visible]) -> bytes:
        data = f"{self.name}|{identity}|{self._world.unique():012x}".encode()
        self._toy.staged[data] = rows
        return data

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        world, toy = self._world, self._toy
        job = str(permit.job).partition("@")[0] if world.sabotage == "same_life" else str(permit.job)
        key, data = (job, self.name, int(permit.checkpoint)), tuple(c.data for c in committables)
        ledger, k = toy.targets[job, self.name].ledger, int(permit.checkpoint)
        self._forget(job, permit)
        if not self._check(permit, key, committables):
            return
        new = k not in ledger and not world.zombie_moves
        if new and toy.refusals and world.rng.random() < toy.refusals:
            toy.refused.setdefault(key, 0)
        if key in toy.refused:
            toy.refused[key] += 1
            raise InvalidInputError("a row breaks a constraint")
        if k in ledger:
            if ledger[k] != data:
                world.fail(f"checkpoint {k} was committed with different committables in {self.name}")
            return
        if toy.undone & set(data):
            raise CorruptStorageError("staged transactions are missing")  # of a driver that was halted in the commit
        missing = [d for d in data if d not in toy.staged]
        if missing:
            world.fail(f"checkpoint {k} names {missing}, which was aborted or committed before")
        for d in data:
            toy.publish(job, self.name, k, toy.staged.pop(d))
            toy.committed.add(d)
        ledger[k] = data

    def try_commit(self, parts: Sequence[Part]) -> None:
        """Refused for once, as by a target that somebody alters before the next start; or as long as a row is there."""
        world, toy = self._world, self._toy
        wrong = toy.refused_rows.get(self.name)
        if wrong is not None and any(wrong in toy.staged.get(c.data, ()) for p in parts for c in p.committables):
            raise InvalidInputError("a row would break a constraint")
        if toy.try_refusals and not world.zombie_moves and world.rng.random() < toy.try_refusals:
            world.seen["a sink refuses what is tried"] += 1
            raise InvalidInputError("a row would break a constraint")

    def newest_checkpoint(self, job: str, sink: str) -> int | None:
        known_as = job.partition("@")[0] if self._world.sabotage == "same_life" else job
        return max(self._toy.targets[known_as, sink].ledger, default=0)

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        behind = [k for k in self._toy.targets[job, sink].ledger if k > checkpoint]
        return f"checkpoints {behind}" if behind else ""

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        self._toy.undo(job, sink, checkpoint)

    def _check(self, permit: CommitPermit, key: tuple[str, str, int], committables: Sequence[Committable]) -> bool:
        """What a completion record authorises, and nothing else. False: there is nothing left to do."""
        world, toy, k = self._world, self._toy, permit.checkpoint
        known = key[2] in toy.targets[key[:2]].ledger or key in toy.refused  # given up since, perhaps, and dropped
        records = records_of(world)
        found = records.readable_checkpoint(k)
        if world.zombie_moves and not str(permit.job).endswith(records.life()):
            return True  # its folder is gone; what it authorised is still right
        if not isinstance(found, CompletionRecord):
            if not known and not world.zombie_moves:
                world.fail(f"checkpoint {k} is committed without a completion record")
            if not known:
                raise CorruptStorageError("staged transactions are missing")
            return key in toy.refused
        if not known and tuple(committables) != tuple(c for c in found.committables if c.sink == self.name):
            world.fail(f"checkpoint {k}: {self.name} commits other than what the record names")
        return True

    def _forget(self, job: str, permit: CommitPermit) -> None:
        """As if the sink forgot at once all that it may."""
        target = self._toy.targets[job, self.name]
        if permit.checkpoint < target.forgotten:
            if self._world.zombie_moves:
                raise CorruptStorageError("staged transactions are missing")
            self._world.fail(f"checkpoint {permit.checkpoint} is asked for, which {self.name} has forgotten")
        target.forgotten = max(target.forgotten, permit.oldest or 0)

    def abort(self, committables: Sequence[Committable]) -> None:
        for c in committables:
            if c.data in self._toy.committed and not (self._world.folder_set_back or self._world.rolls_back):
                self._world.fail(f"{c} is aborted, but a checkpoint committed it")
            self._toy.staged.pop(c.data, None)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        kept, mine = {c.data for c in keep}, f"{self.name}|{job}|".encode()
        lost = [d for d in self._toy.staged if d.startswith(mine) and d not in kept]
        for data in lost:
            del self._toy.staged[data]
        return [data.decode() for data in lost]

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        return []


def sink_specs(names: Sequence[str]) -> tuple[SinkSpec, ...]:
    return tuple(SinkSpec(name, SimulatedSink, {"name": name}) for name in names)


def job_of(world: World, names: Sequence[str]) -> Job:
    """The job's folder, for who cleans up in it."""
    return Job(CONFIG, world.job, sink_specs(names))
