"""A source's offset: where it stands, and every decision about checkpoints that its next batch must repeat.

Spark writes it to its offset log before the batch runs, so a batch that is replayed carries the same barriers. Rows
between ``start`` and ``end`` belong to epoch ``start.epoch``; the barrier, if ``end`` has one, comes behind them. The
JSON form is what Spark keeps, and what running jobs go on from: fields may be added, never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.protocol._body import Body, whole


@dataclass(frozen=True)
class PendingTrigger:
    """A checkpoint that this source injected and that is neither complete, subsumed nor aborted, as far as it knows.

    ``request`` asked for it and wants it before ``deadline_ms``. ``terminal``: it is a stop-with-savepoint, ``drain``:
    it drains the job; only known when it is injected, then the offset's own ``terminal`` and ``drain`` say so.
    """

    checkpoint: int
    triggered_ms: int
    terminal: bool = False
    request: str | None = None
    deadline_ms: int | None = None
    drain: bool = False

    def to_json(self) -> list[Any]:
        plain = [self.checkpoint, self.triggered_ms]
        return plain if self.request is None else [*plain, self.request, self.deadline_ms]

    @classmethod
    def from_json(cls, value: Any) -> PendingTrigger:
        checkpoint, triggered_ms, *rest = value
        request, deadline_ms = rest or (None, None)
        return cls(whole(checkpoint), whole(triggered_ms), request=request, deadline_ms=deadline_ms)


@dataclass(frozen=True)
class SourceOffset:
    """``inner`` is the inner source's own offset. ``pending``: what this source injected and still waits for.

    ``cancel``: given up, to be told behind the rows up to here. ``ended``: nothing will ever come behind ``inner``.
    ``restore``: the checkpoint that a location's first offset begins from. ``terminal``: the generation whose
    stop-with-savepoint, for ``request``, is the barrier right before ``epoch``. ``drained``: the generation in which
    the source announced that it is at the end of what was there when the query started. ``rows``: rows came, and a
    batch is to follow although nothing new may come. ``drain``: the newest checkpoint that drains the job; from the
    first one's barrier on nothing is read at this location, whatever becomes of it and whoever starts the job.
    ``completed``: what user functions are told of in the batch up to here.
    """

    origin: int
    inner: Any
    epoch: int
    barrier: int | None = None
    triggered_ms: int = 0
    pending: tuple[PendingTrigger, ...] = ()
    cancel: tuple[int, ...] = ()
    ended: bool = False
    restore: int | None = None
    terminal: int | None = None
    request: str | None = None
    drained: int | None = None
    rows: bool | None = None
    drain: int | None = None
    completed: int | None = None

    def to_json(self) -> dict[str, Any]:
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        return {
            "origin": self.origin,
            "inner": self.inner,
            "epoch": self.epoch,
            "barrier": self.barrier,
            "triggered_ms": self.triggered_ms,
            "pending": [p.to_json() for p in self.pending],
            "cancel": list(self.cancel),
            "ended": self.ended,
            **{name: value for name, value in optional.items() if value is not None},
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "source offset") -> SourceOffset:
        if isinstance(value, Mapping):
            value = {**dict.fromkeys(_OPTIONAL), **value}
        b = Body(value, where)
        return cls(
            b.integer("origin"),
            b.get("inner", dict, list, str, int, float, bool, type(None)),
            b.integer("epoch"),
            b.optional_int("barrier"),
            b.integer("triggered_ms"),
            b.items("pending", PendingTrigger.from_json),
            b.items("cancel", whole),
            b.flag("ended"),
            b.optional_int("restore"),
            b.optional_int("terminal"),
            b.optional_str("request"),
            b.optional_int("drained"),
            b.get("rows", bool, type(None)),
            b.optional_int("drain"),
            b.optional_int("completed"),
        )

    def position(self) -> dict[str, Any]:
        """What a checkpoint remembers of it: enough for :func:`initial_offset` of a later location."""
        return {"inner": self.inner, "ended": self.ended}


_OPTIONAL = ("restore", "terminal", "request", "drained", "rows", "drain", "completed")


def initial_offset(origin: int, start_epoch: int, restored: int | None, position: Mapping[str, Any]) -> SourceOffset:
    """Where a Spark location begins; the same whenever its first batch is replayed.

    ``position`` is what checkpoint ``restored`` remembers of the source: empty if it took no part in it. ``inner`` None
    in the answer: the inner source is to say where a fresh job begins.
    """
    ended = bool(position.get("ended", False))
    return SourceOffset(origin, position.get("inner"), start_epoch, ended=ended, restore=restored)


def with_inner(offset: SourceOffset, inner: Any) -> SourceOffset:
    """``offset`` with where a fresh source begins, if nothing was restored for it."""
    return offset if offset.inner is not None else replace(offset, inner=inner)
