"""Records of text files by Spark's mode PERMISSIVE: none is bad. Executor."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.formats.json_lines import JsonLines
from spark_ckpt.sources._csv_lenient import CsvRecords
from spark_ckpt.sources._local_times import time_texts
from spark_ckpt.sources._text_records import TextFormat


class Lenient(Protocol):
    def read(self, lines: pa.BinaryArray) -> pa.RecordBatch:
        """The rows of ``lines``, records without their line breaks. Raises nothing for what they hold."""
        ...


def lenient_parser(fmt: TextFormat, schema: pa.Schema, names: list[str]) -> Lenient | None:
    """None without mode PERMISSIVE. ``names``: of the values of a record, for csv."""
    if fmt.corrupt is None:
        return None
    times = time_texts(fmt.zone, numbered_days=fmt.kind == "json")
    return JsonLines(schema, fmt.corrupt, times) if fmt.kind == "json" else CsvRecords(fmt, schema, names, times)


def records(data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Those that begin and end there."""
    found = [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return pa.array([one.removesuffix(b"\n").removesuffix(b"\r") for one in found], pa.binary())
