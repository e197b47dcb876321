"""What one start of a job tells its parts. Built on the driver, carried to every process inside the pickled stages.

It rides on pickled classes and not on DataSource options, because options can be seen by users and may hold secrets.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from spark_ckpt.config import STORAGE, JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.names import PATH_SPECIAL, checked_name, path_problem
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import Topology
from spark_ckpt.redaction import redact_url
from spark_ckpt.sinks import rejects
from spark_ckpt.sinks.base import JobPlace, TwoPhaseSink
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.object_options import scheme_of

_log = logging.getLogger("spark_ckpt")


def job_url(config: JobConfig, job: str) -> str:
    """The job's folder. Raises ``ConfigError`` for a name that would lead elsewhere: every way in comes by here."""
    return f"{config.dir.rstrip('/')}/{checked_name('job name', job)}"


def sink_place(config: JobConfig, job: str) -> JobPlace:
    """What the job has for its sinks."""
    return JobPlace(JobPaths(job_url(config, job)).staged, config)


def cache_dir(config: JobConfig) -> str:
    """Where state is cached on each machine."""
    return config.cache_dir or os.path.join(tempfile.gettempdir(), f"spark_ckpt_cache-{os.geteuid()}")


def with_absolute_dir(config: JobConfig) -> JobConfig:
    """``config`` with a ``dir`` that means the same in every process. Driver, at start."""
    absolute = normalize_url(config.dir)
    problem = path_problem(absolute)
    if problem is not None:
        raise ConfigError(
            f"spark.ckpt.dir {redact_url(absolute)!r} {problem}: expected a folder whose path has none of"
            f" {' '.join(PATH_SPECIAL)} (in a URL # and ?, too), no :: and no control characters,"
            " which Delta tables cannot have in theirs;"
            " choose another folder"
        )
    if "://" in config.dir or config.dir.startswith(("/", "file:")):
        return config
    _log.warning(
        "spark.ckpt.dir %r is relative: this start uses %s. Set the absolute path, so that a start from another "
        "folder finds the job.", config.dir, absolute,
    )  # fmt: skip
    return replace(config, dir=absolute)


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
    drained: int | None = None
    """The checkpoint that drained the location before this start."""
    inherited: tuple[int, ...] | None = None
    """The triggers that earlier generations left open (None: nobody looked)."""
    location: str = field(default="", repr=False)
    """Spark's own, as records have it."""
    ends: Mapping[str, Any] = field(default_factory=dict)
    """Where sources end in this run, by uid."""
    bounded: bool = False
    """The trigger is ``availableNow``, of a Spark before 4.2: it would make one batch of what a Python source has, and
    a final checkpoint needs several. So Spark gets no trigger, sources end with what is there at the start by
    themselves, and the query is stopped behind the final checkpoint."""

    @property
    def identity(self) -> str:
        """What sinks know the job by."""
        return identity(self.job, self.life)

    @property
    def url(self) -> str:
        return job_url(self.config, self.job)

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.url)

    @property
    def key_groups(self) -> int:
        return self.topology.key_groups

    @cached_property
    def subtasks(self) -> Subtasks:
        return Subtasks(self.key_groups, self.partitions)


@dataclass(frozen=True)
class SourceSpec:
    """One source of a run. ``restores`` are the operators whose state this source's first batch carries; ``reaches``
    all that its rows can reach. ``event_time``: time-outs wait for the event time in one of these, and
    ``no_data_batches``: they need not wait for rows."""

    id: str
    inner: Any
    options: dict[str, str] = field(repr=False)
    schema: Any
    leader: bool
    restores: tuple[str, ...]
    reaches: tuple[str, ...]
    lanes: int
    event_time: bool = False
    no_data_batches: bool = True
    tells: bool = False
    """User functions that its rows can reach want to know of completed checkpoints."""
    plain_operations: tuple[str, ...] = ()
    """The user's own Spark operations in the query: where a barrier can get lost."""
    can_drain: bool = True
    """Rows stop coming when the query's sources stand still."""
    last: bool = False
    """It stands beside rows without epochs: it injects a checkpoint only when all others have."""
    marks_reads: bool = False
    """Its offsets say whether rows may have come: :mod:`spark_ckpt.runtime.batch_epochs` asks."""


@dataclass(frozen=True)
class SinkSpec:
    """One sink of a run. ``cls`` is the TwoPhaseSink class, ``options`` its own options (may hold secrets), and
    ``replacing`` says whether the query's output mode is complete."""

    id: str
    cls: Any
    options: dict[str, str] = field(repr=False)
    replacing: bool = False
    storage: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The job's own storage options, where the sink uses them. They are recorded nowhere."""
    refused_by: str | None = None
    """It gets no rows of the query, but those that the sink of this id refuses."""

    def rows(self, schema: pa.Schema) -> pa.Schema:
        """What it gets, of a query's rows."""
        return schema if self.refused_by is None else rejects.SCHEMA

    def make(self, place: JobPlace | None = None) -> TwoPhaseSink:
        """The sink, on the driver and on executors. Raises as :func:`spark_ckpt.sinks.registry.create_sink`."""
        return create_sink(self.cls, {**self.options, **self.storage}, self.replacing, place)


def asked_for(sinks: Sequence[SinkSpec]) -> list[SinkSpec]:
    """Those that the query names, without the ones for rows that others refuse."""
    return [s for s in sinks if s.refused_by is None]


def with_job_storage(spec: SinkSpec, config: JobConfig) -> SinkSpec:
    """``spec`` with the job's storage options, if it takes such, has none of its own, and is where the job's folder
    is: the same scheme, another place than local folders. Driver."""
    names = {name.lower(): value for name, value in spec.options.items()}
    own = any(name.startswith(STORAGE) for name in names)
    takes = any(o.name == f"{STORAGE}*" for o in getattr(spec.cls, "DECLARED", ()))
    if own or not takes or not config.storage or "path" not in names:
        return spec
    scheme = scheme_of(normalize_url(names["path"]))
    if scheme == "file" or scheme != scheme_of(normalize_url(config.dir)):
        return spec
    return replace(spec, storage={f"{STORAGE}{name}": value for name, value in config.storage.items()})
