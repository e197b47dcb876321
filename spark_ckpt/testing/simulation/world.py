"""Everything durable in the simulation, the clock, and the points where the process stops.

Every place that the real code reaches (:mod:`spark_ckpt.faults`) and every change of the disk, before and after it, is
a point: there the seed may stop the process, tear what is written, or let storage fail; and there drivers that were
believed dead take a step.
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from spark_ckpt.errors import CkptError, CorruptStorageError, ProtocolBugError
from spark_ckpt.testing.simulation._tears import torn
from spark_ckpt.testing.simulation.disk import Disk
from spark_ckpt.testing.simulation.durable import JOBS, READ_ONLY, Location, SimulationError, ToySink, Visible
from spark_ckpt.testing.simulation.processes import Crash, Process

START_MS = 1_000_000

running: list[World] = []


def current() -> World:
    """The one that the real code of this process lives in now."""
    return running[-1]


def _looked_and_removes(what: str, subject: Any) -> bool:
    """A start that empties Spark's location has just looked whose it is. One that is halted between the two, for as
    long as its successor's whole start, is no case of this simulation: see docs/design/prepared.md."""
    return what == "remove" and str(subject).startswith("spark")


class World:
    """Everything durable, the clock, and the seed's decisions about where to stop."""

    def __init__(self, rng: random.Random, trace: list[str] | None = None) -> None:
        self.rng = rng
        self.trace = trace
        self.now_ms = START_MS
        self.disk = Disk()
        self.sink = ToySink()
        self.filtered: Visible | None = None
        """A row that a target refused, and that the query drops in front of its sinks since."""
        self.locations: dict[str, Location] = {}
        self.went_to: dict[str, Location] = {}
        self.run_rows: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
        """What each state file holds, by uid and name: as a cache of the disk, which says what is there."""
        self.job = "simulated"
        self.generation = 0
        """Of the driver that runs now."""
        self.savepoints: dict[str, int] = {}
        """When each savepoint that is on the disk completed, by its URL."""
        self.drains: list[dict[str, Any]] = []
        """Where the sources stood at each checkpoint that drained the job."""
        self.drained: set[str] = set()
        self.answers: dict[str, Any] = {}
        """The first word on each request."""
        self.triggered: set[str] = set()
        self.imports = False
        """A savepoint is brought in: it is confirmed before it is there."""
        self.faults_left = 0
        self.slow_left = 0
        self.fault_rate = 0.0
        self.hook_faults_left = 0
        self.may_halt = True
        """Whether a driver that stops may only seem to."""
        self.process: Process | None = None
        self.moving: Process | None = None
        """The halted driver that takes a step, if one does."""
        self.zombies: list[Process] = []
        self.zombies_moved = 0
        self.stop_at: int | str | None = None
        """After so many points, at some point that concerns a step of this name, or at ``before <step>``."""
        self.points = 0
        self.sabotage = ""
        self.tears_left = 0
        self.torn: dict[str, bytes] = {}
        """Half of what was written, by path."""
        self.lives = 0
        self.copy: Any = None
        """An older copy of the targets and the folder, if one was made."""
        self.folder_set_back = False
        """Its batch records may name what was committed since."""
        self.rolled_back_to = 0
        """The checkpoint of the last rollback, finished or not."""
        self.rolls_back = False
        """A command takes the job back: what it aborts may be committed, and not confirmed."""
        self.set_back: Any = None
        """What was set back, until a start goes on all the same."""
        self.went_on: Any = None
        """What was set back before that."""
        self.check: Callable[[World, str, bytes | None], None] | None = None
        """What must hold behind each change of the disk."""
        self.broken: SimulationError | None = None
        self.seen: Counter[str] = Counter()
        """How often what a schedule is there for really happened."""
        self._writing: tuple[str, bytes | None] | None = None
        self._quiet = 0
        self._ids = 0

    # -- points ------------------------------------------------------------------------------------------------

    def reached(self, place: str) -> None:
        """The real code reached a place that is marked."""
        what, _, name = place.partition(" ")
        self.point(what, name)

    def point(self, what: str, subject: Any = "") -> None:
        """The process may stop here, and a zombie may move."""
        if self._quiet:
            return
        self.points += 1
        if self.trace is not None:
            self.log(what, subject)
        if self.process is not None:
            self.process.at = subject
        if self.moving is not None:
            if not _looked_and_removes(what, subject):
                self.moving.halt()
            return
        for zombie in list(self.zombies):
            if self.rng.random() < zombie.rate:
                self._move(zombie)
        if self._stops(what, subject):
            self.stop_at = None
            self.log("== the process stops")
            self._stop(_looked_and_removes(what, subject))

    def _stops(self, what: str, subject: Any) -> bool:
        if self.stop_at is None:
            return False
        if isinstance(self.stop_at, int):
            self.stop_at -= 1
            return self.stop_at < 0
        return self.stop_at == f"{what} {subject}" or (self.stop_at == subject and self.rng.random() < 0.4)

    def _stop(self, for_good: bool) -> None:
        """For good, with what it was writing torn, perhaps; or it only seems so."""
        if self.tears_left and torn(self, self._writing):
            self.tears_left -= 1
            self.seen["a write is torn"] += 1
            raise Crash  # the machine stopped, too: no driver of it is left
        if self.process is not None and self.may_halt and not for_good and self.rng.random() < 0.5:
            process = self.process
            process.rate = self.rng.choice((0.005, 0.03, 0.2))
            self.zombies.append(process)
            process.halt()
            return
        raise Crash

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Within, nothing stops, fails or moves: for others than the job's drivers."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    @property
    def zombie_moves(self) -> bool:
        return self.moving is not None

    # -- the disk ----------------------------------------------------------------------------------------------

    def before(self, path: str, data: bytes | None) -> None:
        if path.startswith(READ_ONLY):
            raise PermissionError(errno.EACCES, "read-only")
        if self._quiet:
            return
        self._writing = (path, data)
        try:
            self.point("write" if data is not None else "remove", path)
        finally:
            self._writing = None
        self._storage_fails(path)

    def after(self, path: str, data: bytes | None) -> None:
        if self.check is not None:
            self.check(self, path, data)
        if not self._quiet:
            self._storage_fails(path)  # it was done, and its answer was lost
            self.point("written" if data is not None else "removed", path)

    def _storage_fails(self, path: str) -> None:
        """Storage may fail, before or after it did what it was asked for, or take its time. Half-way stands nobody."""
        if self.moving is not None:
            return
        if self.slow_left and self.rng.random() < 0.02:
            self.slow_left -= 1
            self.now_ms += self.rng.choice((1000, 10_000))
            self.seen["storage is slow"] += 1
        if self.faults_left and self.rng.random() < self.fault_rate:
            self.faults_left -= 1
            self.log("== storage fails", path)
            self.seen["storage fails"] += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def remove_folder(self) -> None:
        """Everything of the job but its sinks and its savepoints is gone."""
        self.disk.drop(f"{JOBS}/{self.job}")
        self.run_rows, self.answers, self.triggered, self.drained = {}, {}, set(), set()
        self.lives += 1

    def fresh_location(self) -> Location:
        name = f"spark{len(self.locations)}"
        return self.locations.setdefault(name, Location(name, self.disk))

    def moves(self, given: Location, path: str) -> Location:
        """The job that was started at ``given`` has its own location at ``path``."""
        self.went_to[given.path] = self.locations.setdefault(path, Location(path, self.disk))
        self.seen["a changed query goes on at a location of its own"] += 1
        return self.went_to[given.path]

    def now_at(self, given: Location) -> Location:
        """Where the job that is started at ``given`` goes on."""
        found = self.went_to.get(given.path)
        return given if found is None or found is given else self.now_at(found)

    # -- drivers -----------------------------------------------------------------------------------------------

    def drive(self, work: Callable[[], Any]) -> Any:
        """Run a driver to its end; raises what it raised, and ``Crash`` if it stops or is halted."""
        self.process = process = Process(work)
        self._writing = None  # what a driver that was halted was writing is not this one's
        process.go()
        self.process = None
        if self.broken is not None:
            raise self.broken
        if not process.done:
            raise Crash
        if process.error is not None:
            raise process.error
        return process.result

    def still(self) -> None:
        """A driver that was halted and moves does nothing by itself behind the call that it was halted in."""
        if self.moving is not None:
            raise Crash

    def forget_zombies(self, but: Callable[[Process], bool] = lambda _: False) -> None:
        """They are really dead; those aside that ``but`` says yes to."""
        for zombie in [z for z in self.zombies if not but(z)]:
            self.process = self.moving = zombie
            zombie.kill()
            self.zombies.remove(zombie)
        self.process = self.moving = None

    def _move(self, zombie: Process) -> None:
        self.zombies_moved += 1
        self.seen["a halted driver moves"] += 1
        live, self.process, self.moving, writing = self.process, zombie, zombie, self._writing
        zombie.go()
        # Halted in a write, perhaps, which is not torn when the other driver stops: this one goes on with it.
        self.process, self.moving, self._writing = live, None, writing
        if not zombie.done:
            return
        self.log("a halted driver ends", repr(zombie.error))
        self.zombies.remove(zombie)
        if isinstance(zombie.error, CorruptStorageError | ProtocolBugError) and not zombie.starts:
            # A start that is refused had looked before it was fenced: what it found was damaged.
            self.fail(f"a fenced driver is told: {zombie.error!r}")
        if zombie.error is not None and not isinstance(zombie.error, Crash | CkptError | OSError):
            self.fail(f"a fenced driver breaks: {zombie.error!r}")

    # -- small things --------------------------------------------------------------------------------------------

    def log(self, what: str, subject: Any = "") -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:>9} {'zombie ' if self.zombie_moves else ''}{what} {subject}")

    def fail(self, message: str) -> None:
        """An invariant does not hold. Remembered, as the real code may catch what is raised in it."""
        self.broken = self.broken or SimulationError(message)
        raise self.broken

    def unique(self) -> int:
        self._ids += 1
        return self._ids
