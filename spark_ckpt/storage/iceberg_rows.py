"""The rows of a data file of an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, UnsupportedPyArrowTypeException, _read_all_delete_files

from spark_ckpt.arrow_layouts import ordinary_rows
from spark_ckpt.errors import InvalidInputError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table


def rows_of(table: Table, columns: Schema, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """``columns`` of the file of ``task``, in its order, without the rows that its delete files take away.

    Those are left out here, because pyiceberg picks the other rows before it brings them to the types of the table,
    and Arrow cannot pick rows of views. Raises pyiceberg's errors, and ``InvalidInputError`` for a file whose layout
    pyiceberg does not read.
    """
    from pyiceberg.table import FileScanTask

    gone, first = _deleted(table, task), 0
    scan = ArrowScan(table.metadata, table.io, columns, AlwaysTrue())
    try:
        for found in scan.to_record_batches([FileScanTask(task.file)]):
            batch = ordinary_rows(found)
            yield batch if not len(gone) else batch.filter(_others(gone, first, len(batch)))
            first += len(batch)
    except (UnsupportedPyArrowTypeException, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"{task.file.file_path}: expected columns of a layout that pyiceberg reads, found others: {error}. Let the "
            "table's engine write the file anew (rewrite_data_files), and start the query again"
        ) from None


def _deleted(table: Table, task: FileScanTask) -> np.ndarray:
    """Numbers of rows, ascending."""
    found = _read_all_delete_files(table.io, [task]).get(task.file.file_path, [])
    parts = [np.asarray(chunk, np.int64) for positions in found for chunk in positions.chunks]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _others(gone: np.ndarray, first: int, rows: int) -> pa.Array:
    mask = np.ones(rows, bool)
    low, high = np.searchsorted(gone, [first, first + rows])
    mask[gone[low:high] - first] = False
    return pa.array(mask)
