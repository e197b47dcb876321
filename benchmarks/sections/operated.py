"""What being seen costs: scraped metrics, OpenTelemetry, lines as JSON and an open page, on against off."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.loads import Load, Phase
from benchmarks.measuring import Run, SparkWorker
from benchmarks.sections.running import Side, take_turns

METRICS_PORT, UI_PORT = 18467, 18466
ON = {
    "spark.ckpt.metrics.port": str(METRICS_PORT),
    "spark.ckpt.otel": "true",
    "spark.ckpt.log.format": "json",
}
_TURNS = 4
_PAGE_EVERY = 3
"""Seconds, as the page renews itself."""


def operated(quick: bool) -> dict[str, Any]:
    """A keyed count of large batches, and one of 1 K rows, where the floor of a batch is everything. Both sides have a
    process of their own, as neither logs nor providers can be taken back."""
    runs = {
        "large": Run("count", Load(10_000, (Phase(1_000_000),)), seconds=20, warm_up_s=12, warm_up=3),
        "small": Run("count", Load(1000, (Phase(1000),)), seconds=20, warm_up_s=12, warm_up=15),
    }
    sides = [
        Side(f"{side}, {size} batches", side, replace(run, conf=ON if side == "on" else {}))
        for size, run in runs.items()
        for side in ("off", "on")
    ]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="operated-"))
        stack.enter_context(_temporary_files_in(folder))
        workers: dict[str, Any] = {side: stack.enter_context(SparkWorker("ours")) for side in ("off", "on")}
        workers["on"] = _Watched(workers["on"], folder)
        return take_turns(workers, sides, _TURNS, quick)


class _Watched:
    """A worker whose jobs are looked at while they run."""

    def __init__(self, worker: SparkWorker, folder: str) -> None:
        self._worker, self._folder = worker, Path(folder)

    def run(self, run: Run) -> dict[str, Any]:
        ended = threading.Event()
        thread = threading.Thread(target=self._look, args=(ended,))
        thread.start()
        try:
            return self._worker.run(run)
        finally:
            ended.set()
            thread.join()

    def _look(self, ended: threading.Event) -> None:
        while not ended.wait(0.1):
            jobs = next(self._folder.glob("bench-*/ckpt"), None)
            if jobs is not None:
                break
        else:
            return
        command = [
            sys.executable,
            "-c",
            "from spark_ckpt.cli import app; app()",
            "ui",
            str(jobs),
            "--port",
            str(UI_PORT),
        ]
        page = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            self._ask(ended)
        finally:
            page.terminate()
            page.wait()

    @staticmethod
    def _ask(ended: threading.Event) -> None:
        seconds = answered = 0
        while not ended.wait(1.0):
            asked = [f"http://127.0.0.1:{METRICS_PORT}/metrics"]
            if seconds % _PAGE_EVERY == 0:
                asked += [f"http://127.0.0.1:{UI_PORT}{path}" for path in ("/", "/jobs/bench")]
            seconds += 1
            for url in asked:
                with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:  # begins, or ends
                    answered += bool(answer.read())
        if seconds > 10 and answered < seconds:
            raise RuntimeError(f"the job was asked for {seconds} seconds, and answered {answered} times only")


@contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """Of processes that start meanwhile, so that their jobs are found."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
