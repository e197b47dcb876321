"""What keyed state needs from the outside: run files to look keys up in, and a place to append new runs to."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from spark_ckpt.protocol.events import Run


class RunReader(Protocol):
    """Opens runs. Executor. Implemented by :class:`spark_ckpt.storage.run_cache.RunCache`."""

    def read(self, run: Run) -> pa.RecordBatch:
        """The run's rows, sorted by ``KEY_HASH``, zero-copy where the local cache holds them.

        Columns: the stored ones (keys, values, ``TIMEOUT_MS`` where the operator uses time-outs, ``KEY_HASH``).
        Raises ``CorruptStorageError`` naming the file if it is missing or damaged.
        """
        ...


class RunAppender(Protocol):
    """Collects what one task flushes into one state file. Executor, one task."""

    def append(self, rows: pa.Table) -> tuple[str, int]:
        """Queue ``rows`` (state-table columns, sorted by ``KEY_HASH``); returns the file's name and their first row.

        Called any number of times a flush. Rows queued one after another lie side by side in the file.

        The file itself is written when the task ends; nobody reads it before.
        """
        ...
