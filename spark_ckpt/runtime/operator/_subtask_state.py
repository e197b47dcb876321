"""A subtask's share of one state table, for one call: its keyed state, and the files it flushes to. Executor."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spark_ckpt.protocol import events as ev
from spark_ckpt.runtime.operator._flush_files import FlushFiles
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.stored_form import FormReader
from spark_ckpt.storage.retry import describe, is_storage_failure

_NO_FILE = ev.StateFile("", 0, 0)


class SubtaskState:
    """``family``: which one of the operator's; the state that has no name is its own. ``known`` and ``memtable`` are
    what was sealed, in ``generation``."""

    def __init__(
        self,
        spec: OperatorSpec,
        family: str,
        subtask: int,
        batch: int,
        known: Any,
        memtable: bytes | None,
        generation: int = 0,
    ) -> None:
        config = spec.run.config
        policy = CompactionPolicy(config.compaction_fanout, config.compaction_max_runs)
        self.table = spec.family_tables[family]
        groups, layout = spec.run.subtasks.range_of(subtask), spec.layout_of(family)
        form = spec.form_of(family)
        fresh = frozenset(name for name, begun in spec.since(family).items() if generation < begun)
        if family in fresh:  # it was another query's, and has been gone in between
            known = memtable = None
        reader = FormReader(spec.cache(self.table), form, self.table)
        carried = None if family else partial(form.carried, fresh=fresh)
        self.keyed = KeyedState.open(layout, groups, known, memtable, reader, policy, carried)
        self._files = FlushFiles(spec, subtask, batch, family)
        self._written: dict[int, ev.StateFile] = {}
        self._acks: list[ev.OperatorAck] = []
        self._flush_ms = self._write_ms = 0.0

    def flush(self, epoch: int) -> list[ev.Flushed] | str:
        """Flush and write the state file, then tell of it. Nothing is announced that is not durable.

        If storage fails, why: the state goes on as it was, unflushed.
        """
        before, file = self.keyed.before_flush(), self._files.begin(epoch)
        started = time.perf_counter()
        try:
            dead = self.keyed.flush(self._files, epoch).dead
            written = self._files.write()
        except Exception as error:
            if not is_storage_failure(error):
                raise
            self.keyed.take_back(before, file)
            return describe(error)
        self._write_ms += 1000 * self._files.write_s
        self._flush_ms += 1000 * (time.perf_counter() - started - self._files.write_s)
        # Parts of what was flushed in ``epoch``; the snapshot stage puts the parts together.
        said = []
        if dead:
            said.append(ev.Flushed(self.table, epoch, (), {name: rows.serialize() for name, rows in dead.items()}))
        if written is not None:
            self._written[epoch] = written
            said.append(ev.Flushed(self.table, epoch, (written,), {}))
        return said

    def acknowledge(
        self, checkpoint: int, subtask: int, watermarks_us: Mapping[str, int], stats: Mapping[str, int]
    ) -> None:
        """Of what is flushed. Said at the end of the call, when all is known of it."""
        manifests = self.keyed.manifests(watermarks_us)
        self._acks.append(ev.OperatorAck(self.table, checkpoint, subtask, manifests, stats))

    def acknowledgements(self) -> Sequence[ev.OperatorAck]:
        took = {"flush_ms": int(self._flush_ms), "write_ms": int(self._write_ms)}
        files = [self._written.get(ack.checkpoint, _NO_FILE) for ack in self._acks]
        return [
            replace(ack, stats={**ack.stats, "rows": file.rows, "size_bytes": file.size_bytes, **took})
            for ack, file in zip(self._acks, files, strict=True)
        ]

    @property
    def wrote(self) -> bool:
        return bool(self._written)

    def named(self, text: bytes) -> bytes:
        """``text`` with the final names of the files written."""
        return self._files.named(text)
