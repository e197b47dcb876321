"""Simulated sources: splits of rows behind the interface of any Python data source, and the real reader around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.jobs.spec import SourceSpec as RunSource
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.runtime.source.reader import CkptStreamReader, LanePartition
from spark_ckpt.spark_versions.read_limits import ReadLimit, SupportsTriggerAvailableNow
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation._state import Output
from spark_ckpt.testing.simulation.durable import Location
from spark_ckpt.testing.simulation.world import World, current
from spark_ckpt.types import BEFORE_BARRIERS

Offset = dict[str, Any]
"""A source's offset as Spark's offset log keeps it."""
SCHEMA = StructType([StructField("key", LongType())])


@dataclass(frozen=True)
class SourceSpec:
    """``splits``: the keys of each split's rows, in order. ``step``: the most rows of a split in a batch. ``ends``: it
    says so when it has read all. ``restores``, ``reaches``: operators, as the real reader is told. ``by_spark``: Spark
    itself reads its rows, so they have no epochs, and what sends its barriers is the last to do so. ``moved``: how
    often it got another uid."""

    name: str
    splits: tuple[tuple[int, ...], ...]
    lanes: int
    step: int = 3
    ends: bool = False
    poll_ms: int = 500
    restores: tuple[str, ...] = ()
    reaches: tuple[str, ...] = ()
    by_spark: bool = False
    moved: int = 0

    @property
    def uid(self) -> str:
        """What the job calls it now."""
        return f"{self.name}-{self.moved}" if self.moved else self.name

    def at_end(self, at: Sequence[int]) -> bool:
        return all(p == len(s) for p, s in zip(at, self.splits, strict=True))


def stood(sources: Mapping[str, Mapping[str, Any]]) -> dict[str, list[int]]:
    """Where each source stood, by its name, of what a checkpoint records by uid."""
    return {uid.partition("-")[0]: at["inner"]["at"] for uid, at in sources.items()}


_KEPT = "meaning-of-offsets"


def keep_beside_offsets(world: World, spec: SourceSpec) -> None:
    """What nobody can read the source's offsets without: it is there before the first of them is."""
    Folder(records_of(world).paths.source(spec.uid)).create(_KEPT, spec.name.encode())


def _check_kept(world: World, spec: SourceSpec) -> None:
    found = Folder(records_of(world).paths.source(spec.uid)).read(_KEPT)
    if found != spec.name.encode() and not world.zombie_moves:  # whose folder may be gone
        world.fail(f"source {spec.uid} finds {found!r} beside its offsets")


@dataclass
class Split(InputPartition):
    """Rows ``begin`` to ``end`` of one of a source's splits."""

    number: int
    begin: int
    end: int

    def __post_init__(self) -> None:
        super().__init__(None)


class SimulatedSource(DataSource):
    """Option ``uid``: which of the scenario's sources; :func:`open_reader` tells it the rest."""

    @classmethod
    def name(cls) -> str:
        return "simulated"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Inner(self.options["uid"])


