"""Users of the simulated job: each asks for one checkpoint or savepoint, waits, and gives up after its time."""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import Answer, create_request, read_answer, withdraw_request
from spark_ckpt.protocol.records import FINAL, SAVEPOINT
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation.durable import READ_ONLY, url
from spark_ckpt.testing.simulation.world import World

ASKS, WAITS, ANSWERED, FAILED = "asks", "waits", "answered", "failed"


@dataclass
class Caller:
    """``dies``: its process is gone right after it asked; only the deadline in its request ends that."""

    name: str
    at_ms: int
    kind: str
    terminal: bool
    timeout_ms: int
    dies: bool
    read_only: bool = False
    drain: bool = False
    state: str = ASKS
    checkpoint: int | None = None
    request: str = ""

    def step(self, world: World) -> None:
        """As :func:`spark_ckpt.jobs.requests.ask` does it, which would wait here."""
        if self.state == ASKS and world.now_ms >= self.at_ms:
            with world.quietly():
                self._ask(world, records_of(world))
        elif self.state == WAITS:
            with world.quietly():
                self._wait(world, records_of(world))

    def _ask(self, world: World, records: JobRecords) -> None:
        target = url(f"{READ_ONLY if self.read_only else 'savepoints/of'}-{self.name}")
        kind, terminal = self.kind, self.terminal and self.kind == SAVEPOINT
        if self.drain:
            kind, terminal = SAVEPOINT if self.kind == SAVEPOINT else FINAL, True
        where = target if kind == SAVEPOINT else None
        self.request = create_request(records.store, kind, where, terminal, self.timeout_ms / 1000, self.drain)
        self.at_ms = world.now_ms + self.timeout_ms
        self.state = FAILED if self.dies else WAITS

    def _wait(self, world: World, records: JobRecords) -> None:
        answer = read_answer(records.store, self.request)
        if answer is None and (self._gone(records) or world.now_ms > self.at_ms):
            answer = withdraw_request(records.store, self.request, "whoever asked stopped waiting")
            world.seen["a caller stops waiting"] += 1
        if answer is not None:
            self._told(world, answer)

    def _told(self, world: World, answer: Answer) -> None:
        self.checkpoint = answer.checkpoint if answer.error is None else None
        self.state = FAILED if self.checkpoint is None else ANSWERED
        world.log("caller", f"{self.name} {self.state} {answer}")

    def _gone(self, records: JobRecords) -> bool:
        aborted = set(records.ids("aborted"))
        triggers = (records.trigger(k) for k in records.ids("triggers") if k in aborted)
        return any(t is not None and t.request == self.request for t in triggers)
