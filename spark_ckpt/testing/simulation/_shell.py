"""The simulated I/O shell: executes the protocol's steps on the simulated world and checks what must always hold."""

from __future__ import annotations

import json
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol import steps as s
from spark_ckpt.protocol.damage import Damage
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import (
    SAVEPOINT,
    SINK_REFUSED,
    SUBSUMED,
    CompletionRecord,
    TableRef,
    Topology,
)
from spark_ckpt.protocol.recovery import SparkLocation, StartFacts
from spark_ckpt.protocol.setback import SinkFound
from spark_ckpt.testing.simulation._savepoints import export
from spark_ckpt.testing.simulation._state_files import collect, live_rows, state_of
from spark_ckpt.testing.simulation.durable import Answer, Location, Records, SimulationError
from spark_ckpt.testing.simulation.world import World


class Shell:
    """Executes steps for one process. ``sabotage`` breaks a rule on purpose, to prove that it is noticed."""

    def __init__(self, world: World, job: str, location: Location, topology: Topology, sabotage: str = "") -> None:
        self.world = world
        self.job = job
        self.location = location
        self.topology = topology
        self.sabotage = sabotage
        self.generation = 0
        self.refusals = 0.0
        """How many commits a sink will never take."""
        self.try_refusals = 0.0
        """How many checkpoints a sink refuses when it is asked ahead of their completion."""
        self.restore: str | int = "auto"

    def __call__(self, step: Any) -> Any:
        return getattr(self, f"_{type(step).__name__}")(step)

    # --- start ---

    def _CreateGeneration(self, step: s.CreateGeneration) -> bool:
        self.generation = step.record.generation
        return self.world.records.create("generations", step.record.generation, step.record)

    def _WriteGeneration(self, step: s.WriteGeneration) -> None:
        self.world.records.put("generations", step.record.generation, step.record)

    def _ReadStartFacts(self, step: s.ReadStartFacts) -> StartFacts:
        r, here = self.world.records, self.location
        completions = r.completions()
        planned = max(here.offsets, default=None)
        return StartFacts(
            restore=self.restore,
            location=SparkLocation(
                here.path,
                planned,
                here.committed if here.committed >= 0 else None,
                None if planned is None else next(iter(here.offsets[planned].values()))["origin"],
            ),
            topology=self.topology,
            generation=step.generation,
            generations=tuple(g for g in r.all("generations") if g.generation != step.generation),
            completions=tuple(completions.values()),
            committed=r.confirmed(),
            batches=tuple(r.all("batches")),
            open_triggers=r.recorded().open_triggers(),
            allow_non_restored=True,
            damage=Damage() if self.sabotage == "torn_is_absent" else damage_of(r, step.generation),
            abandoned=r.abandoned(),
            refused=tuple(a for a in r.all("aborted") if a.cause == SINK_REFUSED),
            accepted=tuple(r.all("accepted")),
            newest_known=max([0, *r.text["checkpoints"], *r.text["committed"]]),
        )

    def _ReadSinks(self, step: s.ReadSinks) -> dict[str, SinkFound]:
        ledger, job = self.world.sink.ledger, self.job if self.sabotage == "same_life" else step.job
        newest = {name: max((k for j, s, k in ledger if (j, s) == (job, name)), default=0) for name in step.sinks}
        return {name: SinkFound(k) for name, k in newest.items()}

    def _CreateVoid(self, step: s.CreateVoid) -> s.Created | s.Exists:
        if self.sabotage == "no_void":
            return s.Created()
        return self._create(step.record.checkpoint, step.record)

    def _EmptyLocation(self, step: s.EmptyLocation) -> None:
        here = self.location
        here.committed, here.state = -1, {}
        self.world.point("empties the location", here.path)
        here.offsets = {}
        self.world.seen["a refused epoch is given up"] += 1

    # --- records ---

    def _WriteBatch(self, step: s.WriteBatch) -> None:
        self.world.records.put("batches", step.record.name, step.record)

    def _ReadTrigger(self, step: s.ReadTrigger) -> Any:
        r = self.world.records
        return r.get("triggers", step.checkpoint), r.get("aborted", step.checkpoint)

    def _ReadAborted(self, step: s.ReadAborted) -> Any:
        return tuple(self.world.records.all("aborted"))

    def _ReadNewestGeneration(self, step: s.ReadNewestGeneration) -> int:
        if self.sabotage == "no_fence":
            return self.generation
        newest: int = max(self.world.records.text["generations"], default=0)
        return newest

    def _TrySinks(self, step: s.TrySinks) -> tuple[s.SinkRefused, ...]:
        """Refused for once, as by a target that somebody alters before the next start."""
        if not self.try_refusals or self.world.rng.random() >= self.try_refusals:
            return ()
        return (s.SinkRefused(step.tries[0].sink, "a row breaks a constraint"),)

    def _CreateCompletion(self, step: s.CreateCompletion) -> s.Created | s.Exists:
        if self.sabotage == "commit_before_record":
            for c in step.record.committables:
                self.world.sink.commit("sabotage", c.sink, self.world.unique(), (c,))
            self.world.point("sabotage", "committed before the record")
        found = self._create(step.record.checkpoint, step.record)
        if isinstance(found, s.Created) and step.record.drained:
            self.world.seen["a job is drained"] += 1
            self.world.drains.append({name: at["inner"] for name, at in step.record.sources.items()})
        return found

    def _create(self, checkpoint: int, record: Any) -> s.Created | s.Exists:
        if self.sabotage == "torn_is_absent" and self.world.records.is_torn("checkpoints", checkpoint):
            self.world.records.delete("checkpoints", checkpoint)
        if self.world.records.create("checkpoints", checkpoint, record):
            return s.Created()
        return s.Exists(self.world.records.get("checkpoints", checkpoint))

    def _AnswerRequest(self, step: s.AnswerRequest) -> None:
        before = self.world.answers.get(step.request)
        if before is not None and before.checkpoint not in (None, step.checkpoint):
            raise SimulationError(f"request {step.request} is answered twice: {before} and {step}")
        self.world.answer(step.request, Answer(step.checkpoint, step.error))

    def _WriteCommitted(self, step: s.WriteCommitted) -> None:
        k = step.record.checkpoint
        record = self.world.records.get("checkpoints", k)
        if not isinstance(record, CompletionRecord) and not self.world.zombie_moves:
            raise SimulationError(f"checkpoint {k} is confirmed as committed and has no record")
        written = step.record.savepoint_error is None and isinstance(record, CompletionRecord) and record.target
        if written and written not in self.world.savepoints:
            raise SimulationError(f"savepoint {record.target} is announced before it is written")
        self.world.records.put("committed", k, step.record)

    def _WriteAborted(self, step: s.WriteAborted) -> None:
        trigger = self.world.records.get("triggers", step.record.checkpoint)
        ours = trigger is not None and trigger.generation == self.generation
        if step.record.cause == SUBSUMED and ours and trigger.kind == SAVEPOINT and not self.world.zombie_moves:
            raise SimulationError(f"a savepoint is subsumed: {step.record}")
        self.world.records.create("aborted", step.record.checkpoint, step.record)

    def _AppendHistory(self, step: s.AppendHistory) -> None:
        self.world.history.append(step)

    def _WriteSavepoint(self, step: s.WriteSavepoint) -> s.SavepointFailed | None:
        assert step.record.target is not None
        if step.record.target.startswith("read-only"):
            return s.SavepointFailed("it is read-only")
        if step.record.target in self.world.savepoints:
            return None
        for sink in {c.sink for c in step.record.committables}:
            done = (identity(self.job, step.record.life), sink, step.record.checkpoint) in self.world.sink.ledger
            if not done and (step.record.checkpoint, sink) not in self.world.records.abandoned() and not self.sabotage:
                raise SimulationError("a savepoint is written before its checkpoint is committed")
        self.world.savepoints[step.record.target] = export(self.world, step.record)
        return None

    # --- sink ---

    def _CommitSinks(self, step: s.CommitSinks) -> tuple[Exception | None, ...]:
        """In any order, as threads would; the process may stop before and after each."""
        raised: dict[int, Exception | None] = {}
        order = list(range(len(step.commits)))
        self.world.rng.shuffle(order)
        for i in order:
            raised[i] = self.world.attempt(step.commits[i], self._commit_sink)
        return tuple(raised[i] for i in range(len(step.commits)))

    def _commit_sink(self, step: s.CommitSink) -> None:
        if self.sabotage == "commit_before_record":
            return
        k = step.permit.checkpoint
        job = self.job if self.sabotage == "same_life" else str(step.permit.job)
        self._forget(job, step)
        record = self.world.records.get("checkpoints", k)
        refused = (job, step.sink, k) in self.world.sink.refused  # given up since, perhaps, and dropped
        if (job, step.sink, k) not in self.world.sink.ledger and not refused:
            if self.world.zombie_moves and not job.endswith(self.world.life):
                pass  # its folder is gone; what it authorised is still right
            elif not isinstance(record, CompletionRecord):
                raise SimulationError(f"checkpoint {k} is committed without a completion record")
            elif step.committables != tuple(c for c in record.committables if c.sink == step.sink):
                raise SimulationError(f"checkpoint {k}: {step.sink} commits other than what the record names")
        elif not isinstance(record, CompletionRecord) and not refused:
            return  # a zombie commits again what is long done
        new = (job, step.sink, k) not in self.world.sink.ledger and not self.world.zombie_moves
        if new and self.world.rng.random() < self.refusals:
            self.world.sink.refused.setdefault((job, step.sink, k), 0)
        self.world.sink.commit(job, step.sink, k, step.committables)

    def _forget(self, job: str, step: s.CommitSink) -> None:
        """As if the sink forgot at once all that it may."""
        forgotten, mine = self.world.sink.forgotten, (job, step.sink)
        if step.permit.checkpoint < forgotten.get(mine, 0):
            if self.world.zombie_moves:
                raise CorruptStorageError("staged transactions are missing")
            raise SimulationError(f"checkpoint {step.permit.checkpoint} is asked for, which {step.sink} has forgotten")
        forgotten[mine] = max(forgotten.get(mine, 0), step.permit.oldest or 0)

    def _AbortSink(self, step: s.AbortSink) -> None:
        self.world.sink.abort(step.committables)

    # --- state ---

    def _CommitState(self, step: s.CommitState) -> TableRef:
        versions = self.world.tables.versions.setdefault(step.uid, [])
        content = dict(versions[step.base.version]) if step.base else {}
        for f in step.flushed:
            content.update({sf.file: frozenset() for sf in f.files})
            for file, dead in f.dead.items():
                if file not in content:
                    raise SimulationError(f"{step.uid}: rows of {file} die, which the table does not hold")
                content[file] = content[file] | frozenset(json.loads(dead))
        named = {r.file for g in step.groups.values() for r in g.runs}
        content = {f: d for f, d in content.items() if f in named}
        try:
            self._check_state(step, content, named)
        except SimulationError as e:
            if self.world.zombie_moves:  # its successor may have collected its files since; nobody reads this version
                raise CorruptStorageError(str(e)) from e
            raise
        name = f"{step.uid}/{step.checkpoint}-{self.world.unique()}"
        versions.append(content)
        self.world.tables.write_manifest(name, dict(step.groups))
        return TableRef(len(versions) - 1, name)

    def _check_state(self, step: s.CommitState, content: dict[str, frozenset[int]], named: set[str]) -> None:
        if set(content) != named:
            raise SimulationError(f"{step.uid} at {step.checkpoint}: {sorted(named - set(content))} named, not there")
        live = live_rows(self.world, step.uid, content)
        if sorted(live) != sorted(state_of(self.world, step.uid, step.groups).items()):
            raise SimulationError(f"{step.uid} at {step.checkpoint}: the table's live rows are not the state")
        if len(live) != sum(g.keys for g in step.groups.values()):
            raise SimulationError(f"{step.uid} at {step.checkpoint}: {len(live)} live rows, but other key counts")

    # --- dropping ---

    def _CollectFiles(self, step: s.CollectFiles) -> None:
        records = [self.world.records.get("checkpoints", k) for k in step.named_by]
        found = [r for r in records if isinstance(r, CompletionRecord)]
        if len(found) == len(records):
            collect(self.world, found, lambda epoch: epoch <= step.up_to)
        elif not self.world.zombie_moves:  # a zombie's successor may have dropped them since; it collects by itself
            raise SimulationError(f"{step} names a checkpoint that is gone")

    def _DropBatches(self, step: s.DropBatches) -> None:
        for name in list(self.world.records.text["batches"]):
            origin, batch, _ = batch_of(name)
            if origin == step.origin and (step.below is None or batch < step.below):
                self.world.records.delete("batches", name)

    def _DropCheckpoint(self, step: s.DropCheckpoint) -> None:
        records = self.world.records
        record = records.needed("checkpoints", step.checkpoint)
        if step.void is not None:
            records.put("checkpoints", step.checkpoint, step.void)
        else:
            records.delete("checkpoints", step.checkpoint)
        records.delete("committed", step.checkpoint)
        for name in [n for n in records.text["abandoned"] if n[0] == step.checkpoint]:
            records.delete("abandoned", name)
        for ref in record.tables.values() if isinstance(record, CompletionRecord) else ():
            self.world.tables.manifests.pop(ref.manifest, None)
        for folder in ("triggers", "aborted"):
            for k in [k for k in records.text[folder] if k <= step.checkpoint]:
                if not records.name_of(k).may_be_restored:
                    records.delete(folder, k)


def damage_of(records: Records, generation: int) -> Damage:
    """What a start finds damaged or missing: as ``spark_ckpt.jobs._start_facts`` reads it."""

    def triggered_by(k: int) -> int | None:
        trigger = records.get("triggers", k)
        return trigger.generation if trigger else generation if k in records.text["triggers"] else None

    return Damage(
        generations=tuple(g for g in records.torn("generations") if g != generation),
        checkpoints={k: triggered_by(k) for k in records.recorded().lost()},
        batches=tuple(batch_of(name) for name in records.torn("batches")),
    )


def batch_of(name: str) -> tuple[int, int, int]:
    origin, batch, generation = name.split("-")
    return int(origin), int(batch), int(generation)
