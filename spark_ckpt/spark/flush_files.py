"""The state files of one call: named when the first rows come, written when the call ends. Executor."""

from __future__ import annotations

import uuid

import pyarrow as pa

from spark_ckpt.faults import reach
from spark_ckpt.protocol.events import StateFile
from spark_ckpt.spark.operator_spec import OperatorSpec
from spark_ckpt.storage.run_files import run_file_name, write_run_file


class FlushFiles:
    """Collects what a slot flushes, one file an epoch. Implements ``state.ports.RunAppender``.

    Names are random, so a call that is repeated never meets a half-written file. What a call wrote that then failed is
    an orphan nobody names; ``gc`` removes it.
    """

    def __init__(self, spec: OperatorSpec, slot: int) -> None:
        self.epoch = 0
        self._spec, self._slot = spec, slot
        self._files: dict[int, tuple[str, list[pa.Table]]] = {}

    def append(self, rows: pa.Table) -> tuple[str, int]:
        if self.epoch not in self._files:
            self._files[self.epoch] = (run_file_name(self.epoch, self._slot, uuid.uuid4().hex[:12]), [])
        name, before = self._files[self.epoch]
        start = sum(table.num_rows for table in before)
        before.append(rows)
        return name, start

    def write(self) -> dict[int, StateFile]:
        """Write the files, by epoch: durable when this returns. Raises what storage raises."""
        written = {}
        for epoch, (name, tables) in sorted(self._files.items()):
            rows = pa.concat_tables(tables)
            written[epoch] = write_run_file(self._spec.table_url, name, rows, self._spec.run.config.storage_options())
            self._spec.cache().put(name, rows)
            reach("after WriteStateFile")
        self._files = {}
        return written
