"""What sinks stage and commit on local disks is on the disk when they say so, and not only in the machine's memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.testing.sink_harness import SCHEMA, SimulatedCrash, permit, stage

SINKS: dict[str, Callable[[Path], TwoPhaseSink]] = {
    "files": lambda path: FilesSink({"path": str(path)}),
    "files json": lambda path: FilesSink({"path": str(path), "fileFormat": "json"}),
    "delta": lambda path: DeltaSink({"path": str(path)}),
    "delta merge": lambda path: DeltaSink({"path": f"file://{path}", "mergeKeys": SCHEMA.names[0]}),
}


class Disk:
    """Knows what would be there after a power loss: files as they were at their last sync, names at their folder's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self._files: dict[int, tuple[int, int]] = {}
        self._names: dict[int, set[str]] = {}
        fsync = os.fsync

        def recorded(descriptor: int) -> None:
            fsync(descriptor)
            self.syncs += 1
            status = os.fstat(descriptor)
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                self._names[status.st_ino] = set(os.listdir(descriptor))
            else:
                self._files[status.st_ino] = (status.st_size, status.st_mtime_ns)

        monkeypatch.setattr(os, "fsync", recorded)

    def lost(self, root: Path) -> list[str]:
        """What a power loss now would take."""
        found = []
        for path in [root, *root.rglob("*")]:
            status = path.stat()
            if path.name not in self._names.get(path.parent.stat().st_ino, ()):
                found.append(f"name {path.relative_to(root.parent)}")
            if path.is_file() and self._files.get(status.st_ino) != (status.st_size, status.st_mtime_ns):
                found.append(f"content {path.relative_to(root.parent)}")
        return found


@pytest.mark.parametrize("kind", SINKS)
def test_what_is_staged_and_what_is_committed_survives_a_power_loss(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, root = Disk(monkeypatch), tmp_path / "new" / "sink"
    sink = SINKS[kind](root)
    sink.validate(SCHEMA)
    before = disk.syncs
    first = stage(sink, [(1, "a"), (2, "b")])
    assert disk.lost(root) == []
    assert disk.syncs - before == 2  # the file and its folder
    sink.commit(permit(1), first)
    assert disk.lost(root) == []
    sink.commit(permit(2), stage(sink, [(2, "c")], 2) + stage(sink, [(3, "d")], 2, partition=1))
    assert disk.lost(root) == []


@pytest.mark.parametrize("kind", SINKS)
def test_a_commit_that_was_killed_and_done_again_survives_a_power_loss(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each step; what the killed one had not synced yet, the next one does."""
    steps: list[str] = []
    sink = SINKS[kind](tmp_path / "probe")
    sink.validate(SCHEMA)
    sink.on_step = steps.append
    sink.commit(permit(1), stage(sink, [(1, "a")]) + stage(sink, [(2, "b")], partition=1))
    for number, step in enumerate(steps):
        root = tmp_path / str(number)
        disk = Disk(monkeypatch)
        sink = SINKS[kind](root)
        sink.validate(SCHEMA)
        staged = stage(sink, [(1, "a")]) + stage(sink, [(2, "b")], partition=1)
        sink.on_step = _stop_at(step)
        with pytest.raises(SimulatedCrash):
            sink.commit(permit(1), staged)
        SINKS[kind](root).commit(permit(1), staged)
        assert disk.lost(root) == [], step


def _stop_at(step: str) -> Callable[[str], Any]:
    def stop(found: str) -> None:
        if found == step:
            raise SimulatedCrash

    return stop
