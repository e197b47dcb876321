"""The state files of one call: collected while it runs, named and written when it ends. Executor."""

from __future__ import annotations

import time
import zlib

import pyarrow as pa

from spark_ckpt.faults import reach
from spark_ckpt.protocol.events import StateFile
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.retry import Retry
from spark_ckpt.storage.run_files import encode_run_file, run_file_name, write_run_file


class FlushFiles:
    """Collects what a subtask flushes into one table, one flush and one file an epoch. It is a ``RunAppender``.

    A file is named by where it comes from (epoch, subtask, generation, batch) and what is in it, so attempts at one
    call that do the same, one after another or at once, write the same file and say the same: Spark goes on behind a
    repeated task only if its output is what it was. Attempts that differ, because a user's function does, write files
    of their own; those that nobody names in the end are orphans, which ``gc`` removes.

    As the content is not known before the flush ends, names are provisional, and :meth:`named` puts the final ones into
    whatever mentions them.
    """

    def __init__(self, spec: OperatorSpec, subtask: int, batch: int, family: str = "") -> None:
        self._epoch = 0
        self._spec, self._subtask, self._batch = spec, subtask, batch
        self._table, self._form = spec.family_tables[family], spec.form_of(family)
        # A number: what stands in JSON may not look like the name.
        self._family = f"{list(spec.family_tables).index(family)}/" if family else ""
        self._tables: list[pa.Table] = []
        self._names: dict[bytes, bytes] = {}
        self.write_s = 0.0
        """How long storage took for the last file."""

    def begin(self, epoch: int) -> str:
        """What follows is flushed in ``epoch``; returns the file's provisional name."""
        self._epoch, self._tables, self.write_s = epoch, [], 0.0
        return self._provisional(epoch)

    def append(self, rows: pa.Table) -> tuple[str, int]:
        start = sum(table.num_rows for table in self._tables)
        self._tables.append(rows)
        return self._provisional(self._epoch), start

    def write(self) -> StateFile | None:
        """Write the file, if there is something to write: durable when this returns. Raises what storage raises."""
        if not self._tables:
            return None
        config = self._spec.run.config
        folder = Folder(self._spec.url_of(self._table), config.storage_options(), Retry.of(config))
        rows = self._form.written(pa.concat_tables(self._tables))
        data = encode_run_file(rows)
        name = run_file_name(self._epoch, self._subtask, self._identity(data))
        started = time.perf_counter()
        written = write_run_file(folder, name, rows, data=data)
        self.write_s = time.perf_counter() - started
        # Stopped here: an orphan, unless the call is repeated with the same result and takes it as its own.
        self._names[self._provisional(self._epoch).encode()] = name.encode()
        self._spec.cache(self._table).put(name, rows)
        reach("after WriteStateFile")
        self._tables = []
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

    def _provisional(self, epoch: int) -> str:
        """Looks the same in JSON; no column, stream or uid is called like this, and none is part of another."""
        return f"//not written yet//{self._family}{epoch}//"
