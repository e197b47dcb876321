"""Envelopes: the rows and control events that one task sends to one subtask of the operator in one batch.

The pack stage writes them in front of the shuffle, the operator reads them behind it, so the shuffle carries a few
binary rows instead of every row. The head is small JSON; the body holds Arrow record batches without their schema,
which both sides know, and as narrow as their values allow; the head's fingerprint of the schema guards against reading
with another one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.events import (
    Barrier,
    Cancel,
    Completed,
    Event,
    Finished,
    Restore,
    Watermark,
    from_json,
    to_json,
)
from spark_ckpt.state.ipc import conform, fingerprint, int64_view, nullable_schema
from spark_ckpt.state.keys.spark_hash import hashes_of
from spark_ckpt.state.narrow import from_narrow, narrow_messages
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.types import KEY_HASH

MAX_BODY_BYTES = 32 << 20
PASSING_SLOT = 0
"""The subtask whose envelopes carry events that only pass through the operator, if there are none with rows."""


@dataclass(frozen=True)
class Controls:
    """Control events by who gets them: ``broadcast`` every subtask, ``routed`` one, ``passing`` any."""

    broadcast: tuple[Event, ...] = ()
    routed: Mapping[int, tuple[Event, ...]] = field(default_factory=dict)
    passing: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Envelope:
    """``segments`` are rows by epoch, in arrival order; ``events`` are in no order that matters.

    ``place``: the task that packed it, and its number among those of that task for the subtask. Operators open
    envelopes in this order, so that what it does does not depend on the order in which a shuffle brings them.
    """

    segments: list[tuple[int, pa.Table]]
    events: list[Event]
    place: tuple[int, int] = (0, 0)


def route(events: Sequence[Event], tables: Collection[str], subtasks: Subtasks) -> Controls:
    """Address the events a task received for the operator with these state tables.

    Barriers, cancels, finished shares, watermarks and notes of completed checkpoints concern every subtask. A
    ``Restore`` of this operator is split: every subtask gets one, with the manifests of its key groups that had state.
    All else passes through. Raises ``ProtocolBugError`` if a ``Restore`` names key groups that do not exist.
    """
    broadcast: list[Event] = []
    routed: dict[int, list[Event]] = {}
    passing: list[Event] = []
    for event in events:
        if isinstance(event, Barrier | Cancel | Finished | Watermark | Completed):
            broadcast.append(event)
        elif isinstance(event, Restore) and event.uid in tables:
            for subtask, part in _split_restore(event, subtasks):
                routed.setdefault(subtask, []).append(part)
        else:
            passing.append(event)
    return Controls(tuple(broadcast), {s: tuple(e) for s, e in routed.items()}, tuple(passing))


def pack(
    rows_by_epoch: Sequence[tuple[int, pa.Table]],
    subtasks: Subtasks,
    controls: Controls,
    schema: pa.Schema,
    max_bytes: int = MAX_BODY_BYTES,
    place: tuple[int, int] = (0, 0),
    hashed_again: Sequence[str] = (),
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Envelopes (subtask, head, body or None) of one task. Pack stage, executor, once a task or portion of it.

    ``place`` is that of the first envelope of each subtask; the second number counts on.

    Tables have ``schema``'s columns, ``KEY_HASH`` among them, which does not travel if it is to be ``hashed_again``
    from these key columns. Rows keep their order inside an epoch and subtask.
    Broadcast events go to all subtasks, with or without rows. A subtask whose rows exceed ``max_bytes`` gets several
    envelopes, the first of which carries the events; only a single larger row exceeds it.
    """
    schema = nullable_schema(schema)
    pieces = [(epoch, *_by_subtask(conform(rows, schema), subtasks)) for epoch, rows in rows_by_epoch if len(rows)]
    broadcast, passing = _events_json(controls.broadcast), _events_json(controls.passing)
    # With rows of the task, if it has any: a subtask that is called for this alone would cost a call.
    carrier = next((s for s in range(subtasks.count) if any(c[s + 1] > c[s] for _, _, c in pieces)), PASSING_SLOT)
    for subtask in range(subtasks.count):
        segments = [
            (epoch, _unhashed(rows, hashed_again).slice(cuts[subtask], cuts[subtask + 1] - cuts[subtask]))
            for epoch, rows, cuts in pieces
            if cuts[subtask + 1] > cuts[subtask]
        ]
        routed = _events_json(controls.routed.get(subtask, ()))
        events = ",".join(filter(None, (broadcast, routed, passing if subtask == carrier else "")))
        task, number = place
        for body in _bodies(segments, max_bytes) if segments else [_Body()] if events else []:
            head = (
                f'{{"schema":"{fingerprint(schema)}","place":[{task},{number}],"hashed":{json.dumps(list(hashed_again))},'
                f'"segments":{json.dumps(body.segments)},"events":[{events}]}}'
            )
            number += 1
            yield subtask, head.encode(), b"".join(body.data) if body.data else None
            events = ""


