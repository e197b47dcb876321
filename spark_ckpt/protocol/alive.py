"""Whether somebody runs a job: what its driver says of itself now and then, and what that means later. Pure.

Clean-up from outside is safe only while nobody writes. A fence stops no driver that is in the middle of a batch, so a
driver leaves a heartbeat: who it is, and until when it may be believed. Where the process can be asked for (the same
machine), it is; elsewhere the heartbeat's time decides, which allows for clocks that differ by less than
``EXPIRES_MS - BEAT_MS``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spark_ckpt.protocol import codec
from spark_ckpt.protocol.topology import Refuse

BEAT_MS = 10_000
EXPIRES_MS = 60_000


@dataclass(frozen=True)
class ProcessName:
    """One process, unmistakably. ``place``: machine, boot and process namespace; ``started`` tells processes apart that
    got the same ``pid``. Both are empty where the system does not tell."""

    host: str
    place: str
    pid: int
    started: str


@dataclass(frozen=True)
class Heartbeat:
    """``process`` ran ``generation`` at ``time_ms`` of its own clock, and says so again before ``expires_ms``."""

    generation: int
    process: ProcessName
    time_ms: int
    expires_ms: int

    def to_json(self) -> dict[str, Any]:
        return codec.write(self)

    @classmethod
    def from_json(cls, value: Any, where: str = "heartbeat") -> Heartbeat:
        return codec.read(cls, value, where)


def is_alive(beat: Heartbeat, now_ms: int, here: str, running: bool) -> bool:
    """``here``: the place of who asks. ``running``: whether the process was found, if it is of that place.

    A process that is found is alive however old its heartbeat (it was halted, or its storage is slow); one that is
    gone is dead at once. Of another place, an expired heartbeat means that the driver crashed or cannot reach the job.
    """
    if here and beat.process.place == here and beat.process.started:
        return running
    return now_ms < beat.expires_ms


def refuse_while_alive(what: str, job: str, living: Iterable[Heartbeat], now_ms: int) -> Refuse | None:
    """Why ``what`` is not done now, and what to do."""
    living = sorted(living, key=lambda b: b.generation)
    if not living:
        return None
    newest = living[-1]
    said_s = max(0, (now_ms - newest.time_ms) // 1000)
    left_s = max(0, (newest.expires_ms - now_ms) // 1000)
    return Refuse(
        f"{what} needs job {job!r} to be stopped, and a driver runs it: generation {newest.generation}, process"
        f" {newest.process.pid} on host {newest.process.host}, heard of {said_s} s ago. Stop the query and try again."
        f" If that process crashed on another machine, its heartbeat expires in {left_s} s. If you know that nothing"
        " runs the job, force it (force=True, --force): what a running driver needs would be lost."
    )
