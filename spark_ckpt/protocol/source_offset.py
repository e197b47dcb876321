"""A source's offset: where it stands, and every decision about checkpoints that its next batch must repeat.

Spark writes it to its offset log before the batch runs, so a batch that is replayed carries the same barriers. Rows
between ``start`` and ``end`` belong to epoch ``start.epoch``; the barrier, if ``end`` has one, comes behind them. The
JSON form is what Spark keeps, and what running jobs go on from: fields may be added, never renamed. It has a checksum:
what the file system of the offset log has for one goes where the log was copied or restored to.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from spark_ckpt.errors import CorruptStorageError, NewerFormatError
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import Count, later, optional
from spark_ckpt.protocol.file_format import FIELD, require_known

_CHECKSUM = "crc32"


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

    HAS_OWN_JSON: ClassVar = "a list of a checkpoint and what is known of it"

    def to_json(self) -> list[Any]:
        plain = [self.checkpoint, self.triggered_ms]
        return plain if self.request is None else [*plain, self.request, self.deadline_ms]

    @classmethod
    def from_json(cls, value: Any) -> PendingTrigger:
        return codec.read_row(_Kept, value).pending()


@dataclass(frozen=True)
class _Kept:
    checkpoint: Count
    triggered_ms: int
    request: str | None = None
    deadline_ms: int | None = None

    def pending(self) -> PendingTrigger:
        return PendingTrigger(self.checkpoint, self.triggered_ms, request=self.request, deadline_ms=self.deadline_ms)


codec.as_row(_Kept, shortest=2)

FORMAT = 1
"""Of an offset in Spark's log, which does not say it while it is 1."""


@dataclass(frozen=True)
class SourceOffset:
    """``inner`` is the inner source's own offset. ``pending``: what this source injected and still waits for.

    ``cancel``: given up, to be told behind the rows up to here. ``ended``: nothing will ever come behind ``inner``.
    ``restore``: the checkpoint that a location's first offset begins from. ``terminal``: the generation whose
    stop-with-savepoint, for ``request``, is the barrier right before ``epoch``. ``drained``: the generation in which
    the source announced that it is at the end of what was there when the query started. ``rows``: rows came, and a
    batch is to follow although nothing new may come. ``drain``: the newest checkpoint that drains the job; from the
    first one's barrier on nothing is read at this location, whatever becomes of it and whoever starts the job.
    ``completed``: what user functions are told of in the batch up to here. ``turns``: how often the source fell idle
    and came back, odd if it is idle. ``closes``: the barrier stands at the end of the input, and windows close.
    ``read``: the inner source moved, which the query's stages want to know.
    """

    origin: int
    inner: Any
    epoch: int
    barrier: int | None = None
    triggered_ms: int = 0
    pending: tuple[PendingTrigger, ...] = ()
    cancel: tuple[int, ...] = ()
    ended: bool = False
    restore: int | None = optional()
    terminal: int | None = optional()
    request: str | None = optional()
    drained: int | None = optional()
    rows: bool | None = optional()
    drain: int | None = optional()
    completed: int | None = optional()
    turns: int | None = optional()
    closes: bool | None = optional()
    read: bool | None = optional()

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = codec.write(self)
        return {**plain, _CHECKSUM: _checksum(plain)}

    @classmethod
    def from_json(cls, value: Any, where: str = "source offset") -> SourceOffset:
        if not isinstance(value, dict):
            return codec.read(cls, value, where)
        require_known(value.get(FIELD), FORMAT, where)
        try:
            return codec.read(cls, undamaged(value, where), where)
        except NewerFormatError:
            if _CHECKSUM in value:
                raise
            # Whoever writes fields that are not known here writes a checksum, too: its name is what is damaged.
            raise CorruptStorageError(_damaged(where, f"a checksum in {_CHECKSUM!r}, found none")) from None

    def position(self) -> SourcePosition:
        """What a checkpoint remembers of it: enough for :func:`initial_offset` of a later location."""
        return SourcePosition(self.inner, self.ended, self.turns)


def undamaged(offset: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The JSON form without its checksum, which earlier releases did not write. Raises ``CorruptStorageError``."""
    plain = {name: value for name, value in offset.items() if name != _CHECKSUM}
    found = _checksum(plain)
    if offset.get(_CHECKSUM, found) != found:
        raise CorruptStorageError(_damaged(where, f"contents with checksum {offset[_CHECKSUM]}, found {found}"))
    return plain


def _damaged(where: str, expected: str) -> str:
    return (
        f"{where} is damaged: expected {expected}. Start the query at a new, empty checkpointLocation: it goes on from "
        "the job's newest checkpoint"
    )


def _checksum(plain: Mapping[str, Any]) -> int:
    read_back = json.loads(json.dumps(plain))  # an inner source's offset may have keys that are no texts
    return zlib.crc32(json.dumps(read_back, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True)
class SourcePosition:
    """Where a source stood at a checkpoint. ``inner`` None: it took no part in it."""

    inner: Any = later(None)
    ended: bool = later(False)
    turns: int | None = optional()

    def to_json(self) -> dict[str, Any]:
        return codec.write(self)

    @classmethod
    def from_json(cls, value: Any, where: str = "source position") -> SourcePosition:
        return codec.read(cls, value, where)


def initial_offset(origin: int, start_epoch: int, restored: int | None, position: SourcePosition) -> SourceOffset:
    """Where a Spark location begins; the same whenever its first batch is replayed.

    ``position`` is what checkpoint ``restored`` remembers of the source. ``inner`` None in the answer: the inner source
    is to say where a fresh job begins.
    """
    return SourceOffset(
        origin, position.inner, start_epoch, ended=position.ended, restore=restored, turns=position.turns
    )


def with_inner(offset: SourceOffset, inner: Any) -> SourceOffset:
    """``offset`` with where a fresh source begins, if nothing was restored for it."""
    return offset if offset.inner is not None else replace(offset, inner=inner)
