"""Names shared by every room of the project.

The control columns travel with every row of a checkpointed stream:

- ``TAG`` (long): ``epoch << STREAM_BITS | stream``. *epoch* is the lowest checkpoint whose barrier can
  still be behind this row; *stream* numbers the ``withWatermark`` the row passed (0: none).
- ``CTL`` (binary): null on data rows, an encoded :mod:`spark_ckpt.protocol.events` event on control rows.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Final, NewType

CheckpointId = NewType("CheckpointId", int)
"""Identifies a checkpoint of a job. Grows by at least one each time, across generations too."""

Epoch = NewType("Epoch", int)
"""The checkpoint whose barrier is the next one behind a row."""

Generation = NewType("Generation", int)
"""One start of a job. The newest generation fences all older ones."""

TAG = "__ckpt_tag"
CTL = "__ckpt_ctl"
CONTROL_COLUMNS = (TAG, CTL)
"""What each ``select`` over a plain stream of ``format("ckpt")`` keeps: ``df.select("id", *CONTROL_COLUMNS)``."""
CONTROL_ROW = f"{CTL} IS NOT NULL"
"""SQL: what each filter of one lets pass: ``df.where(f"amount > 0 OR {CONTROL_ROW}")``."""

STREAM_BITS = 16
STREAM_MASK = (1 << STREAM_BITS) - 1

BEFORE_BARRIERS = Epoch(0)
"""The label of rows that Spark's own sources read, which know no epochs: before every barrier of their batch. That is
the truth for a checkpoint whose barrier their control source sends, as it is the last of all to send it; with a barrier
that others have sent ahead, what they read behind it waits, and these rows do not."""

KEY_HASH = "_key_hash"
KEY_GROUP = "_key_group"
TIMEOUT_MS = "_timeout_ms"
"""Bookkeeping columns of a state table, after the key and value columns."""
EVENT_TIME = "__ckpt_event_us"
"""Event time of a row in microseconds, for dropping late rows; null where the row's stream has no watermark."""


def make_tag(epoch: int, stream: int = 0) -> int:
    return (epoch << STREAM_BITS) | stream


def epoch_of_tag(tag: int) -> Epoch:
    return Epoch(tag >> STREAM_BITS)


def stream_of_tag(tag: int) -> int:
    return tag & STREAM_MASK


PERMIT_ISSUER: Final = object()
"""For :mod:`spark_ckpt.protocol.permit` alone."""


@dataclass(frozen=True)
class CommitPermit:
    """Proof that a completion record for ``checkpoint`` exists and belongs to ``generation``.

    ``job`` is the job's identity, its name with the mark of its life (:mod:`spark_ckpt.protocol.life`), and not the
    bare name: for one ``job``, a checkpoint's id never comes again with other rows.

    ``oldest`` is the oldest checkpoint of ``job`` that anybody may ask to commit again; a sink may forget that it
    committed those before it. None: not known, forget nothing.

    Only the holder may make transactions visible. :mod:`spark_ckpt.protocol.permit` makes one, from the record;
    anybody else gets a ``TypeError``. Tests of a sink take theirs from ``spark_ckpt.testing.sink_harness.permit``.
    """

    job: str
    checkpoint: CheckpointId
    generation: Generation
    oldest: CheckpointId | None = None
    issuer: InitVar[object] = None

    def __post_init__(self, issuer: object) -> None:
        if issuer is not PERMIT_ISSUER:
            raise TypeError(
                "a CommitPermit is proof of a completion record and is not made by hand: expected the one that commit "
                "was called with, or in tests that of spark_ckpt.testing.sink_harness.permit"
            )


@dataclass(frozen=True)
class Committable:
    """What a sink writer's pre-commit left behind: durable, invisible, committable from any process."""

    sink: str
    epoch: Epoch
    data: bytes
