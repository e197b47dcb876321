"""Keeps Python's garbage collector from walking every imported module after every task. Python workers, all stages.

PySpark's daemon collects all generations whenever a reused worker has finished a task. With pandas and pyarrow loaded
that is some 90,000 objects and 25 ms of a core, for every worker and batch, while Spark commits the batch and plans
the next one. What lives through a whole task is modules and classes: :func:`freeze` moves it out of the collector's
sight, and a collection then costs what the task left behind. Idea: the Python documentation of ``gc.freeze``.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext

from spark_ckpt.runtime._worker_memory import keep_freed_memory

# The first task imports most of what a stage needs; what later ones load (a compaction, a snapshot) is met once more.
_FREEZE_AT = (2, 8)

_tasks = 0
_newest_task: int | None = None


def freeze() -> None:
    """Called at the beginning of every call of a stage; does something in a process's second and eighth task only, but
    that the first one also settles what is done with memory that is free again.

    Cyclic garbage is collected before, so that it is not kept. Where there is no task (a planner's or the commit's
    process) every call counts as one.
    """
    global _tasks, _newest_task
    context = TaskContext.get()
    task = context.taskAttemptId() if context is not None else None
    if task is not None and task == _newest_task:
        return
    _newest_task = task
    if not _tasks:
        keep_freed_memory()
    _tasks += 1
    if _tasks in _FREEZE_AT:
        gc.collect()
        gc.freeze()
