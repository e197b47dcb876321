"""Records of text files by the rules of Spark's readers. Executor."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_ckpt.formats.json_lines import JsonLines, Read
from spark_ckpt.sources._csv_lenient import CsvRecords
from spark_ckpt.sources._local_times import time_texts
from spark_ckpt.sources._text_records import Records, TextFormat

_LONG = 1000


class Lenient(Protocol):
    def read(self, records: Records) -> Read:
        """The rows of ``records``, nulls where something does not fit. Raises nothing for what they hold."""
        ...


class JsonRecords:
    """Blocks of lines that are plainly an object each are read as a whole."""

    def __init__(self, lines: JsonLines) -> None:
        self._lines = lines

    def read(self, records: Records) -> Read:
        records = records.without_marks()
        found = self._lines.whole(records.data, len(records)) if _plain_objects(records) else None
        return self._lines.read(records.lines()) if found is None else found


def _plain_objects(records: Records) -> bool:
    if not len(records):
        return False
    chars, behind = records.chars(), records.behind()
    braces = (chars[records.starts] == ord("{")) & (chars[behind - 1] == ord("}"))
    return bool(braces.all()) and int(np.max(behind - records.starts)) < _LONG


def lenient_parser(fmt: TextFormat, schema: pa.Schema, names: list[str]) -> Lenient | None:
    """None without Spark's rules. ``names``: of the values of a record, for csv."""
    rules = fmt.sparks
    if rules is None:
        return None
    times = time_texts(fmt.zone, fmt.kind == "json", rules.timestamp_pattern, rules.date_pattern)
    if fmt.kind == "json":
        return JsonRecords(JsonLines(schema, rules.corrupt, times))
    return CsvRecords(fmt, rules, schema, names, times)
