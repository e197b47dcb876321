"""The protocol's coroutines, executed by the real shell on the simulation's disk, and stopped between any two steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from spark_ckpt.jobs._io import JobIO
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import Answer, read_answer
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.jobs.start import JobPlan, read_facts
from spark_ckpt.protocol.checkpoint_state import Name
from spark_ckpt.protocol.events import StateFile
from spark_ckpt.protocol.records import CompletionRecord, Topology
from spark_ckpt.storage.job_paths import JobPaths, request_of
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.storage.state_table import StateTable
from spark_ckpt.testing.simulation._folder import CONFIG, state_folder
from spark_ckpt.testing.simulation._sinks import sink_specs
from spark_ckpt.testing.simulation._state import STATE
from spark_ckpt.testing.simulation.durable import JOBS, READ_ONLY, url
from spark_ckpt.testing.simulation.processes import Crash
from spark_ckpt.testing.simulation.surroundings import running
from spark_ckpt.testing.simulation.world import World
from spark_ckpt.types import Committable, Epoch

JOB, UNWRITABLE = "job", url(READ_ONLY)
OPTIONS = replace(CONFIG, allow_non_restored_state=True)
KINDS = {"generations": "generation", "triggers": "trigger", "batches": "batch", "checkpoints": "checkpoint"}

__all__ = ["JOB", "UNWRITABLE", "Answer", "Crash", "Location", "Records", "Shell", "Stepwise"]


@dataclass
class Location:
    """A Spark location with these offsets, by batch."""

    path: str
    offsets: dict[int, dict[str, Any]] = field(default_factory=dict)


class Stepwise:
    """A job's folder and sinks, and everything that happened; ``world.stop_at`` says where the next run stops."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.world = World(random.Random(0), self.trace)
        self.world.job = JOB
        self.records = Records(self.world)
        self.history: list[Any] = []

    @property
    def sink(self) -> Any:
        return self.world.sink

    @property
    def steps(self) -> list[str]:
        return [line.split("before ")[1] for line in self.trace if " before " in line]

    def stage(self, name: str, epoch: int, sink: str = "append") -> Committable:
        self.sink.staged[name.encode()] = [("x", len(self.sink.staged), epoch)]
        return Committable(sink, Epoch(epoch), name.encode())

    def run(self, coroutine: Any, shell: Any) -> Any:
        with running(self.world):
            self.world.check = None  # tests put there what they like
            return shell.run(coroutine)

    # -- state ---------------------------------------------------------------------------------------------------

    def make_table(self, uid: str) -> None:
        with running(self.world), self.world.quietly():
            StateTable(state_folder(JOB, uid).url, uid).create_if_absent(STATE, "for a test")

    def write_file(self, uid: str, name: str, rows: list[tuple[int, int]]) -> StateFile:
        keys, counts = [k for k, _ in rows], [n for _, n in rows]
        table = pa.table([keys, counts, [0] * len(rows), keys], schema=STATE)
        with running(self.world), self.world.quietly():
            return write_run_file(state_folder(JOB, uid), name, table)

    def files(self, uid: str) -> set[str]:
        """The state files that are there."""
        return {n for n in self.world.disk.names(f"{JOBS}/{JOB}/state/{uid}") if n.endswith(".parquet")}

    def in_table(self, uid: str) -> set[str]:
        """The files of the newest version."""
        with running(self.world), self.world.quietly():
            return set(StateTable(state_folder(JOB, uid).url, uid).head().content)

    # -- what others see -----------------------------------------------------------------------------------------

    @property
    def savepoints(self) -> set[str]:
        found = (p.removesuffix("/savepoint.json") for p in self.world.disk.files if p.endswith("/savepoint.json"))
        return {url(p) for p in found}

    @property
    def answers(self) -> dict[str, Answer | None]:
        return self.records.with_store(
            lambda r: {request_of(n): read_answer(r.store, request_of(n)) for n in r.store.names("answers")}
        )


class Records:
    """The job's records by folder and name."""

    def __init__(self, world: World) -> None:
        self.world = world

    def with_store(self, action: Any) -> Any:
        with running(self.world), self.world.quietly():
            self.world.check = None
            return action(JobRecords(job_url(OPTIONS, JOB), OPTIONS))

    def put(self, folder: str, name: Any, record: Any) -> None:
        kind = KINDS.get(folder, folder)
        self.with_store(lambda r: r.store.replace(_path(folder, name), kind, record.to_json()))

    def create(self, folder: str, name: Any, record: Any) -> None:
        kind = KINDS.get(folder, folder)
        self.with_store(lambda r: r.store.create(_path(folder, name), kind, record.to_json()))

    def get(self, folder: str, name: Any) -> Any:
        one = {"generations": "generation", "triggers": "trigger", "checkpoints": "checkpoint"}.get(folder, folder)
        return self.with_store(lambda r: getattr(r, one)(name))

    def delete(self, folder: str, name: Any) -> None:
        self.with_store(lambda r: r.store.delete(_path(folder, name)))

    def ids(self, folder: Any) -> list[int]:
        return self.with_store(lambda r: r.ids(folder))

    def aborted(self) -> list[Any]:
        return [self.get("aborted", k) for k in self.ids("aborted")]

    def batches(self) -> list[Any]:
        return self.with_store(lambda r: r.batches())

    def completions(self) -> dict[int, CompletionRecord]:
        return {c.checkpoint: c for c in self.with_store(lambda r: r.completions())}

    def voids(self) -> frozenset[int]:
        return self.with_store(lambda r: r.recorded(r.completions()).named(Name.VOID, Name.DAMAGED))

    def abandoned(self) -> frozenset[tuple[int, str]]:
        return self.with_store(lambda r: r.abandoned_pairs())


def _path(folder: str, name: Any) -> str:
    paths: dict[str, Any] = {
        "generations": JobPaths.generation,
        "triggers": JobPaths.trigger,
        "checkpoints": JobPaths.checkpoint,
        "committed": JobPaths.committed,
        "aborted": JobPaths.aborted,
        "batches": JobPaths.batch,
    }
    return JobPaths.abandoned(*name) if folder == "abandoned" else paths[folder](name)


class Shell(JobIO):
    """The real one. Called with a step, it does that one."""

    def __init__(
        self, job: Stepwise, topology: Topology, location: Location | None = None, generation: int = 0
    ) -> None:
        self.job_under_test, self.topology, self.location = job, topology, location or Location("spark")
        self.restore: str | int = "auto"
        with running(job.world):
            super().__init__(JOB, OPTIONS, sink_specs(topology.sinks), generation, self._facts)

    def again(self, generation: int) -> Any:
        """In another process."""
        return type(self)(self.job_under_test, self.topology, self.location, generation)

    def __call__(self, step: Any) -> Any:
        with running(self.job_under_test.world), self.job_under_test.world.quietly():
            self.job_under_test.world.check = None
            return self._execute(step)

    def _facts(self, generation: int) -> Any:
        disk, here = self.job_under_test.world.disk, self.location
        for batch, offsets in here.offsets.items():
            lines = ["v1", "{}", *(str(o).replace("'", '"') for o in offsets.values())]
            disk.put(f"{here.path}/offsets/{batch}", "\n".join(lines).encode())
        specs = sink_specs(self.topology.sinks)
        plan = JobPlan(JOB, OPTIONS, url(here.path), self.topology, specs, pa.schema([]))
        return read_facts(self.records, plan, plan.spark_folder(plan.location), generation, self.restore)

    def _AppendHistory(self, step: Any) -> None:
        self.job_under_test.history.append(step)
        super()._AppendHistory(step)
