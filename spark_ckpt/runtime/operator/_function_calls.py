"""The calls of an operator's function in a subtask: with rows, with keys that are due, for the result. Executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.runtime.operator._subtask_meta import OWN
from spark_ckpt.runtime.operator._subtask_state import SubtaskState
from spark_ckpt.runtime.operator._subtask_time import SubtaskTime
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.envelope import MAX_BODY_BYTES
from spark_ckpt.state.functions.base import CallContext, Changed, Touched
from spark_ckpt.state.functions.output_time import refuse_old_rows
from spark_ckpt.state.ipc import one_batch
from spark_ckpt.state.keys.grouping import Segments, group_rows
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import Lookup
from spark_ckpt.state.narrow import narrow_messages
from spark_ckpt.types import EVENT_TIME, KEY_HASH


class FunctionCalls:
    """Of one batch, whose time is ``now_ms``. ``emit`` takes what comes out: its epoch and rows, as Arrow messages.

    A call looks its keys up, and writes what the function answers.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        subtask: int,
        states: Mapping[str, SubtaskState],
        time: SubtaskTime,
        now_ms: int,
        emit: Callable[[int, bytes], None],
    ) -> None:
        self.spec, self.subtask, self.states, self.now_ms = spec, subtask, states, now_ms
        self.keyed = states[OWN].keyed
        self._time, self._emit = time, emit

    def with_rows(self, rows: pa.Table, epoch: int) -> None:
        hashes = rows.column(KEY_HASH).to_numpy()
        names = self.keyed.layout.key_schema.names
        seg = group_rows(hashes, rows.select(names), whole=True)
        first = seg.firsts()
        keys = rows.select(names).take(pa.array(first))
        keys = pa.table([normalised(column) for column in keys.columns], names)
        lookup = self.keyed.touch(hashes[first], keys)
        inputs = rows.drop_columns([KEY_HASH, *([EVENT_TIME] if EVENT_TIME in rows.column_names else [])])
        self._apply(lookup, inputs, seg.places(), np.zeros(len(lookup), bool), epoch, grouped=seg)

    def _apply(
        self,
        lookup: Lookup,
        rows: pa.Table,
        index: Any,
        timed_out: Any,
        epoch: int,
        now_ms: int | None = None,
        grouped: Segments | None = None,
    ) -> None:
        touched = Touched(lookup.keys, rows, index, lookup.state, lookup.exists, timed_out, lookup.timeout_ms, grouped)
        context = self._context(epoch, lookup, now_ms)
        changed: Changed = self.spec.function.process(context, touched)
        timeouts = changed.timeout_ms if self.keyed.layout.with_timeout else None
        self.keyed.write(lookup, changed.state, changed.write, changed.remove, timeouts)
        if context.families and changed.remove.any():
            for family in context.families.values():
                family.remove(family.scan(np.flatnonzero(changed.remove)))
        self._put_out(changed.output, epoch)

    def _put_out(self, rows: pa.Table, epoch: int) -> None:
        if rows.num_rows:
            function = self.spec.function
            if function.output_time is not None and self.spec.watermarks:
                refuse_old_rows(self.spec.uid, rows, function.output_time, self._time.meta.late_us)
            output = one_batch(rows.cast(function.output_schema))
            for message in narrow_messages(output, MAX_BODY_BYTES):
                self._emit(epoch, b"".join(message))

    def begin(self, checkpoint: int) -> None:
        """Ahead of a checkpoint's barrier: a key that is there before any row has a result in the first of them."""
        first = self.spec.function.first_rows()
        if first is None or not self.keyed.groups.holds(first.column(KEY_HASH).to_numpy()):
            return
        known = self.keyed.touch(first.column(KEY_HASH).to_numpy(), first.select(self.keyed.layout.key_schema.names))
        if not known.exists.all():
            self.with_rows(first, checkpoint)

    def put_out_result(self, checkpoint: int) -> None:
        """Output mode complete: all of it, ahead of the checkpoint's barrier."""
        if not self.spec.function.complete:
            return
        every = self._everything()
        none, no_rows = np.zeros(len(every), bool), self._rows_schema().empty_table()
        touched = Touched(every.keys, no_rows, np.empty(0, np.int64), every.state, every.exists, none, every.timeout_ms)
        self._put_out(self.spec.function.result(self._context(checkpoint, every, None), touched), checkpoint)

    def _everything(self) -> Lookup:
        family = self.spec.function.keys_in
        if family is None:
            return self.keyed.everything()
        return self._of_keys([self.states[family].keyed.everything().keys])

    def _context(self, epoch: int, lookup: Lookup, now_ms: int | None) -> CallContext:
        watermark_ms = None if self._time.now_us is None else self._time.now_us // 1000
        families = {
            family: Family(self.states[family].keyed, layout, lookup.hashes, lookup.keys, now_ms)
            for family, layout in self.spec.function.families.items()
        }
        return CallContext(self.spec.uid, self.subtask, epoch, self.now_ms, watermark_ms, families)

    def with_due(self, now_ms: int, epoch: int) -> None:
        """For the keys that wait for a time up to ``now_ms``, without rows."""
        due = self._due(now_ms)
        if len(due):
            no_rows = self._rows_schema().empty_table()
            self._apply(due, no_rows, np.empty(0, np.int64), np.ones(len(due), bool), epoch, now_ms)

    def _due(self, now_ms: int) -> Lookup:
        """The keys whose time-out has passed, or some of whose rows in a family have expired."""
        due = self.keyed.due(now_ms)
        families = [state.keyed for family, state in self.states.items() if family != OWN]
        expired = [found for found in (keyed.due(now_ms) for keyed in families) if len(found)]
        if not expired:
            return due
        return self._of_keys([due.keys, *(found.keys for found in expired)])

    def _of_keys(self, tables: list[pa.Table]) -> Lookup:
        """The keys that are in any of ``tables``, each once."""
        names = self.keyed.layout.key_schema.names
        keys = one_batch(pa.concat_tables(table.select(names) for table in tables))
        hashes = xxhash64(keys.columns)
        first = group_rows(hashes, keys).firsts()
        return self.keyed.touch(hashes[first], pa.Table.from_batches([keys.take(pa.array(first))]))

    def _rows_schema(self) -> pa.Schema:
        return pa.schema([f for f in self.spec.packed_schema if f.name not in (KEY_HASH, EVENT_TIME)])
