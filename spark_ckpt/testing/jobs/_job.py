"""A job under test: run step by step, killed anywhere, or run under many crash schedules and compared."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import create_request, read_answer
from spark_ckpt.jobs.spec import job_url
from spark_ckpt.protocol.records import CHECKPOINT, SAVEPOINT
from spark_ckpt.testing.jobs._comparing import ScheduleError, all_rows, difference
from spark_ckpt.testing.jobs._frames import Frame, source_frame
from spark_ckpt.testing.jobs._query import JOB, Query, Wanted, source_node
from spark_ckpt.testing.jobs._rows import TARGETS, CollectSink, Feed, Row, Rows, Target, source_of
from spark_ckpt.testing.jobs._spark import check_in_spark
from spark_ckpt.testing.jobs._workers import first_failure
from spark_ckpt.testing.jobs._world import Crash, World, living_in
from spark_ckpt.testing.simulation.durable import Location, url

MOST_POLLS = 5000
_IMPORTED = "savepoints/given"

Shown = Callable[[], list[Row]]
MakeSink = Callable[[Path], tuple[Any, dict[str, str], Shown]]


@dataclass(frozen=True)
class JobUnderTest:
    """A job, as a test sees it.

    ``query`` is the job's own function: it gets a frame for each of ``sources``, by their names, and returns what the
    sink gets. ``sink``: None for one in memory; else a function that is given an empty folder, once in each run, and
    returns the sink's class (or format), its options, and a function that reads what the sink shows, as dicts.
    ``compare`` makes of those rows what must be the same with and without crashes. ``batches``: ``"any"``, rows fall
    into batches at random, so that what depends on the batch is found, or ``"fixed"``. ``tasks``: how many a keyed
    operator has. ``options``: settings of ``spark.ckpt.*``, without the prefix. Everything runs in this process.
    """

    query: Callable[..., Frame]
    sources: Mapping[str, Rows]
    sink: MakeSink | None = None
    compare: Callable[[list[Row]], Any] = all_rows
    batches: str = "any"
    tasks: int = 2
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batches not in ("any", "fixed"):
            raise InvalidInputError(f"batches: expected any or fixed, found {self.batches!r}")
        if not self.sources:
            raise InvalidInputError("sources: expected at least one, by its name")

    # -- whole runs --------------------------------------------------------------------------------------------

    def run(self, kill_at: str | None = None) -> list[Row]:
        """Run until all rows are read and a checkpoint of all of them is complete; returns what the sink shows.

        ``kill_at``: the job dies at the first step whose name has this in it, and is started again; the names are
        those of :meth:`steps`. Raises ``InvalidInputError`` if it does not come to such a step.
        """
        with Run.of(self) as run:
            run.to_end(kill_at)
            if kill_at is not None:
                if not run.world.killed:
                    raise InvalidInputError(f"kill_at: no step has {kill_at!r} in its name; steps() lists them")
                run.to_end()
            return run.rows

    def steps(self) -> list[str]:
        """The names of the steps of a run, in order: at each of them a crash is possible."""
        with Run.of(self) as run:
            run.to_end()
            return list(run.world.steps)

    def check(self, schedules: int = 1000, first: int = 0, replay: int | None = None, how: str = "") -> None:
        """Run under ``schedules`` crash schedules, from number ``first`` on, and compare with the run without crashes.

        The first crash of schedule ``n`` is at step ``n``, round and round, so as many schedules as there are steps
        try them all. ``replay``: this one only. Raises :class:`ScheduleError` that names the schedule, and by ``how``
        a command that runs it again; what the job itself raises under a schedule is its cause.
        """
        with Run.of(self) as run:
            run.to_end()
            expected, steps = self.compare(run.rows), len(run.world.steps)
        numbers = range(first, first + schedules) if replay is None else range(replay, replay + 1)
        try_one = partial(self._failure, expected=expected, steps=steps, how=how)
        failed = first_failure(try_one, numbers)
        if failed is not None:
            number, text = failed
            # Once more in this process, so that what was raised is there with where it was raised.
            self._check(Schedule.of(number, steps, self.batches), expected, how)
            raise ScheduleError(f"{text}\nRun once more it went well: the job depends on more than its input.")

    def _failure(self, number: int, expected: Any, steps: int, how: str) -> str | None:
        try:
            self._check(Schedule.of(number, steps, self.batches), expected, how)
        except ScheduleError as error:
            return str(error)
        return None

    def _check(self, schedule: Schedule, expected: Any, how: str) -> None:
        said: list[str] = []
        try:
            found = self._under(schedule, said)
        except Exception as error:
            raise ScheduleError(_told(schedule, said, f"raised {type(error).__name__}: {error}", how)) from error
        if found != expected:
            quiet = replace(schedule, kills=(), wakes=(), task_failures=0.0)
            alone = self._under(quiet, []) != expected if self.batches == "any" else False
            raise ScheduleError(_told(schedule, said, difference(expected, found, alone), how))

    def _under(self, schedule: Schedule, said: list[str]) -> Any:
        with Run.of(self, schedule) as run:
            for number, kill_at in enumerate((*schedule.kills, None)):
                if number and schedule.moves[number - 1]:
                    run.move()
                halts = number < len(schedule.kills) and schedule.wakes[number] is not None
                if run.to_halt(int(kill_at or 0), schedule.wakes[number] or 0) if halts else run.to_end(kill_at):
                    break
                how = "halts" if run.world.halted is not None else "dies"
                said.append(f"start {number + 1} {how} at step {kill_at}: {run.world.killed}")
            run.world.wake()
            return self.compare(run.rows)

    def check_with_spark(
        self,
        schedules: int = 5,
        first: int = 0,
        replay: int | None = None,
        how: str = "",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """As :meth:`check`, in real Spark: each start is a process with a JVM of its own, which dies by SIGKILL. The
        run to compare with is one in Spark, too. A schedule has two or three starts, of ten to twenty seconds each.

        ``query`` gets DataFrames here, and may use all that a checkpointed stream has. ``conf``: settings of the
        session. Sources need rows for some batches. ``query`` and ``sink`` reach the process by pickle, as Spark's
        functions do.
        """
        numbers = range(first, first + schedules) if replay is None else range(replay, replay + 1)
        check_in_spark(self, numbers, how, conf or {})

    # -- step by step ------------------------------------------------------------------------------------------

    @contextmanager
    def started(self, savepoint: str | Path | None = None) -> Iterator[Run]:
        """The job, started and idle: the test feeds rows, runs batches, advances the clock, kills. ``savepoint``: a
        folder that :meth:`Run.savepoint` wrote, from which the job begins."""
        with Run.of(self, savepoint=savepoint) as run:
            run.start()
            yield run


@dataclass(frozen=True)
class Schedule:
    """What happens to one run: ``kills`` are the steps at which its starts die, one after the other; ``moves``: whether
    the start behind each finds an empty Spark location, and restores the newest checkpoint; ``wakes``: the step of that
    start at which the one before, which only halted, goes on (None: it died)."""

    number: int
    kills: tuple[int, ...] = ()
    moves: tuple[bool, ...] = ()
    wakes: tuple[int | None, ...] = ()
    task_failures: float = 0.0
    vary: bool = False

    @classmethod
    def of(cls, number: int, steps: int, batches: str) -> Schedule:
        rng = random.Random(number)
        more = [rng.randrange(steps) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
        kills = (number % steps, *more)
        moves = tuple(rng.random() < 0.5 for _ in kills)
        failures = rng.choice((0.0, 0.0, 0.1))
        # Two at one location are kept apart by Spark itself, which is not here.
        wakes = tuple(rng.randrange(steps) if moved and rng.random() < 0.3 else None for moved in moves)
        return cls(number, kills, moves, wakes, failures, batches == "any")


def _told(schedule: Schedule, said: Sequence[str], what: str, how: str) -> str:
    moved = [n + 2 for n, moves in enumerate(schedule.moves) if moves]
    lines = [f"crash schedule {schedule.number}: {what}", *said]
    if moved:
        lines.append(f"at an empty Spark location: start {', '.join(map(str, moved))}")
    awake = [f"{n + 1} goes on at step {at} of the next" for n, at in enumerate(schedule.wakes) if at is not None]
    if awake:
        lines.append(f"halted, and believed dead: start {', '.join(awake)}")
    if schedule.task_failures:
        lines.append("tasks fail at their end, and are run again")
    lines.append(f"replay it: {how.format(schedule.number)}" if how else f"replay it: check(replay={schedule.number})")
    return "\n".join(lines)


class Run:
    """One job in a world of its own. Not for several threads."""

    def __init__(self, job: JobUnderTest, schedule: Schedule, folder: Path) -> None:
        self._job, self._schedule = job, schedule
        self._rng = random.Random(schedule.number)
        self.world = World()
        self._feeds = {name: Feed.of(rows) for name, rows in job.sources.items()}
        self._target = f"{id(self)}-{random.random()}"
        make = job.sink or self._collect
        cls, options, self._shown = make(folder)
        self._wanted_sink = (cls, options)
        self._places = 0
        self._location = Location("spark-0", self.world.disk)
        self._restore = "auto"
        self._query: Query | None = None

    @classmethod
    @contextmanager
    def of(
        cls, job: JobUnderTest, schedule: Schedule | None = None, savepoint: str | Path | None = None
    ) -> Iterator[Run]:
        folder = Path(tempfile.mkdtemp(prefix="spark-ckpt-job-")) if job.sink is not None else Path("/nonexistent")
        run = cls(job, schedule or Schedule(0), folder)
        if savepoint is not None:
            run._given(Path(savepoint))
        try:
            with living_in(run.world):
                yield run
        finally:
            run.world.ends()
            TARGETS.pop(run._target, None)
            if job.sink is not None:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def rows(self) -> list[Row]:
        """What the sink shows now."""
        return self._shown()

    # -- what a test does --------------------------------------------------------------------------------------

    def feed(self, source: str, *rows: Any) -> None:
        """More rows of ``source``, as tuples or dicts."""
        self._feeds[source].add(rows)

    def advance(self, ms: int) -> None:
        """The clock goes on."""
        self.world.now_ms += ms

    def start(self, kill_at: int | str | None = None) -> bool:
        """Start the job, in new processes; False if it died at the step ``kill_at`` while it started."""
        self.world.starts(kill_at)
        return self._lives(self._begin)

    def batches(self) -> int:
        """Run batches until there is nothing new; returns how many. A job that died is to be started again first."""
        count = 0
        while self._lives(self._running().poll):
            count += 1
        return count

    def kill(self) -> None:
        """The job's processes die now."""
        self._query = None

    def move(self) -> None:
        """The next start finds an empty Spark location: it restores the newest checkpoint."""
        self._places += 1
        self._location = Location(f"spark-{self._places}", self.world.disk)

    def change(self, job: JobUnderTest) -> None:
        """The job dies. The next start is that of ``job``, another version of it, and restores the newest checkpoint.

        Rows and offsets of sources that both have stay; the sink stays as it is.
        """
        self.kill()
        self.move()
        self._job = job
        for name, rows in job.sources.items():
            self._feeds.setdefault(name, Feed.of(rows))

    def checkpoint(self) -> int:
        """Complete a checkpoint of all rows that were fed; returns its id."""
        return self._asked(CHECKPOINT, None)

    def savepoint(self, folder: str | Path) -> int:
        """Write a savepoint of all rows that were fed into ``folder``, which is empty or not there; returns its id."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise InvalidInputError(f"savepoint: expected an empty folder, found {sorted(os.listdir(folder))[:3]}")
        made = f"savepoints/{self.world.unique()}"
        checkpoint = self._asked(SAVEPOINT, url(made))
        for path, data in self.world.disk.files.items():
            if path.startswith(f"{made}/"):
                to = folder / path[len(made) + 1 :]
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(data)
        return checkpoint

    def to_end(self, kill_at: int | str | None = None) -> bool:
        """Start the job, run it until its sources' rows are in a complete checkpoint, and stop it; False if it died."""
        if not self.start(kill_at):
            return False
        return self._lives(lambda: self._all(self._running()))

    def to_halt(self, kill_at: int, wakes_at: int) -> bool:
        """As :meth:`to_end`, in a driver that halts at the step and goes on when the next one comes to ``wakes_at``."""
        self.world.starts(kill_at)
        return self.world.halts(lambda: self._all(self._begun()), wakes_at)

    # -- how ---------------------------------------------------------------------------------------------------

    def _collect(self, _folder: Path) -> tuple[Any, dict[str, str], Shown]:
        target = TARGETS.setdefault(self._target, Target())
        return CollectSink, {"target": self._target}, lambda: target.shown

    def _given(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.world.disk.put(f"{_IMPORTED}/{path.relative_to(folder)}", path.read_bytes())
        if not self.world.disk.files:
            raise InvalidInputError(f"savepoint: expected the folder of a savepoint, found nothing in {folder}")
        self._restore = url(_IMPORTED)

    def _lives(self, work: Callable[[], Any]) -> bool:
        try:
            return work() is not False
        except Crash:
            self._query = None
            return False

    def _running(self) -> Query:
        if self._query is None:
            raise InvalidInputError("the job does not run: it died or was killed; call start() first")
        return self._query

    def _begin(self) -> None:
        self._query = self._begun()

    def _begun(self) -> Query:
        return Query(self.world, self._location, self._wanted(), self._rng, self._schedule.task_failures)

    def _all(self, query: Query) -> None:
        query.available_now()
        for _ in range(MOST_POLLS):
            self.world.now_ms += self._rng.choice((10, 1000, 3000)) if self._schedule.vary else 1000
            if not query.poll():
                query.stop()
                return
        raise CkptError(f"the job has not come to its end after {MOST_POLLS} batches")

    def _wanted(self) -> Wanted:
        frames = {}
        for name in self._job.sources:
            feed = self._feeds[name]
            node = source_node(name, source_of(name, feed, self._step), feed.schema)
            frames[name] = source_frame(node)
        made = self._job.query(**frames)
        if not isinstance(made, Frame):
            raise InvalidInputError(f"query: expected the frame that the sink gets, found {type(made).__name__}")
        return Wanted(made, self._wanted_sink, self._config(), self._job.tasks, self._job.output_mode)

    def _step(self, most: int) -> int:
        return self._rng.randint(0, most * 2) if self._schedule.vary else most

    def _config(self) -> JobConfig:
        given = {
            "interval": "4s",
            "minPause": "0ms",
            "initialDelay": "0ms",
            "history": "false",
            "maxParallelism": "4",
            "lanes": "2",
            **self._job.options,
            "dir": url("jobs"),
            "restore": self._restore,
        }
        return replace(JobConfig.from_options(given), retry_timeout_ms=0)

    def _asked(self, kind: str, target: str | None) -> int:
        query = self._running()
        store = JobRecords(job_url(query.wanted.config, JOB), query.wanted.config).store
        self.batches()
        request = create_request(store, kind, target)
        for _ in range(100):
            self.world.now_ms += 1000
            self._lives(self._running().poll)
            answer = read_answer(store, request)
            if answer is not None and answer.checkpoint is not None and answer.error is None:
                return int(answer.checkpoint)
            if answer is not None:
                raise CkptError(f"the {kind} failed: {answer.error}")
        raise CkptError(f"the {kind} was not completed by 100 batches")
