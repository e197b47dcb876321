"""A job under test in real Spark: its starts are processes, which die by SIGKILL at steps of the library's code."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from spark_ckpt.config import PREFIX
from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.sinks import memory
from spark_ckpt.testing.jobs._comparing import ScheduleError, difference
from spark_ckpt.testing.jobs._in_spark import Start
from spark_ckpt.testing.jobs._rows import Row

if TYPE_CHECKING:
    from spark_ckpt.testing.jobs._job import JobUnderTest

PLACES = (
    "after CreateCompletion",
    "after WriteBatch",
    "after PrepareCommit",
    "after CommitSink",
    "before CreateCompletion",
    "before WriteCommitted",
    "after WriteCommitted",
    "before WriteBatch",
)
"""Of the steps of a batch that every job takes, those behind which something is durable that was not before."""
_MAIN = "from spark_ckpt.testing.jobs._in_spark import main; main()"
_SHOWN = 3000
_FAR_AWAY_S = 900.0
"""No start takes so long; one that hangs does."""

Shown = Callable[[], list[Row]]


@dataclass(frozen=True)
class SparkSchedule:
    """``kills``: the place at which each start but the last dies, and when it comes there for which time. ``moves``:
    whether the start behind it finds an empty Spark location, and restores the newest checkpoint."""

    number: int
    kills: tuple[tuple[str, int], ...] = ()
    moves: tuple[bool, ...] = ()

    @classmethod
    def of(cls, number: int) -> SparkSchedule:
        """The first start dies in its second batch: what it did before is in a checkpoint."""
        rng = random.Random(number)
        first = (PLACES[number % len(PLACES)], 1 if "Prepare" in PLACES[number % len(PLACES)] else 2)
        more = [(rng.choice(PLACES), 1) for _ in range(rng.choice((0, 0, 1)))]
        kills = (first, *more)
        return cls(number, kills, tuple(rng.random() < 0.5 for _ in kills))

    def told(self) -> list[str]:
        said = [f"start {n + 1} dies {place}, at time {nth}" for n, (place, nth) in enumerate(self.kills)]
        moved = [str(n + 2) for n, moves in enumerate(self.moves) if moves]
        return [*said, f"at an empty Spark location: start {', '.join(moved)}"] if moved else said


class StartError(CkptError):
    """A start of the job failed; its text has what it said."""


def check_in_spark(job: JobUnderTest, numbers: Sequence[int], how: str, conf: Mapping[str, str]) -> None:
    """Raises ``ScheduleError`` as :meth:`JobUnderTest.check` does; ``how`` is filled in with the schedule's name."""
    expected = job.compare(_under(job, SparkSchedule(0), conf))
    for schedule in map(SparkSchedule.of, numbers):
        try:
            found = job.compare(_under(job, schedule, conf))
        except StartError as error:
            raise ScheduleError(_told(schedule, str(error), how)) from error
        if found != expected:
            raise ScheduleError(_told(schedule, difference(expected, found, False), how))


def _told(schedule: SparkSchedule, what: str, how: str) -> str:
    name = f"spark-{schedule.number}"
    again = how.format(name) if how else f"check_with_spark(replay={schedule.number})"
    return "\n".join([f"crash schedule {name}: {what}", *schedule.told(), f"replay it: {again}"])


def _under(job: JobUnderTest, schedule: SparkSchedule, conf: Mapping[str, str]) -> list[Row]:
    """What the sink shows at the end."""
    folder = Path(tempfile.mkdtemp(prefix="spark-ckpt-job-"))
    try:
        kind, options, shown = (job.sink or _in_memory)(folder)
        place, whole = 0, _conf(job, folder, conf)
        for number, kill in enumerate((*schedule.kills, None)):
            place += bool(number and schedule.moves[number - 1])
            location = str(folder / f"spark-{place}")
            start = Start(job.query, job.sources, (kind, options), whole, location, job.output_mode)
            _run(start, folder, kill, number + 1)
        return shown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _conf(job: JobUnderTest, folder: Path, conf: Mapping[str, str]) -> dict[str, str]:
    ckpt = {
        "interval": "100ms",  # with every batch
        "initialDelay": "0s",
        "history": "false",
        "maxParallelism": "4",
        "lanes": "2",
        **job.options,
        "dir": str(folder / "jobs"),
        "cache.dir": str(folder / "cache"),
    }
    return {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(job.tasks),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "tmp"),
        **conf,
        **{f"{PREFIX}{name}": value for name, value in ckpt.items()},
    }


def _in_memory(folder: Path) -> tuple[Any, dict[str, str], Shown]:
    return "memory", {"path": str(folder / "sink")}, lambda: memory.read(str(folder / "sink")).to_pylist()


def _run(start: Start, folder: Path, kill: tuple[str, int] | None, number: int) -> None:
    """One start, until it has committed all, or died at ``kill``, which it must come to."""
    marker = folder / f"died-{number}"
    at = "" if kill is None else f"{kill[0]}#{kill[1]}={marker}"
    code, said = _process(_sent(start), folder, at)
    if kill is not None and code == 0:
        raise InvalidInputError(
            f"expected the job to come to {kill[0]!r} {kill[1]} times, found its end first. Give the sources more "
            "rows: a batch reads a fourth of the largest partition"
        )
    if code != (0 if kill is None else -signal.SIGKILL):
        raise StartError(f"start {number} ended with code {code}:\n{said[-_SHOWN:]}")


def _process(sent: bytes, folder: Path, kill_at: str) -> tuple[int, str]:
    """Its exit code, minus a signal's number, and what it and its JVM said. Nothing of it is left running."""
    (folder / "tmp").mkdir(exist_ok=True)
    paths = os.pathsep.join(path for path in sys.path if path)
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    env = {**os.environ, **python, "PYTHONPATH": paths, "SPARK_CKPT_KILL_AT": kill_at, "TMPDIR": str(folder / "tmp")}
    log = folder / "log"
    with log.open("wb") as out:
        started = subprocess.Popen(
            [sys.executable, "-c", _MAIN], stdin=subprocess.PIPE, stdout=out, stderr=out, env=env,
            start_new_session=True,
        )  # fmt: skip
        try:
            assert started.stdin is not None
            with suppress(BrokenPipeError):  # it says why it does not read
                started.stdin.write(sent)
                started.stdin.close()
            code = started.wait(_FAR_AWAY_S)
        finally:
            _end_all(started.pid)
            started.wait()
    return code, log.read_text(errors="replace")


def _end_all(session: int) -> None:
    """Python workers are in groups of their own: they are found by their session, where there is /proc."""
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    while alive := [pid for pid in _pids() if _session_of(pid) == session]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        threading.Event().wait(0.01)


def _pids() -> list[int]:
    with suppress(FileNotFoundError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return []


def _session_of(pid: int) -> int | None:
    """None of one that is dead, too."""
    with suppress(OSError):
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        return None if state == "Z" else int(session)
    return None


def _sent(start: Start) -> bytes:
    """``start`` for another process: what it can import goes by name, and the test's own module else by value."""
    with _by_value(getattr(start.query, "__module__", None)):
        return bytes(cloudpickle.dumps(start))


@contextmanager
def _by_value(module: str | None) -> Iterator[None]:
    found = sys.modules.get(module or "")
    if found is None or module == "__main__" or _can_be_found(str(module)):
        yield
        return
    cloudpickle.register_pickle_by_value(found)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(found)


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
