"""Random expressions as SQL, typed, over columns of nasty values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INF = float("nan"), float("inf")
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False, None]),
    "i8": (pa.int8(), [None, -128, -1, 0, 1, 127, 5]),
    "i16": (pa.int16(), [None, -(2**15), -1, 0, 1, 2**15 - 1, 300]),
    "i": (pa.int32(), [None, -(2**31), -1, 0, 1, 2**31 - 1, 7, -13]),
    "l": (pa.int64(), [None, -(2**63), -1, 0, 1, 2**63 - 1, 2**53 + 1, 86_400, -100_000]),
    "f": (pa.float32(), [None, NAN, INF, -INF, -0.0, 0.0, 1.5, -2.25, 3e38, 1e-45]),
    "d": (pa.float64(), [None, NAN, INF, -INF, -0.0, 0.0, 0.1, -7.75, 1e308, 5e-324, 2.0**63, -(2.0**63), 4e9]),
    "s": (pa.string(), [None, "", " ", "a", "A", " ab ", "ä", "a%b", "\U0001f600z", "abc\nabc", "ﬁ", "e\u0301"]),
    "t": (pa.string(), [None, "", "a", "b", "\uffff", "\U00010000", "bc"]),
    "day": (pa.date32(), [None, dt.date(1, 1, 1), dt.date(1582, 10, 15), dt.date(1969, 12, 31), dt.date(2024, 2, 29),
                          dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [None, -62_135_596_800_000_000, -2_717_640_000_000_001, -1, 0, 999_999,
                                       1_615_703_999_999_999, 1_636_264_800_000_000, 253_402_300_799_999_999]),
    "m": (pa.decimal128(10, 2), [None, Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.10")]),
    "st": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [None, {"x": None, "y": "q"}, {"x": 3, "y": None}]),
}  # fmt: skip
MILD = {
    "i8": [1, 2, None],
    "i16": [3, 200],
    "i": [None, 4, -9],
    "l": [5, 70_000, None],
    "f": [0.5, -4.0],
    "d": [2.5, None, 8.0],
}


def rows(random: Random, count: int, mild: bool = False) -> pa.RecordBatch:
    """``mild``: numbers that rarely make arithmetic fail."""
    arrays = []
    for name, (kind, values) in _VALUES.items():
        chosen = MILD.get(name, values) if mild else values
        arrays.append(pa.array([random.choice(chosen) for _ in range(count)], kind))
    return pa.RecordBatch.from_arrays(arrays, list(_VALUES))


WHOLE, FLOATING = ("i8", "i16", "i", "l"), ("f", "d")
_CASTS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_FOUND = ("contains", "startswith", "endswith")
_PARTS = ("year", "month", "day", "dayofweek", "weekday", "dayofyear", "quarter", "hour", "minute", "second")


class Writer:
    """Writes expressions of a kind: ``boolean``, ``number``, ``text``, ``date`` or ``moment``."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def any(self, depth: int) -> str:
        kinds = (self.boolean, self.number, self.number, self.text, self.date, self.moment)
        return self.random.choice(kinds)(depth)

    def boolean(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(
                ["b", "b", "true", "(i = 7)", "(d > 0)", "CAST(NULL AS BOOLEAN)", "(m <= CAST(1.1 AS DECIMAL(10, 2)))"]
            )
        compared = r.choice([self.number, self.number, self.text, self.date, self.moment, self.boolean])
        a, b = compared(depth - 1), compared(depth - 1)
        return r.choice([
            f"({a} {r.choice(['=', '<', '<=', '>', '>=', '<=>', '<>'])} {b})",
            f"({self.boolean(depth - 1)} {r.choice(['AND', 'OR'])} {self.boolean(depth - 1)})",
            f"(NOT {self.boolean(depth - 1)})",
            f"({self.any(depth - 1)} IS {r.choice(['', 'NOT '])}NULL)",
            f"(st IS {r.choice(['', 'NOT '])}NULL)",
            f"isnan({self.floating(depth - 1)})",
            f"({a} IN ({b}, {compared(0)}))",
            f"({a} BETWEEN {b} AND {compared(0)})",
            f"{r.choice(_FOUND)}({self.text(depth - 1)}, {self._pattern(['a', '', 'b ', 'z'])})",
            f"({self.text(depth - 1)} LIKE {self._pattern(['a%', '%b%', '_', '%', 'a_b', '', 'abc%abc'])})",
            f"CAST({self.number(depth - 1)} AS BOOLEAN)",
            self._chosen(self.boolean, depth),
        ])  # fmt: skip

    def number(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice([*WHOLE, *FLOATING, "1", "0", "-1", "2L", "1.5D", "CAST(NULL AS INT)", "3Y", "st.x"])
        return r.choice([self.whole, self.whole, self.floating])(depth)

    def whole(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice([*WHOLE, "1", "7", "-1", "100L"])
        a, b = self.whole(depth - 1), self.whole(depth - 1)
        return r.choice([
            f"({a} {r.choice(['+', '-', '*'])} {b})",
            f"({a} {r.choice(['%', 'div', '&', '|', '^'])} {b})",
            f"{r.choice(['-', '+', '~'])}({a})",
            f"abs({a})",
            f"CAST({self.number(depth - 1)} AS {r.choice(_CASTS[:4])})",
            f"CAST({self.boolean(depth - 1)} AS INT)",
            f"{r.choice(['floor', 'ceil'])}({self.floating(depth - 1)})",
            f"length({self.text(depth - 1)})",
            f"{r.choice(_PARTS[:7])}({self.date(depth - 1)})",
            f"{r.choice(_PARTS[-3:])}({self.moment(depth - 1)})",
            f"{r.choice(['unix_timestamp', 'unix_seconds', 'unix_millis', 'unix_micros'])}({self.moment(depth - 1)})",
            f"datediff({self.date(depth - 1)}, {self.date(0)})",
            self._chosen(self.whole, depth),
        ])  # fmt: skip

    def floating(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice([*FLOATING, "0D", "2.5D", "CAST('NaN' AS DOUBLE)"])
        a, b = self.floating(depth - 1), self.number(depth - 1)
        return r.choice([
            f"({a} {r.choice(['+', '-', '*', '/', '%'])} {b})",
            f"({self.whole(depth - 1)} / {self.whole(depth - 1)})",
            f"{r.choice(['-', '+'])}({a})",
            f"{r.choice(['abs', 'sqrt'])}({a})",
            f"CAST({self.number(depth - 1)} AS {r.choice(_CASTS[4:])})",
            self._chosen(self.floating, depth),
        ])  # fmt: skip

    def text(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(["s", "t", "'a'", "''", "st.y", "CAST(NULL AS STRING)"])
        a = self.text(depth - 1)
        return r.choice([
            f"concat({a}, {self.text(0)}, {self.text(depth - 1)})",
            f"substring({a}, {r.choice([-3, -1, 0, 1, 2, 5])}, {r.choice([-1, 0, 1, 2, 9])})",
            f"substring({a}, {r.choice([-2, 1, 2])})",
            f"{r.choice(['trim', 'ltrim', 'rtrim'])}({a})",
            f"CAST({r.choice([self.whole, self.boolean])(depth - 1)} AS STRING)",
            f"named_struct('p', {a}, 'q', {self.number(0)}).p",
            self._chosen(self.text, depth),
        ])  # fmt: skip

    def date(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(["day", "day", "DATE'2024-03-01'"])
        return r.choice([
            f"{r.choice(['date_add', 'date_sub'])}({self.date(depth - 1)}, {r.choice(['1', '-40', 'i8', 'i16', 'i'])})",
            self._chosen(self.date, depth),
        ])  # fmt: skip

    def moment(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(["at", "at", "TIMESTAMP'2024-03-10 02:30:00'"])
        return r.choice([
            f"timestamp_seconds({r.choice(['i', 'i16', 'unix_seconds(at)'])})",
            f"timestamp_millis({r.choice(['i', 'unix_millis(at)'])})",
            f"timestamp_micros({r.choice(['i', 'unix_micros(at)'])})",
            self._chosen(self.moment, depth),
        ])  # fmt: skip

    def _chosen(self, kind: Any, depth: int) -> str:
        a, b, c = kind(depth - 1), kind(depth - 1), self.boolean(depth - 1)
        return self.random.choice([
            f"CASE WHEN {c} THEN {a} WHEN {self.boolean(0)} THEN {kind(0)} ELSE {b} END",
            f"CASE WHEN {c} THEN {a} END",
            f"if({c}, {a}, {b})",
            f"coalesce({a}, {b})",
            f"nvl({a}, {b})",
            f"nullif({a}, {b})",
        ])  # fmt: skip

    def _pattern(self, texts: list[str]) -> str:
        return repr(self.random.choice(texts))


def shown(column: Any) -> list[Any]:
    """Values that are equal only if they are the same: NaN, the sign of zero."""
    if pa.types.is_floating(column.type):
        return [None if v is None else np.float64(v).tobytes() if v == v else "NaN" for v in column.to_pylist()]
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()).to_pylist()
    return column.to_pylist()
