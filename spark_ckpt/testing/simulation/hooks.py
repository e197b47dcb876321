"""Hooks of the simulated job: they keep the checkpoint's number with it, and fail as often as the seed says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.jobs.hooks import CheckpointHooks
from spark_ckpt.testing.simulation.world import current


class SimulatedHooks(CheckpointHooks):
    def on_trigger(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> bytes | None:
        world = current()
        if world.hook_faults_left and world.rng.random() < 0.05:
            world.hook_faults_left -= 1
            raise RuntimeError("a hook fails")
        return str(checkpoint).encode()

    def restore_state(self, job: str, checkpoint: int, state: bytes | None) -> None:
        current().seen["a hook has its state back"] += state is not None
