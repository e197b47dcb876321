"""The state files of one call: collected while it runs, named and written when it ends. Executor."""

from __future__ import annotations

import zlib

import pyarrow as pa

from spark_ckpt.faults import reach
from spark_ckpt.protocol.events import StateFile
from spark_ckpt.spark.operator_spec import OperatorSpec
from spark_ckpt.storage.run_files import encode_run_file, run_file_name, write_run_file


class FlushFiles:
    """Collects what a slot flushes, one file an epoch. Implements ``state.ports.RunAppender``.

    A file is named by where it comes from (epoch, slot, generation, batch) and what is in it, so attempts at one call
    that do the same, one after another or at once, write the same file and say the same: Spark goes on behind a
    repeated task only if its output is what it was. Attempts that differ, because a user's function does, write files
    of their own; those that nobody names in the end are orphans, which ``gc`` removes.

    As the content is not known before the call ends, names are provisional until :meth:`write`, and :meth:`named` puts
    the final ones into whatever mentions them.
    """

    def __init__(self, spec: OperatorSpec, slot: int, batch: int) -> None:
        self.epoch = 0
        self._spec, self._slot, self._batch = spec, slot, batch
        self._files: dict[int, list[pa.Table]] = {}
        self._names: dict[bytes, bytes] = {}

    def append(self, rows: pa.Table) -> tuple[str, int]:
        before = self._files.setdefault(self.epoch, [])
        start = sum(table.num_rows for table in before)
        before.append(rows)
        return _provisional(self.epoch), start

    def write(self) -> dict[int, StateFile]:
        """Write the files, by epoch: durable when this returns. Raises what storage raises."""
        written = {}
        options = self._spec.run.config.storage_options()
        for epoch, tables in sorted(self._files.items()):
            rows = pa.concat_tables(tables)
            data = encode_run_file(rows)
            name = run_file_name(epoch, self._slot, self._identity(data))
            written[epoch] = write_run_file(self._spec.table_url, name, rows, options, data)
            # Stopped here: an orphan, unless the call is repeated with the same result and takes it as its own.
            self._names[_provisional(epoch).encode()] = name.encode()
            self._spec.cache().put(name, rows)
            reach("after WriteStateFile")
        self._files = {}
        return written

    def named(self, text: bytes) -> bytes:
        """``text`` with the final names of the files written."""
        for provisional, name in self._names.items():
            text = text.replace(provisional, name)
        return text

    def _identity(self, data: pa.Buffer) -> str:
        # A checksum is enough: it only tells attempts at one call apart, and a name that is taken by other content is
        # noticed. Generation and batch keep files of equal rows apart that are not attempts at the same.
        return f"{self._spec.run.generation:x}-{self._batch:x}-{zlib.crc32(data):08x}{data.size:x}"


def _provisional(epoch: int) -> str:
    """Looks the same in JSON; no column, stream or uid is called like this."""
    return f"//not written yet//{epoch}//"
