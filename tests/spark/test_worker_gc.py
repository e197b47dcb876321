"""What the garbage collector does after a task in a Python worker."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from spark_ckpt.runtime import _worker_gc as worker_gc


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not run a task yet, whatever ran in this one."""
    monkeypatch.setattr(worker_gc, "_tasks", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


class _Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_first_task_loaded_is_not_walked_after_later_ones() -> None:
    worker_gc.freeze()
    assert gc.get_freeze_count() == 0
    worker_gc.freeze()
    assert gc.get_freeze_count() > 1000


def test_garbage_of_the_tasks_before_is_not_kept() -> None:
    node = weakref.ref(_Node())
    worker_gc.freeze()
    worker_gc.freeze()
    assert node() is None


def test_garbage_of_later_tasks_is_still_collected() -> None:
    worker_gc.freeze()
    worker_gc.freeze()
    node = weakref.ref(_Node())
    gc.collect()
    assert node() is None