def unpack(head: bytes, body: bytes | None, schema: pa.Schema) -> Envelope:
    """Inverse of :func:`pack`; tables refer to ``body``'s memory. Operator, executor, once an envelope.

    Raises ``ProtocolBugError`` if the envelope was packed with another schema, ``CorruptStorageError`` if it is none.
    """
    content = codec.parsed(head, "an envelope")
    try:
        return _unpacked(content, body, nullable_schema(schema))
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise CorruptStorageError(
            f"an envelope: expected rows of {schema.names} and events, found {len(body or b'')} bytes that its head "
            f"does not tell of ({type(error).__name__})"
        ) from None


def _unpacked(content: Any, body: bytes | None, schema: pa.Schema) -> Envelope:
    if content["schema"] != fingerprint(schema):
        raise ProtocolBugError(f"an envelope was packed with other columns than {schema.names}")
    buffer, offset = pa.py_buffer(body or b""), 0
    segments: list[tuple[int, list[pa.RecordBatch]]] = []
    for epoch, size in content["segments"]:
        if not segments or segments[-1][0] != epoch:
            segments.append((epoch, []))
        segments[-1][1].append(_opened(buffer.slice(offset, size), schema, content["hashed"]))
        offset += size
    events = [from_json(e) for e in content["events"]]
    task, number = content["place"]
    return Envelope([(epoch, pa.Table.from_batches(batches)) for epoch, batches in segments], events, (task, number))


def _unhashed(rows: pa.Table, hashed_again: Sequence[str]) -> pa.Table:
    return rows.drop_columns([KEY_HASH]) if hashed_again else rows


def _opened(data: pa.Buffer, schema: pa.Schema, hashed_again: Sequence[str]) -> pa.RecordBatch:
    if not hashed_again:
        return from_narrow(data, schema)
    at = schema.get_field_index(KEY_HASH)
    rows = from_narrow(data, schema.remove(at))
    hashes = hashes_of(rows.column(name) for name in hashed_again)
    columns = [*rows.columns[:at], pa.array(hashes), *rows.columns[at:]]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class _Body:
    segments: list[tuple[int, int]] = field(default_factory=list)
    data: list[bytes | pa.Buffer] = field(default_factory=list)
    size: int = 0


def _by_subtask(rows: pa.Table, subtasks: Subtasks) -> tuple[pa.Table, list[int]]:
    """Rows ordered by subtask, and where each subtask starts (and the last one ends)."""
    subtask = subtasks.subtask_of(int64_view(rows.column(KEY_HASH)))
    if (subtask[1:] < subtask[:-1]).any():
        narrow = subtask.astype(np.uint8 if subtasks.count <= 1 << 8 else np.uint16)  # radix sort
        order = np.argsort(narrow, kind="stable")
        rows, subtask = rows.take(pa.array(order)), subtask[order]
    return rows, np.searchsorted(subtask, np.arange(subtasks.count + 1)).tolist()


def _bodies(segments: list[tuple[int, pa.Table]], max_bytes: int) -> Iterator[_Body]:
    body = _Body()
    for epoch, rows in segments:
        for batch in rows.to_batches():
            for message in narrow_messages(batch, max_bytes):
                size = sum(map(len, message))
                if body.data and body.size + size > max_bytes:
                    yield body
                    body = _Body()
                body.segments.append((epoch, size))
                body.data.extend(message)
                body.size += size
    yield body


def _events_json(events: Sequence[Event]) -> str:
    return ",".join(json.dumps(to_json(e), separators=(",", ":")) for e in events)


def _split_restore(event: Restore, subtasks: Subtasks) -> Iterator[tuple[int, Restore]]:
    strange = sorted(g for g in event.groups if not 0 <= g < subtasks.key_groups)
    if strange:
        raise ProtocolBugError(
            f"restore of {event.uid} names key groups {strange}, expected 0 to {subtasks.key_groups - 1}"
        )
    for subtask in range(subtasks.count):
        yield (
            subtask,
            replace(event, groups={g: event.groups[g] for g in subtasks.range_of(subtask) if g in event.groups}),
        )
