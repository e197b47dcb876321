"""Days and times of Parquet files in the calendar of Spark 2 and Hive, as Spark reads them. Executor.

Up to 1582-10-04 these wrote days of the Julian calendar, and of times the clock in it. A file of Spark says in its
footer which Spark wrote it, and whether it was asked for the old calendar; of others an option says it, as in Spark
(``DataSourceUtils.datetimeRebaseSpec`` there).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError

MODES = ("corrected", "legacy", "exception")
CORRECTED, LEGACY, EXCEPTION = MODES
SETTINGS = {
    "datetimeRebaseMode": "spark.sql.parquet.datetimeRebaseModeInRead",
    "int96RebaseMode": "spark.sql.parquet.int96RebaseModeInRead",
}
"""Options, and Spark's settings that count without them."""
DAY_S = 86_400
FIRST_DAY = -719_164
"""0001-01-01 of the Julian calendar, in days since 1970."""
_GREGORIAN_DAY = -141_427
"""1582-10-15."""
_NEW_TIME_S = -2_208_988_800
"""1900-01-01: from then on no zone's clock differs."""
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2}):?(\d\d)?(?::?(\d\d))?")
_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"

_EPOCH = 2_440_588
"""1970-01-01, in days that astronomers count."""
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Modes:
    """Of files that do not say it: for days and times, and for times that are INT96."""

    times: str = CORRECTED
    int96: str = CORRECTED


Change = Callable[[pa.Array], pa.Array]


def modes_of(parsed: Mapping[str, str | None]) -> Modes:
    """``parsed``: a source's options."""
    return Modes(*(parsed[option] or CORRECTED for option in SETTINGS))


def settled_modes(
    options: dict[str, str], parsed: Mapping[str, str | None], setting: Callable[[str], str]
) -> dict[str, str]:
    """``options`` with the session's modes where none are given. Driver."""
    said = {option: setting(key) for option, key in SETTINGS.items() if parsed[option] is None}
    return {**options, **said}


