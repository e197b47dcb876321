"""One subtask in one batch: gather, align, process, snapshot, hold back. Executor."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from spark_ckpt.protocol import aligner, codec
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.weights import Arrivals
from spark_ckpt.runtime.operator._function_calls import FunctionCalls
from spark_ckpt.runtime.operator._held_rows import hold, unhold
from spark_ckpt.runtime.operator._subtask_meta import OWN, STATE_STORE, SubtaskMeta, known_states
from spark_ckpt.runtime.operator._subtask_state import SubtaskState
from spark_ckpt.runtime.operator._subtask_time import END_OF_TIME_MS, SubtaskTime
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.envelope import Envelope, unpack
from spark_ckpt.state.ipc import one_batch, schema_to_text

DATA, EVENT = 0, 1
"""Kinds of the rows an operator hands to its snapshot stage."""

_log = logging.getLogger("spark_ckpt")


class SubtaskCall:
    """All the work of one call. ``out`` are the rows for the snapshot stage: (kind, epoch, body).

    State files are written before anything that names them leaves the call, as output or as state. The same envelopes,
    in whatever order they come, and the same state give the same output, byte for byte.
    """

    def __init__(
        self, spec: OperatorSpec, subtask: int, stored: tuple[Any, ...] | None, now_ms: int, batch: int = 0
    ) -> None:
        self.spec = spec
        self.subtask = subtask
        self.now_ms = now_ms
        self.out: list[tuple[int, int, bytes]] = []
        self.groups = spec.run.subtasks.range_of(subtask)
        meta, memtable, held = stored if stored is not None else (None, None, None)
        parsed = codec.parsed(meta, STATE_STORE) if meta is not None else None
        first = aligner.AlignerState(spec.run.start_epoch)
        self.meta = SubtaskMeta(first) if meta is None else SubtaskMeta.from_json(parsed)
        known = known_states(parsed, memtable, spec.family_tables)
        sealed_in = 0 if parsed is None else parsed.get("generation", 0)
        self.states = {f: SubtaskState(spec, f, subtask, batch, *known[f], sealed_in) for f in spec.family_tables}
        self.rows: dict[int, list[pa.RecordBatch]] = {}
        self._input_schema = spec.packed_schema
        if held:
            # Rows that another query packed have nothing for aggregates that it did not have.
            begins = spec.function.packed_begins
            self.rows = unhold(held, (parsed or {}).get("held_schema"), self.meta.held, self._input_schema, begins)
        self._family_of = {table: family for family, table in spec.family_tables.items()}
        self._events: list[ev.Event] = []
        self._unwritten: str | None = None
        self._envelopes: list[Envelope] = []
        self._barriers: list[ev.Barrier] = []
        self._time = SubtaskTime(spec, self.meta)
        self._calls = FunctionCalls(spec, subtask, self.states, self._time, now_ms, partial(self._emit, DATA))
        self._epoch = self.meta.aligner.epoch
        self._timed_out = False
        self._completed: int | None = None

    def take(self, head: bytes, body: bytes | None) -> None:
        self._envelopes.append(unpack(head, body, self._input_schema))

    def _open_envelopes(self) -> None:
        """In the order of the tasks that packed them: a shuffle brings them in any."""
        for envelope in sorted(self._envelopes, key=lambda e: e.place):
            for label, rows in envelope.segments:
                self.rows.setdefault(label, []).append(one_batch(rows))
            self._events.extend(envelope.events)
        self._envelopes = []

    def run(self) -> None:
        self._open_envelopes()
        batch = self._batch_input()
        if self._completed is not None:
            self._tell(self._completed)
        run = self.spec.run
        weights = aligner.AlignerConfig(
            self.spec.inputs * run.key_groups, run.config.mode, run.config.max_buffered_bytes
        )
        self._time.begin_batch()
        self.meta.aligner, actions = aligner.plan(self.meta.aligner, weights, batch)
        for action in actions:
            if isinstance(action, aligner.Snapshot):
                self._before_snapshot(action)
            self._do(action)
        self._call_timed_out()
        self._time.end_batch()
        for seen in self._time.told():
            self._say(seen)
        unflushed = sum(state.keyed.memtable_bytes for state in self.states.values())
        if unflushed > run.config.memtable_max_bytes and self._unwritten is None:
            # If storage fails, the memtable goes on growing in Spark's state store until the next checkpoint.
            self._flush(self.meta.aligner.epoch)
        self._acknowledge()

    def sealed(self) -> tuple[bytes, bytes | None, bytes | None]:
        """(meta, memtable, held rows): what Spark's state store keeps until the next batch.

        Behind the operator's own memtable stand those of its families, whose sizes the meta tells.
        """
        sealed = {family: state.keyed.seal() for family, state in self.states.items()}
        keyed, memtable = sealed.pop(OWN)
        # What is left in ``rows`` waits in Spark's state store.
        self.meta.held, held = hold(self.rows)
        body = {**self.meta.to_json(), "keyed": keyed, "generation": self.spec.run.generation}
        if held:
            body["held_schema"] = schema_to_text(self._input_schema)
        if sealed:
            body["families"] = {f: {"keyed": known, "bytes": len(data or b"")} for f, (known, data) in sealed.items()}
            memtable = b"".join(data or b"" for data in (memtable, *(data for _, data in sealed.values()))) or None
        return self._named(_json(body)), memtable, held

    def next_due_ms(self) -> int | None:
        """A lower bound of the time-outs of the operator's own state and its families."""
        bounds = [state.keyed.next_due_ms() for state in self.states.values()]
        return min((bound for bound in bounds if bound is not None), default=None)

    # -- gather ------------------------------------------------------------------------------------------------

    def _batch_input(self) -> aligner.BatchInput:
        """Sort the events: those for the aligner, those for this subtask, those that only pass through."""
        arrived = Arrivals()
        for e in self._events:
            if arrived.add(e):
                continue
            if isinstance(e, ev.Watermark):
                later = self.meta.later_watermarks.setdefault(e.epoch, {})
                later[e.stream] = max(later.get(e.stream, e.micros), e.micros)
            elif isinstance(e, ev.Completed):
                self._completed = max(self._completed or 0, e.checkpoint)
            elif isinstance(e, ev.Restore) and e.uid in self._family_of:
                self._restore(self._family_of[e.uid], e)
            else:
                self._say(e)
        sizes = {label: sum(b.nbytes for b in batches) for label, batches in self.rows.items()}
        return aligner.BatchInput.of(self.now_ms, arrived, sizes)

    def _restore(self, family: str, event: ev.Restore) -> None:
        if not event.groups:
            return
        if event.adopt:
            self.meta.adopt[family] = (event.checkpoint, event.groups)
        elif self.meta.restored.get(family) != event.checkpoint:
            # A source that reaches this operator along two branches brings its restore rows twice.
            self._adopt(family, event.groups)
            self.meta.restored[family] = event.checkpoint

    def _adopt(self, family: str, manifests: Mapping[int, ev.GroupManifest]) -> None:
        self.states[family].keyed.adopt(manifests)
        if family != OWN:
            return
        self._time.adopt(manifests)

    def _tell(self, checkpoint: int) -> None:
        self._say(ev.Completed(checkpoint))
        if not self.spec.function.listens:
            return
        try:
            self.spec.function.on_checkpoint_complete(checkpoint)
        except Exception:  # noqa: BLE001 - the boundary to the user's code
            where = self.spec.uid, self.subtask, checkpoint
            _log.exception("%s, task %d: on_checkpoint_complete(%d) failed", *where)

    # -- act ---------------------------------------------------------------------------------------------------

    def _before_snapshot(self, action: aligner.Snapshot) -> None:
        """A checkpoint between this batch and the next has the time-outs behind it, as the batch has."""
        self._call_timed_out()
        if action.drain:
            self._end_time()
        elif self._time.input_ends(action.checkpoint):
            self._close_windows()
        self._calls.begin(action.checkpoint)
        self._calls.put_out_result(action.checkpoint)

    def _do(self, action: aligner.Action) -> None:
        if isinstance(action, aligner.Process):
            self._process(action)
        elif isinstance(action, aligner.Snapshot):
            self._snapshot(action)
        elif isinstance(action, aligner.ForwardCancel):
            self._say(ev.Cancel(action.checkpoint))
        elif isinstance(action, aligner.Declined):
            reason = f"key groups {self.groups.first} to {self.groups.end - 1}: {action.reason}"
            self._say(ev.Decline(self.spec.uid, action.checkpoint, reason))

    def _process(self, action: aligner.Process) -> None:
        self._epoch = action.epoch
        labels = sorted(label for label in self.rows if action.up_to is None or label <= action.up_to)
        batches = [b for label in labels for b in self.rows.pop(label)]
        if batches:
            rows = pa.Table.from_batches(batches)
            if self.spec.filters_late:
                rows = self._time.without_late(rows)
            if rows.num_rows:
                self._calls.with_rows(rows, action.epoch)
        for watermark in self._time.take(action.up_to):
            self._say(watermark)

    def _snapshot(self, action: aligner.Snapshot) -> None:
        adopted = self.meta.adopted(action.checkpoint)
        for family in self.states if adopted else ():
            # The batch is replayed and its checkpoint had completed: the record is canonical, not this attempt, whose
            # state is not even written. A family that the query had not yet begins empty behind it.
            self._adopt(family, adopted.get(family, {}))
        if not adopted and not self._flush(action.checkpoint):
            self._decline(action.checkpoint)
            return
        stats = {
            "start_delay_ms": max(0, action.aligned_from_ms - action.triggered_ms),
            "alignment_ms": max(0, self.now_ms - action.aligned_from_ms),
            "held_bytes": action.held_bytes,
        }
        for family, state in self.states.items():
            # What the operator has seen and holds back is told once, with its own state.
            seen, told = (self._time.seen(), stats) if family == OWN else ({}, {**stats, "held_bytes": 0})
            state.acknowledge(action.checkpoint, self.subtask, seen, told)
        self._barriers.append(ev.Barrier(action.checkpoint, len(self.groups), action.triggered_ms, action.drain))

    def _flush(self, epoch: int) -> bool:
        """Whether all of it is durable. What is goes to the next checkpoint, if the rest is not."""
        for state in self.states.values():
            said = state.flush(epoch)
            if isinstance(said, str):
                self._unwritten = said
                return False
            for event in said:
                self._say(event)
        return True

    def _decline(self, checkpoint: int) -> None:
        """Storage failed: the key groups go on without ``checkpoint``, whose rows the next one takes over."""
        reason = f"key groups {self.groups.first} to {self.groups.end - 1} were not written: {self._unwritten}"
        self._say(ev.Cancel(checkpoint))
        self._say(ev.Decline(self.spec.uid, checkpoint, reason, failed=True))

    def _acknowledge(self) -> None:
        for state in self.states.values():
            for ack in state.acknowledgements():
                self._say(ack)
        for barrier in self._barriers:
            self._say(barrier)
        if any(state.wrote for state in self.states.values()):
            self.out = [(k, e, b if k == DATA else self._named(b)) for k, e, b in self.out]

    def _named(self, text: bytes) -> bytes:
        for state in self.states.values():
            text = state.named(text)
        return text

    # -- time-outs ---------------------------------------------------------------------------------------------

    def _call_timed_out(self) -> None:
        """Call the function for keys whose time-out has passed: once, behind the batch's rows and in their epoch."""
        now = self._time.of_timeouts(self.now_ms)
        if now is None or self._timed_out:
            return
        self._timed_out = True
        self._calls.with_due(now, self._epoch)

    def _end_time(self) -> None:
        """Behind the barrier of a drain there are no more rows: call the function for every key that waits for the
        event time, with the watermark at its end. What comes out reaches the next operator ahead of its own end.
        """
        if self.spec.function.timeout == "EventTimeTimeout":
            with self._time.at_end():
                self._calls.with_due(END_OF_TIME_MS, self._epoch)

    def _close_windows(self) -> None:
        """The input is bounded and at its end: what windows are open come out, with this checkpoint."""
        self._calls.with_due(END_OF_TIME_MS, self._epoch)
        self._time.goes_on_behind_windows()

    def _say(self, event: ev.Event) -> None:
        self._emit(EVENT, 0, ev.encode(event))

    def _emit(self, kind: int, epoch: int, body: bytes) -> None:
        self.out.append((kind, epoch, body))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
