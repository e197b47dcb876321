"""What both Flink workers share: configuration, and the answer to the suite."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from pyflink.common import Configuration

from benchmarks.answers import say

CONF = {
    "parallelism.default": "2",
    "taskmanager.numberOfTaskSubtasks": "2",
    "taskmanager.memory.managed.size": "1g",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.storage": "filesystem",
    "execution.checkpointing.incremental": "true",
    "pipeline.object-reuse": "true",
    "rest.port": "0",
    "rest.bind-port": "0",
}


def configuration(more: Mapping[str, str]) -> Configuration:
    made = Configuration()
    for key, value in {**CONF, **more}.items():
        made.set_string(key, value)
    return made


def answer(run: Callable[[int, int, str, str], float], request: Mapping[str, Any]) -> None:
    """Run the jobs of the sizes asked for, and print their seconds."""
    seconds = []
    for rows in request["rows"]:
        with tempfile.TemporaryDirectory(prefix="bench-flink-", ignore_cleanup_errors=True) as folder:
            seconds.append(run(request["keys"], rows, request["backend"], f"file://{folder}"))
        print(f"    {rows:>11,} rows: {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    say({"rows": request["rows"], "seconds": seconds})
