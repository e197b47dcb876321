"""Hooks for tests that keep state, and misbehave as a file tells them: ``folder(job) / "mode"``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_ckpt import CheckpointHooks


def folder(job: str) -> Path:
    """Of all jobs whose names begin alike: one that goes on from another's savepoint is ``<job>-next``."""
    found = Path(tempfile.gettempdir()) / f"spark-ckpt-keeping-{job.split('.')[0]}"
    found.mkdir(exist_ok=True)
    return found


class Keeping(CheckpointHooks):
    name = "keeping"

    def on_trigger(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> Any:
        mode = folder(job) / "mode"
        what = mode.read_text() if mode.exists() else ""
        mode.unlink(missing_ok=True)
        if what == "raise":
            raise KeyError("password")
        if what == "slow":
            time.sleep(1)
        return {"text": "x", "large": bytes(2 << 20), "nothing": None}.get(what, f"{job} {checkpoint}".encode())

    def restore_state(self, job: str, checkpoint: int, state: bytes | None) -> None:
        if (folder(job) / "broken").exists():
            raise OSError("password")
        with (folder(job) / "restored").open("a") as out:
            out.write(f"{checkpoint} {None if state is None else state.decode()}\n")


class Nameless(Keeping):
    name = ""
