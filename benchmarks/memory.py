"""The peak memory of a process and its descendants, sampled while they run."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass

import psutil

_EVERY_S = 0.5
_NEW_S = 1.0


@dataclass
class Peak:
    """Private resident MiB: all processes together, the largest JVM, and the largest Python process below it.

    Without mapped files: the system gives their pages to whoever needs memory. Pages that a forked process has not
    changed yet count in it and in its parent, so it is an upper bound.
    """

    total_mib: float = 0.0
    jvm_mib: float = 0.0
    python_worker_mib: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {k: round(v) for k, v in asdict(self).items()}


class Sampler:
    """``with Sampler(pid) as s: ...; s.peak``. More than one root may be watched."""

    def __init__(self, *pids: int) -> None:
        self.peak = Peak()
        self._pids = pids
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._sample()
            if self._done.wait(_EVERY_S):
                return

    def _sample(self) -> None:
        total = jvm = worker = 0.0
        for process in self._processes():
            try:
                # What the JVM has just forked shows the JVM's memory and its thread's name until it becomes another.
                if time.time() - process.create_time() < _NEW_S:
                    continue
                name, memory = process.name(), process.memory_info()
            except psutil.Error:
                continue
            mib = (memory.rss - memory.shared) / 2**20
            total += mib
            if name == "java":
                jvm = max(jvm, mib)
            elif name.startswith("python") and process.pid not in self._pids:
                worker = max(worker, mib)
        p = self.peak
        p.total_mib, p.jvm_mib = max(p.total_mib, total), max(p.jvm_mib, jvm)
        p.python_worker_mib = max(p.python_worker_mib, worker)

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for pid in self._pids:
            try:
                root = psutil.Process(pid)
                found += [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
        return found
