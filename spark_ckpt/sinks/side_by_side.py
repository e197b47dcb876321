"""What several sinks of a job have to wait for, they wait for at the same time. Driver and executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from spark_ckpt.sinks.base import TwoPhaseSink

_T = TypeVar("_T")


@dataclass(frozen=True)
class Call(Generic[_T]):
    """Something to do for a sink of this class."""

    action: Callable[[], _T]
    sink: type[TwoPhaseSink]


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What a call returned, or what it raised."""

    value: _T | None = None
    error: Exception | None = None


def side_by_side(calls: Sequence[Call[_T]]) -> list[Outcome[_T]]:
    """Every call's outcome, in their order, whatever others raised.

    Sinks of one class may share their target, so they take turns; those whose class does not say
    :attr:`~spark_ckpt.sinks.base.TwoPhaseSink.SIDE_BY_SIDE` take turns in this thread.
    """
    outcomes: dict[int, Outcome[_T]] = {}

    def take_turns(lane: Sequence[int]) -> None:
        for i in lane:
            outcomes[i] = _outcome(calls[i])

    beside, here = _lanes(calls)
    with ThreadPoolExecutor(max_workers=max(len(beside), 1)) as pool:
        running = [pool.submit(take_turns, lane) for lane in beside]
        take_turns(here)
        for lane in running:
            lane.result()
    return [outcomes[i] for i in range(len(calls))]


def _lanes(calls: Sequence[Call[_T]]) -> tuple[list[list[int]], list[int]]:
    """(calls for a thread of their own each, those for this one)."""

    def name(i: int) -> str:
        sink = calls[i].sink
        return f"{sink.__module__}.{sink.__qualname__}" if sink.SIDE_BY_SIDE else ""

    lanes = {key: list(lane) for key, lane in groupby(sorted(range(len(calls)), key=name), key=name)}
    here = lanes.pop("", None)
    beside = list(lanes.values())
    return beside, here if here is not None else beside.pop() if beside else []


def _outcome(call: Call[_T]) -> Outcome[_T]:
    try:
        return Outcome(call.action())
    except Exception as error:  # noqa: BLE001 - whoever asked raises it, or tells of it
        return Outcome(error=error)
