"""The simulated job's folder, read by the code that production reads it with."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import TableRef
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from spark_ckpt.testing.simulation.durable import JOBS, url
from spark_ckpt.testing.simulation.world import World

CONFIG = JobConfig(dir=url(JOBS), history=False, retry_timeout_ms=0, cache_dir="/nonexistent/spark-ckpt-simulation")


def records_of(world: World) -> JobRecords:
    return _records(world.job)


@lru_cache(maxsize=8)
def _records(job: str) -> JobRecords:
    return JobRecords(job_url(CONFIG, job), CONFIG)


@lru_cache(maxsize=32)
def state_folder(job: str, uid: str) -> Folder:
    return Folder(_records(job).paths.state(uid))


def identity_of(world: World) -> str:
    return identity(world.job, records_of(world).life())


def manifest_of(world: World, ref: TableRef) -> StateManifest:
    return read_manifest(records_of(world).store, ref.manifest)


def live_rows(world: World, manifest: StateManifest) -> list[tuple[int, int | None]]:
    """What a reader of the table version sees."""
    out: list[tuple[int, int | None]] = []
    folder = state_folder(world.job, manifest.uid)
    for file, entry in manifest.content.items():
        if entry.in_table:
            dead = read_vector(folder, entry.dv) if entry.dv else ()
            out += [row for i, row in enumerate(rows_of(world, manifest.uid, file)) if i not in dead]
    return out


def state_of(world: World, uid: str, groups: dict[int, GroupManifest]) -> dict[int, int]:
    """What an operator finds when it looks through its runs, oldest first."""
    state: dict[int, int] = {}
    for group in groups.values():
        for run in group.runs:
            for key, value in rows_of(world, uid, run.file)[run.start : run.start + run.count]:
                state.pop(key, None)
                if value is not None:
                    state[key] = value
    return state


def rows_of(world: World, uid: str, name: str) -> list[tuple[int, int | None]]:
    """The rows of a state file."""
    path = f"{JOBS}/{world.job}/state/{uid}/{name}"
    if path not in world.disk.files:
        world.fail(f"state file {path} is named and missing")
    if (uid, name) not in world.run_rows:
        world.run_rows[uid, name] = read_rows(world.disk.files[path])
    return world.run_rows[uid, name]


def read_rows(data: bytes) -> list[tuple[int, int | None]]:
    table = pq.read_table(pa.BufferReader(data))
    return list(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True))
