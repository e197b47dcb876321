"""Users of the simulated job: each asks for one checkpoint or savepoint, waits, and gives up after its time."""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.protocol.records import FINAL, SAVEPOINT, TriggerRecord
from spark_ckpt.protocol.source_steps import ManualRequest
from spark_ckpt.testing.simulation.durable import Answer
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

    def step(self, world: World) -> None:
        """As ``spark_ckpt.jobs.requests.ask`` does it."""
        if self.state == ASKS and world.now_ms >= self.at_ms:
            target = f"{'read-only' if self.read_only else 'savepoint'}-{self.name}"
            deadline_ms = world.now_ms + self.timeout_ms
            request = ManualRequest(self.name, self.kind, world.now_ms, target, self.terminal, deadline_ms)
            if self.drain:
                saved = self.kind == SAVEPOINT
                kind, where = (SAVEPOINT, target) if saved else (FINAL, None)
                request = ManualRequest(self.name, kind, world.now_ms, where, True, deadline_ms, True)
            elif self.kind != SAVEPOINT:
                request = ManualRequest(self.name, self.kind, world.now_ms, None, False, deadline_ms)
            world.requests[self.name] = request
            self.at_ms = deadline_ms
            self.state = FAILED if self.dies else WAITS
        elif self.state == WAITS:
            self._wait(world)

    def _wait(self, world: World) -> None:
        answer = world.answers.get(self.name)
        gone = any(t.request == self.name and t.checkpoint in world.records.text["aborted"] for t in _triggers(world))
        if answer is None and (gone or world.now_ms > self.at_ms):
            answer = world.answer(self.name, Answer(None, "whoever asked stopped waiting"))
            world.requests.pop(self.name, None)
            world.seen["a caller stops waiting"] += 1
        if answer is not None:
            self.checkpoint = answer.checkpoint if answer.error is None else None
            self.state = FAILED if self.checkpoint is None else ANSWERED
            world.log("caller", f"{self.name} {self.state} {answer}")


def _triggers(world: World) -> list[TriggerRecord]:
    return world.records.all("triggers")
