"""Everything durable in the simulation, the clock, and the points where the process stops.

Every change goes through :meth:`World.point`, before and after, where the seed may stop the process, and where drivers
that were believed dead take a step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from spark_ckpt.errors import CkptError, CorruptStorageError, ProtocolBugError, StorageNotWritableError
from spark_ckpt.protocol.records import REFUSED
from spark_ckpt.protocol.source_steps import CreateTrigger, ManualRequest
from spark_ckpt.protocol.steps import CHECKPOINT_STEPS, CLEAN_UP_STEPS, StorageFailed, WriteGeneration
from spark_ckpt.testing.simulation._tears import tear
from spark_ckpt.testing.simulation.durable import (
    Answer,
    Location,
    Records,
    Savepoint,
    SimulationError,
    StateTables,
    ToySink,
)

_MAY_FAIL = (*CHECKPOINT_STEPS, *CLEAN_UP_STEPS, CreateTrigger)
"""As the real shell: a checkpoint fails, or something is cleaned up later."""


class Crash(BaseException):
    """The process stops here. Not an ``Exception``: nothing in it may catch it."""


@dataclass
class Zombie:
    """A driver believed dead, stopped at ``step`` of its coroutine; it moves on at ``rate`` of all points."""

    steps: Generator[Any, Any, Any]
    step: Any
    execute: Callable[[Any], Any]
    rate: float


class World:
    """Everything durable, the clock, and the seed's decisions about where to stop."""

    def __init__(self, rng: random.Random, trace: list[str] | None = None) -> None:
        self.rng = rng
        self.trace = trace
        self.now_ms = 1_000_000
        self.records = Records()
        self.tables = StateTables()
        self.sink = ToySink()
        self.savepoints: dict[str, Savepoint] = {}
        self.locations: dict[str, Location] = {}
        self.history: list[Any] = []
        self.requests: dict[str, ManualRequest] = {}
        self.answers: dict[str, Answer] = {}
        self.torn_answers: set[str] = set()
        self.drained: set[tuple[int, str]] = set()
        self.drains: list[dict[str, Any]] = []
        """Where the sources stood at each checkpoint that drained the job."""
        self.faults_left = 0
        self.slow_left = 0
        self.fault_rate = 0.0
        self.zombies: list[Zombie] = []
        self.zombie_moves = False
        self.zombies_moved = 0
        self.stop_at: int | str | None = None
        """After so many points, at some point that concerns a step of this name, or at ``before <step>``."""
        self.points = 0
        self.sabotage = ""
        self.tears_left = 0
        self.lives = 0
        self.seen: Counter[str] = Counter()
        """How often what a schedule is there for really happened."""
        self._ids = 0

    def point(self, what: str, subject: Any = "") -> None:
        """The process may stop here, and a zombie may move."""
        self.points += 1
        self.log(what, subject)
        for zombie in list(self.zombies):
            if self.rng.random() < zombie.rate:
                self._move(zombie)
        if self._stops(what, type(subject).__name__):
            self.stop_at = None
            self.log("== the process stops", "")
            raise Crash

    def _stops(self, what: str, name: str) -> bool:
        if isinstance(self.stop_at, int):
            self.stop_at -= 1
            return self.stop_at < 0
        return self.stop_at == f"{what} {name}" or (self.stop_at == name and self.rng.random() < 0.4)

    def log(self, what: str, subject: Any = "") -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:>9} {'zombie ' if self.zombie_moves else ''}{what} {subject}")

    @property
    def life(self) -> str:
        """The mark of the job's life, should it begin now."""
        return f"life{self.lives}"

    def remove_folder(self) -> None:
        """Everything of the job but its sinks and its savepoints is gone."""
        self.records, self.tables = Records(), StateTables()
        self.requests, self.answers, self.torn_answers, self.drained = {}, {}, set(), set()
        self.lives += 1

    def unique(self) -> int:
        self._ids += 1
        return self._ids

    def drive(self, steps: Generator[Any, Any, Any], execute: Callable[[Any], Any]) -> Any:
        """Run a coroutine of the protocol to its end; the process may stop before and after every step."""
        step, result = None, None
        try:
            step = next(steps)
            while True:
                self.point("before", step)
                try:
                    self._storage_fails(step)
                    result = execute(step)
                    self._storage_fails(step)  # it was done, and its answer was lost
                except CkptError as error:
                    if self._passes_over(step):
                        step = steps.send(None)
                    elif isinstance(error, StorageNotWritableError) and isinstance(step, _MAY_FAIL):
                        self.seen["storage fails, and the query goes on"] += 1
                        step = steps.send(StorageFailed(str(error)))
                    else:
                        step = steps.throw(error)
                    continue
                done, step = step, None
                self.point("after", done)
                step = steps.send(result)
        except StopIteration as e:
            return e.value
        except Crash:
            if step is not None:
                self._halted(steps, step, execute)
            raise

    def _halted(self, steps: Generator[Any, Any, Any], step: Any, execute: Callable[[Any], Any]) -> None:
        """A driver stopped at ``step``. Perhaps it only seems so."""
        if self.tears_left and self._tears(step):
            return  # the machine stopped, too: no driver of it is left
        # Who asked for a rollback, and went on to roll back later, would have what came between twice, as told.
        rolls_back = getattr(execute, "restore", "auto") != "auto"
        if not rolls_back and self.rng.random() < 0.5:
            self.zombies.append(Zombie(steps, step, execute, self.rng.choice((0.01, 0.05, 0.3))))

    def attempt(self, part: Any, execute: Callable[[Any], Any]) -> Exception | None:
        """One of several things that a step does side by side; what it raised, if it did."""
        alone = self.zombie_moves  # nobody else moves until it is done
        try:
            if not alone:
                self.point("before", part)
                self._storage_fails(part)
            execute(part)
            if not alone:
                self._storage_fails(part)
        except CkptError as error:
            return None if self._passes_over(part) else error
        if not alone:
            self.point("after", part)
        return None

    def _storage_fails(self, step: Any) -> None:
        """Storage and sinks may fail, before or after they did what they were asked for, or take their time."""
        if self.slow_left and self.rng.random() < 0.02:
            self.slow_left -= 1
            self.now_ms += self.rng.choice((1000, 10_000))
            self.seen["storage is slow"] += 1
        if self.faults_left and self.rng.random() < self.fault_rate:
            self.faults_left -= 1
            self.log("== storage fails", step)
            self.seen["storage fails"] += 1
            raise StorageNotWritableError(f"{type(step).__name__} failed")

    def _passes_over(self, step: Any) -> bool:
        """Sabotage: a sink's commit that failed is taken for done."""
        return self.sabotage == "failed_is_done" and type(step).__name__ == "CommitSink"

    def _tears(self, step: Any) -> bool:
        if not tear(self, step):
            return False
        self.tears_left -= 1
        self.log("== torn", step)
        self.seen["a write is torn"] += 1
        return True

    def answer(self, request: str, answer: Answer) -> Answer:
        """Say the last word if nobody has, or if nobody can read it; returns what was said."""
        self.torn_answers.discard(request)
        return self.answers.setdefault(request, answer)

    def _move(self, zombie: Zombie) -> None:
        self.zombie_moves = True
        self.zombies_moved += 1
        self.seen["a halted driver moves"] += 1
        try:
            self.log("moves", zombie.step)
            try:
                result = zombie.execute(zombie.step)
            except CkptError as error:
                zombie.step = zombie.steps.throw(error)
            else:
                zombie.step = zombie.steps.send(result)
        except (StopIteration, CkptError) as e:
            self.log("ends", repr(e))
            self.zombies.remove(zombie)
            refused = isinstance(zombie.step, WriteGeneration) and zombie.step.record.origin == REFUSED
            # A start that is refused had looked before it was fenced: what it found was damaged.
            if isinstance(e, CorruptStorageError | ProtocolBugError) and not refused:
                raise SimulationError(f"a fenced driver is told: {e!r}") from e
        finally:
            self.zombie_moves = False
