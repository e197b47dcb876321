"""The state files of a task: named while its slots are called, written by the snapshot stage behind them. Executor."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.storage.run_files import run_file_name


class FlushFiles:
    """Names the file a task's slots flush into and counts its rows. Implements ``state.ports.RunAppender``.

    One file for each epoch and task attempt. The name is random, so a retried task never meets a half-written file.
    """

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._files: dict[int, list[Any]] = {}
        self.flushed: list[tuple[str, pa.Table]] = []
        self.epoch = 0

    def append(self, rows: pa.Table) -> tuple[str, int]:
        name, start = self._files.setdefault(
            self.epoch, [run_file_name(self.epoch, self._partition, uuid.uuid4().hex[:12]), 0]
        )
        self._files[self.epoch][1] = start + rows.num_rows
        self.flushed.append((name, rows))
        return name, start

    def take(self) -> list[tuple[str, pa.Table]]:
        taken, self.flushed = self.flushed, []
        return taken


_task_files: tuple[tuple[int, str], FlushFiles] | None = None


def task_files(uid: str) -> FlushFiles:
    """The files of the running task; all its slots are called one after another in this process."""
    global _task_files
    task = TaskContext.get()
    if task is None:
        raise ProtocolBugError("a keyed operator was called outside of a Spark task")
    key = (task.taskAttemptId(), uid)
    if _task_files is None or _task_files[0] != key:
        _task_files = (key, FlushFiles(task.partitionId()))
    return _task_files[1]
