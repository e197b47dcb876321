"""Hooks for tests: every process of the query appends what it is told to one file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_ckpt import CheckpointHooks


def told(job: str) -> Path:
    return Path(tempfile.gettempdir()) / f"spark-ckpt-hooks-{job}.jsonl"


class Recording(CheckpointHooks):
    def on_trigger(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        self._tell(job, "trigger", checkpoint, info)

    def on_snapshot(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        self._tell(job, "snapshot", checkpoint, info)
        raise RuntimeError("a broken hook")

    def on_complete(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        self._tell(job, "complete", checkpoint, info)

    def on_abort(self, job: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        self._tell(job, "abort", checkpoint, info)

    def _tell(self, job: str, what: str, checkpoint: int, info: Mapping[str, Any]) -> None:
        line = json.dumps([what, checkpoint, dict(info)]) + "\n"
        file = os.open(told(job), os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, line.encode())
        os.close(file)
