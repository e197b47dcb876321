"""Rows of a state table as a checkpoint has them, read file by file. Any process.

The manifest says which files there are and which of their rows are dead, so no reader of Delta tables is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.run_files import open_run_file, read_row_group
from spark_ckpt.types import KEY_HASH

HashRange = tuple[int, int]
"""The smallest and the largest key hash that are looked for."""


def live_rows(folder: Folder, entry: FileEntry | None) -> BitMap:
    """Which rows of a file are live; none if the table has not got the file."""
    if entry is None or not entry.in_table:
        return BitMap()
    every = BitMap(range(entry.rows))
    return every - read_vector(folder, entry.dv) if entry.dv else every


def read_rows(folder: Folder, file: str, rows: BitMap, hashes: HashRange | None = None) -> Iterator[pa.Table]:
    """``rows`` of a file, by row group; those that have none of them, or none of ``hashes``, are not read. Raises
    ``CorruptStorageError`` if the file is missing or damaged."""
    if not rows:
        return
    with open_run_file(folder, file) as reader:
        first = 0
        for index in range(reader.num_row_groups):
            group = reader.metadata.row_group(index)
            here = rows & BitMap(range(first, first + group.num_rows))
            if here and (hashes is None or _may_hold(group, hashes)):
                table = read_row_group(folder, file, reader, index)
                whole = len(here) == group.num_rows
                yield table if whole else table.take(pa.array(np.array(here, dtype=np.int64) - first))
            first += group.num_rows


def _may_hold(group: pq.RowGroupMetaData, hashes: HashRange) -> bool:
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema == KEY_HASH:
            found = column.statistics
            return found is None or not found.has_min_max or (found.min <= hashes[1] and hashes[0] <= found.max)
    return True