class _Inner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Draws from the seed how far it reads."""

    def __init__(self, uid: str) -> None:
        self.spec: SourceSpec
        self.location: Location
        self.uids: tuple[str, ...]
        self.uid = uid
        self.available_now = False
        self.skips = False
        self.ends: list[int] | None = None

    def initialOffset(self) -> Offset:
        keep_beside_offsets(current(), self.spec)
        return {"at": [len(s) if self.skips else 0 for s in self.spec.splits]}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        world, spec, at = current(), self.spec, start["at"]
        world.point("before", "AskInner")
        _check_kept(world, spec)
        if spec.at_end(at):
            return start
        rng = world.rng
        ahead = [min(len(s), p + rng.randint(0, spec.step)) for p, s in zip(at, spec.splits, strict=True)]
        short = [i for i, end in enumerate(self.ends or map(len, spec.splits)) if at[i] < end]
        if self.available_now and short and all(ahead[i] == at[i] for i in short):
            # What is there is read: only a source that is drained has nothing new.
            ahead[short[0]] += 1
        return {"at": ahead}

    def prepareForTriggerAvailableNow(self) -> None:
        self.available_now = True

    def clipped(self, start: Offset, found: Offset, end: Offset) -> Offset | None:
        """Each split for itself."""
        if any(p > to for p, to in zip(start["at"], end["at"], strict=True)):
            return None
        return {"at": [min(p, to) for p, to in zip(found["at"], end["at"], strict=True)]}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        ranges = enumerate(zip(start["at"], end["at"], strict=True))
        return [Split(i, a, b) for i, (a, b) in ranges if a < b]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise NotImplementedError("the simulated tasks read the splits")

    def finished(self, offset: Offset) -> bool:
        found = self.spec.ends and self.spec.at_end(offset["at"])
        current().seen["a source ends"] += found
        return found

    def injected(self) -> int:
        """What all other sources have injected, by the newest offsets that were logged."""
        logged = self.location.offsets(self.location.planned, self.uids)
        return min((o["epoch"] - 1 for uid, o in logged.items() if uid != self.uid), default=0)

    def commit(self, end: Offset) -> None:
        """Upstream may forget what is before ``end``."""
        world = current()
        records = records_of(world)
        last = records.readable_checkpoint(max(records.ids("checkpoints"), default=0))
        covered = last.sources.get(self.uid, {}).get("inner") if isinstance(last, CompletionRecord) else None
        if not world.zombie_moves and (
            not covered or any(a > b for a, b in zip(end["at"], covered["at"], strict=True))
        ):
            world.fail(f"source {self.uid} is told to forget {end}, and the newest checkpoint has {covered}")


class SourceReader(CkptStreamReader):
    """The real reader, without what it does for its process: the end of one here is a crash."""

    def _say_that_it_lives(self, records: JobRecords) -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__  # for the search, which goes on with all that a reader knows


def open_reader(
    run: RunSpec, spec: SourceSpec, specs: Sequence[SourceSpec], can_drain: bool, last: bool, at: Location
) -> SourceReader:
    """Of the source ``spec``; ``specs``: all of the query, in its order."""
    own = replace(run, config=replace(run.config, trigger_poll_interval_ms=spec.poll_ms))
    source = RunSource(
        spec.uid, SimulatedSource, {"uid": spec.uid}, SCHEMA, spec is specs[0], spec.restores, spec.reaches, spec.lanes,
        can_drain=can_drain, last=last,
    )  # fmt: skip
    reader = SourceReader(own, source)
    inner = reader.inner._user_reader
    inner.spec, inner.location, inner.uids = spec, at, tuple(s.uid for s in specs)
    inner.ends = run.ends.get(spec.uid, {}).get("at")
    inner.skips = current().sabotage == "late_at_the_end" and run.restored_from is not None
    return reader


def read(reader: SourceReader, spec: SourceSpec, start: Offset, end: Offset) -> list[Output]:
    """One batch's partitions, as tasks read them. A source without news is not run at all, as in Spark."""
    return [_lane(spec, part) for part in reader.partitions(start, end) if isinstance(part, LanePartition)]


def _lane(spec: SourceSpec, part: LanePartition) -> Output:
    label = BEFORE_BARRIERS if spec.by_spark else part.epoch
    splits = (s for s in part.splits if isinstance(s, Split))
    rows = [(label, spec.splits[s.number][n], s.number * 1000 + n) for s in splits for n in range(s.begin, s.end)]
    return Output(rows, [(part.epoch, ev.decode(e)) for e in part.events])


def placed(specs: Iterable[SourceSpec], operators: Mapping[str, tuple[str, ...]]) -> tuple[SourceSpec, ...]:
    """``specs`` with the operators that each reaches, and those whose state it restores: the first to reach one."""
    reached: dict[str, list[str]] = {}
    for uid, inputs in operators.items():
        for name in inputs:
            reached.setdefault(uid, []).extend([name] if name.startswith("source") else reached[name])
    specs, out, restored = tuple(specs), [], set()
    for spec in specs:
        reaches = tuple(uid for uid in operators if spec.name in reached[uid])
        restores = tuple(uid for uid in reaches if uid not in restored)
        restored |= set(restores)
        out.append(replace(spec, reaches=reaches, restores=restores))
    return tuple(out)
