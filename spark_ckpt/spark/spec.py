"""What one start of a job tells its parts. Built on the driver, carried to every process inside the pickled stages.

It rides on pickled classes and not on DataSource options, because options can be seen by users and may hold secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import Topology
from spark_ckpt.state.slots import Slots


def job_url(config: JobConfig, job: str) -> str:
    return f"{config.dir.rstrip('/')}/{job}"


@dataclass(frozen=True)
class RunSpec:
    """One generation of a job.

    ``start_epoch`` labels the first rows of the Spark location's first batch. ``restored_from`` is the checkpoint that
    batch starts from, ``adopt`` the completed checkpoint whose batch Spark is about to replay.
    """

    job: str
    config: JobConfig = field(repr=False)
    generation: int
    origin: int
    start_epoch: int
    restored_from: int | None
    adopt: int | None
    topology: Topology
    partitions: int
    """Spark's shuffle partitions at this location: Spark keeps them as they were when the location was new."""
    life: str = ""

    @property
    def identity(self) -> str:
        """What sinks know the job by."""
        return identity(self.job, self.life)

    @property
    def url(self) -> str:
        return job_url(self.config, self.job)

    @property
    def key_groups(self) -> int:
        return self.topology.key_groups

    @cached_property
    def slots(self) -> Slots:
        return Slots(self.key_groups, self.partitions)


@dataclass(frozen=True)
class SourceSpec:
    """One source of a run. ``restores`` are the operators whose state this source's first batch carries; ``reaches``
    all that its rows can reach."""

    id: str
    inner: Any
    options: dict[str, str] = field(repr=False)
    schema: Any
    leader: bool
    restores: tuple[str, ...]
    reaches: tuple[str, ...]
    lanes: int


@dataclass(frozen=True)
class SinkSpec:
    """One sink of a run. ``cls`` is the TwoPhaseSink class, ``options`` its own options (may hold secrets)."""

    id: str
    cls: Any
    options: dict[str, str] = field(repr=False)
