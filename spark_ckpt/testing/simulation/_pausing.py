"""Somebody who pauses the job, and resumes it later: meanwhile no source may read anything."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_ckpt.jobs.pausing import end_pause, is_paused, note_pause
from spark_ckpt.jobs.requests import create_request, read_answer
from spark_ckpt.protocol.records import CHECKPOINT
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation.world import START_MS, World

_RATE = 0.3
LATER, ASKED, STILL, OVER = "later", "asked", "still", "over"


@dataclass
class Pausing:
    """``still``: whoever paused the job was told of its checkpoint, or the job was started while it was paused."""

    from_ms: int
    length_ms: int
    state: str = LATER
    request: str = ""
    starts: int = 0

    @classmethod
    def drawn(cls, seed: int) -> Pausing:
        """By draws of its own: those of the seed's schedule stay what they are."""
        draw = random.Random(f"pausing {seed}")
        never = draw.random() > _RATE
        return cls(START_MS + draw.randint(0, 20_000), draw.randint(500, 20_000), OVER if never else LATER)

    def streams(self) -> bool:
        """Whether a start is none of a run of what is available now, which would end at the pause."""
        self.starts += 1
        return self.state != OVER and self.starts % 4 != 0

    def step(self, world: World) -> None:
        """Between two polls. As :meth:`spark_ckpt.Job.pause` does it, which would wait here."""
        with world.quietly():
            self._step(world)

    def _step(self, world: World) -> None:
        records = records_of(world)
        if self.state == LATER and world.now_ms >= self.from_ms:
            world.log("== is paused")
            note_pause(records, world.job, "for the simulation")
            self.request = create_request(records.store, CHECKPOINT)
            self.from_ms, self.state = world.now_ms, ASKED
        elif self.state in (ASKED, STILL) and world.now_ms >= self.from_ms + self.length_ms:
            self.resume(world)
        elif self.state == ASKED:
            answer = read_answer(records.store, self.request)
            self.state = STILL if answer is not None and answer.error is None else ASKED
        elif self.state == OVER and is_paused(records.store):
            end_pause(records.store)  # the folder was set back to a copy of that time

    def resume(self, world: World) -> None:
        with world.quietly():
            end_pause(records_of(world).store)
        world.log("== is resumed")
        world.seen["a job is paused"] += 1
        self.state = OVER

    def started(self, world: World) -> None:
        with world.quietly():
            if self.state == ASKED and is_paused(records_of(world).store):
                world.seen["a paused job is started"] += 1
                self.state = STILL

    def check(self, world: World, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        """Of a poll for what is new."""
        if self.state != STILL:
            return
        with world.quietly():
            there = is_paused(records_of(world).store)  # the job's folder may have been removed
        if there and any(end[name]["inner"] != start[name]["inner"] for name in end):
            world.fail(f"a source reads while the job is paused: {start} to {end}")
        world.seen["a source is asked while the job is paused"] += there