def rebase_of(file: pq.ParquetFile, modes: Modes, shown: str) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
    """What makes batches of ``file`` those that Spark reads; None where they are. ``shown`` names the file.

    It raises ``InvalidInputError`` if the mode is EXCEPTION and a value is old enough to differ in the calendars.
    """
    said = file.metadata.metadata or {}
    times = _mode(said, b"3.0.0", b"org.apache.spark.legacyDateTime", modes.times)
    int96 = _mode(said, b"3.1.0", b"org.apache.spark.legacyINT96", modes.int96)
    if times == int96 == CORRECTED:
        return None
    zone = said[_ZONE].decode(errors="replace") if _ZONE in said else _machines_zone()
    columns = (file.schema.column(i) for i in range(len(file.schema)))
    leaves = (_Leaf(c.path, c.physical_type == "INT96", times, int96, zone, shown) for c in columns)
    changes = {field.name: _change(field.type, leaves) for field in file.schema_arrow}

    def rebased(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            change = changes[name]
            found.append(column if change is None else change(column))
        return pa.RecordBatch.from_arrays(found, schema=batch.schema)

    return rebased if any(changes.values()) else None


def _mode(said: Mapping[bytes, bytes], since: bytes, key: bytes, otherwise: str) -> str:
    if _VERSION not in said:
        return otherwise
    return LEGACY if said[_VERSION] < since or key in said else CORRECTED  # as texts, as Spark compares them


@dataclass(frozen=True)
class _Leaf:
    """A column of plain values in the file."""

    path: str
    is_int96: bool
    times: str
    int96: str
    zone: str
    shown: str

    def change(self, kind: pa.DataType) -> Change | None:
        """None for what is the same in both calendars; ``timestamp_ntz`` is newer than the old one."""
        mode = self.int96 if self.is_int96 else self.times
        if mode == CORRECTED:
            return None
        if pt.is_date32(kind):
            return partial(self._days, mode)
        if pt.is_timestamp(kind) and (self.is_int96 or kind.tz is not None):
            return partial(self._instants, mode)
        return None

    def _days(self, mode: str, array: pa.Array) -> pa.Array:
        return self._changed(array, pa.int32(), 1, _GREGORIAN_DAY, mode, rebased_days)

    def _instants(self, mode: str, array: pa.Array) -> pa.Array:
        def rebased(seconds: Ints) -> Ints:
            return rebased_seconds(seconds, self.zone, self.shown)

        return self._changed(array, pa.int64(), _PER_SECOND[array.type.unit], _NEW_TIME_S, mode, rebased)

    def _changed(
        self, array: pa.Array, ints: pa.DataType, per: int, new: int, mode: str, rebased: Callable[[Ints], Ints]
    ) -> pa.Array:
        """``per``: how many units of ``array`` one is of what ``rebased`` takes, which leaves it be from ``new`` on."""
        plain = array.view(ints)
        least = pc.min(plain).as_py()
        if least is None or least // per >= new:
            return array
        if mode == EXCEPTION:
            raise self._ambiguous(array.type)
        values = plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        whole = values // per
        found = values + (rebased(whole) - whole) * per
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(found, mask=mask).cast(ints).view(array.type)

    def _ambiguous(self, kind: pa.DataType) -> InvalidInputError:
        option = "int96RebaseMode" if self.is_int96 else "datetimeRebaseMode"
        what = "a day before 1582-10-15" if pt.is_date32(kind) else "a time before 1900-01-01T00:00:00Z"
        return InvalidInputError(
            f"[INCONSISTENT_BEHAVIOR_CROSS_VERSION.READ_ANCIENT_DATETIME] {self.shown}, column {self.path}: found "
            f"{what}, and the file does not say in which calendar. Start again with option {option}=LEGACY if Spark "
            f"before 3.0 or Hive wrote it, or CORRECTED; without the option {SETTINGS[option]} says it"
        )


def _change(kind: pa.DataType, leaves: Iterator[_Leaf]) -> Change | None:
    """Of a column of ``kind``, whose plain values are the next of ``leaves``."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_struct(kind) or pt.is_map(kind):
        parts = kind if pt.is_struct(kind) else [kind.key_field, kind.item_field]
        inner = [_change(part.type, leaves) for part in parts]
        if not any(inner):
            return None
        return partial(_of_struct, inner) if pt.is_struct(kind) else partial(_of_list, partial(_of_struct, inner))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        of_values = _change(kind.value_type, leaves)
        return None if of_values is None else partial(_of_list, of_values)
    leaf = next(leaves, None)
    return None if leaf is None else leaf.change(kind)


def _of_struct(inner: list[Change | None], array: pa.Array) -> pa.Array:
    parts = [array.field(n) if change is None else change(array.field(n)) for n, change in enumerate(inner)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(array.type), mask=mask)


def _of_list(of_values: Change, array: pa.Array) -> pa.Array:
    """Of a map, too, whose values are structs of a key and an item."""
    own = 1 if pt.is_fixed_size_list(array.type) else 2
    children = [of_values(_all_values(array))]
    return pa.Array.from_buffers(
        array.type, len(array), array.buffers()[:own], array.null_count, array.offset, children=children
    )


def _all_values(array: pa.Array) -> pa.Array:
    if not pt.is_map(array.type):
        return array.values
    return pa.StructArray.from_arrays([array.keys, array.items], fields=[array.type.key_field, array.type.item_field])


def rebased_days(days: Ints) -> Ints:
    """Days of the calendar that was Julian up to 1582-10-04: those of the same year, month and day in the other one.

    In the Julian calendar 1500 had a 29th of February; it becomes the 1st of March, as in Spark.
    """
    # Years begin in March, and 4800 of them before the era: so no number is negative, and leap days are last.
    since = days + _EPOCH + 32_082
    year = (4 * since + 3) // 1461
    of_year = since - 1461 * year // 4
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    julian = day + (153 * month + 2) // 5 + 365 * year + year // 4
    gregorian = julian - year // 100 + year // 400 - 32_044 - _EPOCH
    return np.where(days < _GREGORIAN_DAY, gregorian, days)


def rebased_seconds(seconds: Ints, zone: str, shown: str) -> Ints:
    """As :func:`rebased_days`, of what a clock of ``zone`` showed. Raises ``InvalidInputError`` for an unknown zone."""
    clock_s, *pairs = _clock(zone, shown)
    days = (seconds + clock_s) // DAY_S
    found = seconds + (rebased_days(days) - days) * DAY_S
    if pairs:
        at = np.searchsorted(np.array(pairs[::2]), seconds, side="right") - 1
        found += np.array(pairs[1::2])[np.maximum(at, 0)]
    return np.where(seconds < _NEW_TIME_S, found, seconds)


def _clock(zone: str, shown: str) -> list[int]:
    """As in ``julian_zones.json``, which ``scripts/julian_zones.py`` makes and explains."""
    known = _clocks().get(zone)
    if known is not None:
        return known
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        raise InvalidInputError(
            f"{shown} has times in the old calendar, of the zone {zone!r}: expected a region such as Europe/Paris or "
            "an offset such as +02:00, of which Spark says how to read them; leave the columns out with .schema(...)"
        )
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    return [(-1 if offset[1] == "-" else 1) * (hours * 3600 + minutes * 60 + seconds)]


@cache
def _clocks() -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = json.loads(files(__package__).joinpath("julian_zones.json").read_text())
    return found


def _machines_zone() -> str:
    """That of files that do not say one, as in Spark, which takes that of its JVM."""
    named = os.environ.get("TZ", "").removeprefix(":") or os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    return named or "UTC"
