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
                                       1_615_703_999_999_999, 1_636_264_800_000_000, 253_402_300_799_999_999,
                                       2_540_376_000_000_000]),
    "m": (pa.decimal128(10, 2), [None, Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.10"), Decimal("-2.55")]),
    "n": (pa.decimal128(38, 18), [None, Decimal("0"), Decimal("1e-18"), Decimal("99999999999999999999.5"),
                                  Decimal("-0.000000125"), Decimal("3")]),
    "w": (pa.decimal128(38, 0), [None, Decimal("9" * 38), Decimal("-1"), Decimal("0"), Decimal(2**63), Decimal("45")]),
    "u": (pa.string(), [None, "", " 12 ", "-7.5", "1e3", ".", "1.", "+", "-.5", "128", "-2147483649", "9" * 20, "NaN",
    "+inf",
                        "-Infinity", "0x1p3", "1d", "1e400", "1.235", "99999999.995", "true", " Y", "0", "No", "1_0",
                        "\u0665",
                        "\t5\n", "\x7f6", "1e-999", "0e50", "--1", "+0", "-0.0", "16777217"]),
    "v": (pa.string(), [None, "", "2024-03-10 02:30:00", "2024-11-03 01:30:00.5", "2024-01-31", "2024-2-3",
    " 2021-07 ", "1999",
                        "2024-02-30", "12024-01-01", "+12024-01-01 1:2:3", "-0044-03-15",
                        "2024-01-01T10:11:12.1234567Z",
                        "2024-01-01 10:11:12 Europe/Berlin", "2024-01-01 10:11:12+5:30", "2024-01-01 10:11:12UTC+3",
                        "2024-01-01 10:11", "2024-01-01 24:00:00", "2024-01-01 10:11:12 Nowhere/City", "2024-01-01x",
                        "0001-01-01",
                        "1883-11-18 12:02:00", "20240131", "31/01/2024 23:59", "2024-01-01 10:11:12.",
                        "2024-01-01 10:11:12 PST"]),
    "xs": (pa.list_(pa.int32()), [None, [], [1], [None, 3, 7], [1, 2, 3, -1]]),
    "ts": (pa.list_(pa.string()), [None, [], ["a", None], ["b"], ["", "a", "ä"]]),
    "st": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [None, {"x": None, "y": "q"}, {"x": 3, "y": None}]),
}  # fmt: skip
MILD = {
    "i8": [1, 2, None],
    "i16": [3, 200],
    "i": [None, 4, -9],
    "l": [5, 70_000, None],
    "f": [0.5, -4.0],
    "d": [2.5, None, 8.0],
    "u": ["12", " 7", None],
    "v": ["2024-03-10 02:30:00", "2024-01-31", None],
    "xs": [[1, 2, 3], [4, None, 6], None],
    "w": [Decimal("12"), None, Decimal("-3")],
    "n": [Decimal("12.5"), None, Decimal("-0.25")],
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

_READ = ["yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd", "dd/MM/yyyy HH:mm", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"]
_PRINTED = [
    "yyyy-MM-dd HH:mm:ss",
    "yyyyMMdd",
    "d.M.yy h a",
    "HH:mm:ss.SSS",
    "EEE, dd MMM yyyy",
    "EEEE MMMM 'o''clock'",
    "SSSSSS",
]
_UNITS = ["microsecond", "millisecond", "second", "minute", "HOUR", "day", "dd", "week", "mon", "quarter", "year"]
_INTERVALS = [
    "INTERVAL 1 HOUR",
    "INTERVAL 3 DAY",
    "interval 1 week -2 days 3 minutes",
    "INTERVAL '1 12:30:00' DAY TO SECOND",
    "INTERVAL '-0.000001' SECOND",
]


class Writer:
    """Writes expressions of a kind: ``boolean``, ``number``, ``decimal``, ``text``, ``date`` or ``moment``."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def any(self, depth: int) -> str:
        kinds = (self.boolean, self.number, self.number, self.text, self.text, self.decimal, self.date, self.moment)
        return self.random.choice(kinds)(depth)

    def boolean(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(
                ["b", "b", "true", "(i = 7)", "(d > 0)", "CAST(NULL AS BOOLEAN)", "(m <= CAST(1.1 AS DECIMAL(10, 2)))"]
            )
        compared = r.choice([self.number, self.decimal, self.text, self.date, self.moment, self.boolean])
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
            f"CAST({r.choice([self.number, self.decimal, self.digits])(depth - 1)} AS BOOLEAN)",
            f"({self.text(depth - 1)} RLIKE {self._pattern(['^a', 'b$', '[^a-z]b?', '(?i)A.', 'a|(b)', '^$', '.'])})",
            f"array_contains(xs, {self.whole(0)})",
            f"array_contains(ts, {self.text(depth - 1)})",
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
            f"CAST({r.choice([self.decimal, self.digits])(depth - 1)} AS {r.choice(_CASTS[:4])})",
            f"{r.choice(['instr({}, {})', 'locate({1}, {0})', 'locate({1}, {0}, 2)'])}".format(
                self.text(depth - 1), self._pattern(["a", "b", "", "bc"])),
            f"size({r.choice(['xs', 'ts', self.split(depth - 1)])})",
            f"xs[{r.choice(['0', '2', 'i8', '-1'])}]",
            f"element_at(xs, {r.choice(['1', '-1', '2'])})",
            f"get(xs, {r.choice(['1', 'i', '-1'])})",
            f"round({self.whole(depth - 1)})",
            f"{r.choice(_PARTS[:7])}({self.date(depth - 1)})",
            f"{r.choice(_PARTS[-3:])}({self.moment(depth - 1)})",
            f"{r.choice(['unix_timestamp', 'unix_seconds', 'unix_millis', 'unix_micros'])}({self.moment(depth - 1)})",
            f"datediff({self.date(depth - 1)}, {self.date(0)})",
            f"unix_date({self.date(depth - 1)})",
            f"CAST({self.moment(depth - 1)} AS {r.choice(_CASTS[:4])})",
            f"unix_timestamp(v, {self._pattern(_READ)})",
            f"to_unix_timestamp({self.moment(depth - 1)})",
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
            f"nanvl({a}, {r.choice(FLOATING)})",
            f"CAST({r.choice([self.number, self.digits])(depth - 1)} AS {r.choice(_CASTS[4:])})",
            f"CAST({r.choice([self.decimal, self.moment])(depth - 1)} AS DOUBLE)",
            self._chosen(self.floating, depth),
        ])  # fmt: skip

    def decimal(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(
                ["m", "n", "w", "1.5", "0.000", "100", "CAST(i8 AS DECIMAL(3, 0))", "CAST(l AS DECIMAL(20, 5))"]
            )
        a, b = self.decimal(depth - 1), self.decimal(depth - 1)
        return r.choice([
            f"({a} {r.choice(['+', '-', '*', '/', '%'])} {b})",
            f"({a} {r.choice(['+', '*', '/'])} {r.choice(['i', 'i8', '2'])})",
            f"{r.choice(['-', '+'])}({a})",
            f"{r.choice(['abs', 'floor', 'ceil'])}({a})",
            f"round({a}{r.choice(['', ', 1', ', 3', ', -1', ', 12'])})",
            f"CAST({r.choice([self.decimal, self.whole, self.digits])(depth - 1)} AS {self._decimal_type()})",
            self._chosen(self.decimal, depth),
        ])  # fmt: skip

    def _decimal_type(self) -> str:
        return self.random.choice(
            ["DECIMAL(10, 2)", "DECIMAL(5, 4)", "DECIMAL(38, 10)", "DECIMAL(20, 0)", "DECIMAL(38, 37)"]
        )

    def digits(self, depth: int) -> str:
        """Texts that are numbers, if they are."""
        return self.random.choice(["u", "u", "u", "trim(u)", "concat(u, '0')", "'12'"])

    def split(self, depth: int) -> str:
        r = self.random
        by = r.choice([",", "a", " ", "%", "[.]", "ab"])
        return f"split({self.text(depth)}, '{by}'{r.choice(['', ', 2', ', 1'])})"

    def text(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(["s", "s", "t", "u", "'a'", "''", "st.y", "CAST(NULL AS STRING)"])
        if r.random() < 0.5:
            return self._changed_text(depth)
        a = self.text(depth - 1)
        return r.choice([
            f"concat({a}, {self.text(0)}, {self.text(depth - 1)})",
            f"substring({a}, {r.choice([-3, -1, 0, 1, 2, 5])}, {r.choice([-1, 0, 1, 2, 9])})",
            f"substring({a}, {r.choice([-2, 1, 2])})",
            f"{r.choice(['trim', 'ltrim', 'rtrim'])}({a})",
            f"CAST({r.choice([self.whole, self.boolean, self.decimal])(depth - 1)} AS STRING)",
            f"named_struct('p', {a}, 'q', {self.number(0)}).p",
            self._chosen(self.text, depth),
        ])  # fmt: skip

    def _changed_text(self, depth: int) -> str:
        r = self.random
        a, length = self.text(depth - 1), r.choice([-1, 0, 1, 4, 7])
        return r.choice([
            f"{r.choice(['upper', 'lower', 'initcap', 'reverse'])}({a})",
            f"{r.choice(['lpad', 'rpad'])}({a}, {length}{r.choice(['', ', xx', ', yy'])})".replace("xx", "''").replace(
                "yy", "'äb'"),
            f"concat_ws({r.choice(['-', '', ', '])!r}, {a}, {self.text(0)}, {self.text(depth - 1)})",
            f"substring_index({a}, {r.choice(['a', 'b', '', 'ab', '.'])!r}, {r.choice([-2, -1, 0, 1, 2])})",
            f"replace({a}, {r.choice(['a', '', 'b', 'ab'])!r}{r.choice(['', ', xä'])})".replace("xä", "'xä'"),
            f"translate({a}, {r.choice(['ab', 'aa', '', 'bä'])!r}, {r.choice(['x', '', 'yz', 'ä'])!r})",
            f"repeat({a}, {r.choice([-1, 0, 1, 3])})",
            f"{r.choice(['left', 'right'])}({a}, {length})",
            f"{r.choice(['BOTH', 'LEADING', 'TRAILING'])} {r.choice(['a', ' a', ''])!r} FROM {a}".join(["trim(", ")"]),
            f"regexp_extract({a}, {r.choice(['(a)(b)?', '([^a]+)', 'b(.*)$'])!r}, {r.choice([0, 1])})",
            f"regexp_replace({a}, {r.choice(['a+', '[ b]', '(.)b', 'c$'])!r}, {r.choice(['', 'x', '<$0>'])!r})",
            f"{self.split(depth - 1)}[0]",
            f"get(ts, {r.choice([0, 1])})",
            f"btrim({a})",
            f"date_format({self.moment(depth - 1)}, {self._pattern(_PRINTED)})",
            f"from_unixtime({self.whole(0)}{r.choice(['', ', xx'])})".replace("xx", "'yyyy-MM-dd HH'"),
            f"CAST({r.choice([self.date, self.moment])(depth - 1)} AS STRING)",
        ])  # fmt: skip

    def date(self, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return r.choice(["day", "day", "DATE'2024-03-01'"])
        return r.choice([
            f"{r.choice(['date_add', 'date_sub'])}({self.date(depth - 1)}, {r.choice(['1', '-40', 'i8', 'i16', 'i'])})",
            f"to_date(v{r.choice(['', ', xx'])})".replace("xx", self._pattern(_READ)),
            f"to_date({self.moment(depth - 1)})",
            f"trunc({self.date(depth - 1)}, '{r.choice(['year', 'MM', 'week', 'quarter'])}')",
            f"last_day({self.date(depth - 1)})",
            f"add_months({self.date(depth - 1)}, {r.choice([1, -13, 1200])})",
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
            f"to_timestamp(v{r.choice(['', ', xx'])})".replace("xx", self._pattern(_READ)),
            f"CAST({r.choice(['v', self.date(depth - 1), 'i', 'if(abs(d) < 1e9, d, NULL)'])} AS TIMESTAMP)",
            f"date_trunc('{r.choice(_UNITS)}', {self.moment(depth - 1)})",
            f"({self.moment(depth - 1)} {r.choice('+-')} {r.choice(_INTERVALS)})",
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
            f"{self.random.choice(['greatest', 'least'])}({a}, {b}, {kind(0)})",
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
