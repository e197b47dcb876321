"""The keyed operator: one call for each subtask and batch, inside ``applyInPandasWithState``. Executor.

Spark's state store holds, for each subtask, alignment, watermarks, run lists, memtable and rows held back; Spark makes
them consistent with its batches. Everything larger lives in immutable run files, which the call writes before it
ends. It may be repeated with the same input after a failure, or run twice at once: then it writes the same files and
says the same, unless a user's function does otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark import TaskContext

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.runtime._fencing import unless_fenced
from spark_ckpt.runtime._worker_gc import freeze
from spark_ckpt.runtime.operator._subtask_call import SubtaskCall
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.storage.tally import working_for


class KeyedOperator:
    """The function Spark calls. Pickled once for each task."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec

    def __call__(self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        freeze()
        working_for(self.spec.run.url, self.spec.run.generation)
        try:
            yield from self._call(key, frames, state)
        except CorruptStorageError as error:
            raise unless_fenced(self.spec.run, error) from error.__cause__

    def _call(self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        subtask = self.spec.run.subtasks.subtask_of_route[int(key[0])]
        call = SubtaskCall(self.spec, subtask, state.getOption, state.getCurrentProcessingTimeMs(), _batch())
        for frame in frames:
            for head, body in zip(frame["head"], frame["body"], strict=True):
                call.take(head, body)
        call.run()
        state.update(call.sealed())
        if self.spec.function.timeout == "ProcessingTimeTimeout":
            due_ms = call.next_due_ms()
            if due_ms is not None:
                # One past it, because a time-out fires strictly after its time.
                state.setTimeoutDuration(max(1, due_ms + 1 - call.now_ms))
        if call.out:
            kind, epoch, body = zip(*call.out, strict=True)
            yield pd.DataFrame({"kind": np.array(kind, np.int32), "epoch": epoch, "body": body})


def _batch() -> int:
    """The number of Spark's batch: the same for every attempt at a task."""
    task = TaskContext.get()
    return int((task and task.getLocalProperty("streaming.sql.batchId")) or 0)
