"""Many schedules on all cores: forks of this process, as functions of a test cannot be sent to another one."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence

_WORTH_IT = 20
"""Fewer schedules are run here."""

Failure = tuple[int, str]


def first_failure(try_one: Callable[[int], str | None], numbers: Sequence[int]) -> Failure | None:
    """The first number, of each process, for which ``try_one`` says what is wrong; the smallest of those."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if count < 2 or len(numbers) < _WORTH_IT:
        return _tried(try_one, numbers)
    pipes = [_forked(try_one, numbers[i::count]) for i in range(count)]
    found = [_answer(*pipe) for pipe in pipes]
    return min((f for f in found if f is not None), default=None)


def _tried(try_one: Callable[[int], str | None], numbers: Sequence[int]) -> Failure | None:
    for number in numbers:
        text = try_one(number)
        if text is not None:
            return number, text
    return None


def _forked(try_one: Callable[[int], str | None], numbers: Sequence[int]) -> tuple[int, int]:
    """A process that tries ``numbers``; its id, and where its answer can be read."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, of which the child needs none
        pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, "w") as out:
            json.dump(_tried(try_one, numbers), out)
        code = 0
    finally:
        os._exit(code)  # nothing of pytest's runs at the end of it


def _answer(pid: int, read: int) -> Failure | None:
    with os.fdopen(read) as found:
        text = found.read()
    _, status = os.waitpid(pid, 0)
    if status or not text:
        raise RuntimeError(f"a process that ran schedules ended with status {status}; run fewer than {_WORTH_IT} here")
    answer = json.loads(text)
    return None if answer is None else (int(answer[0]), str(answer[1]))
