"""SQL over one column, by its type, and the type it gives."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

DAY_TIME, YEAR_MONTH = "interval day to second", "interval year to month"

# None: the column's own type.
_INT = (("try_add({c}, 1)", None), ("cast({c} as double)", "double"), ("if({c} > 0, {c}, null)", None))
_FLOAT = (("-{c}", None), ("isnan({c})", "boolean"), ("abs({c})", None), ("nanvl({c}, {c})", None))
_TIME = (("cast({c} as string)", "string"), ("cast({c} as date)", "date"), ("date_trunc('day', {c})", None))
OF_TYPE: dict[str, tuple[tuple[str, str | None], ...]] = {
    "boolean": (("not {c}", None), ("if({c}, 1, 0)", "int")),
    "tinyint": (("if({c} > 0, {c}, null)", None), ("cast({c} as bigint)", "bigint")),
    "smallint": (("if({c} > 0, {c}, null)", None), ("cast({c} as string)", "string")),
    "int": (*_INT, ("{c} % 7", None)),
    "bigint": (*_INT, ("{c} % 7", None), ("hex({c})", "string")),
    "float": _FLOAT,
    "double": (*_FLOAT, ("{c} * 0.5D", None)),
    "decimal(9,2)": (
        ("-{c}", None),
        ("cast({c} as decimal(18,4))", "decimal(18,4)"),
        ("round({c}, 1)", "decimal(9,1)"),
    ),
    "decimal(38,10)": (("abs({c})", None), ("cast({c} as string)", "string")),
    "string": (
        ("upper({c})", None),
        ("length({c})", "int"),
        ("{c} || '|' || {c}", None),
        ("split({c}, 'a')", "array<string>"),
        ("encode({c}, 'UTF-8')", "binary"),
        ("sha2({c}, 256)", None),
        ("substring({c}, 2, 2)", None),
        ("trim({c})", None),
        ("try_cast({c} as int)", "int"),
        ("from_json({c}, 'a int')", "struct<a:int>"),
    ),
    "binary": (("hex({c})", "string"), ("length({c})", "int"), ("base64({c})", "string"), ("md5({c})", "string")),
    "date": (
        ("year({c})", "int"),
        ("cast({c} as string)", "string"),
        ("last_day({c})", None),
        ("make_ym_interval(month({c}), day({c}))", YEAR_MONTH),
    ),
    "timestamp": (
        *_TIME,
        ("hour({c})", "int"),
        ("unix_micros({c})", "bigint"),
        ("cast({c} as timestamp_ntz)", "timestamp_ntz"),
        ("{c} - timestamp'2000-01-01 00:00:00'", DAY_TIME),
    ),
    "timestamp_ntz": (("cast({c} as string)", "string"), ("cast({c} as date)", "date"), ("minute({c})", "int")),
    DAY_TIME: (
        ("-{c}", None),
        ("extract(day from {c})", "int"),
        ("{c} + interval '1' day", None),
        ("timestamp_ntz'2000-01-01 00:00:00' + {c}", "timestamp_ntz"),
    ),
    YEAR_MONTH: (("{c} * 2", None), ("cast({c} as string)", "string"), ("extract(year from {c})", "int")),
    "array<int>": (
        ("size({c})", "int"),
        ("get({c}, 0)", "int"),
        ("transform({c}, x -> -(x % 9))", None),
        ("to_json({c})", "string"),
    ),
    "map<string,double>": (
        ("size({c})", "int"),
        ("map_keys({c})", "array<string>"),
        ("try_element_at({c}, 'a')", "double"),
    ),
    "struct<a:int,b:string>": (
        ("{c}.a", "int"),
        ("to_json({c})", "string"),
        ("struct({c}.b as b)", "struct<b:string>"),
    ),
}
OF_ANY = (
    ("{c}", None),
    ("{c} is null", "boolean"),
    ("array({c}, {c})", "array<{t}>"),
    ("struct({c} as v)", "struct<v:{t}>"),
)

LITERALS: tuple[tuple[Any, str], ...] = (
    ("hello", "string"),
    ("", "string"),
    (7, "int"),
    (2**40, "bigint"),
    (0.5, "double"),
    (True, "boolean"),
    (Decimal("1.25"), "decimal(3,2)"),
    (dt.date(2024, 2, 29), "date"),
    (dt.datetime(2024, 7, 1, 12), "timestamp"),
    (dt.timedelta(days=-1, microseconds=1), DAY_TIME),
    (bytearray(b"\x00a"), "binary"),
)

CONDITIONS: dict[str, tuple[str, ...]] = {
    "boolean": ("{c}", "not {c}"),
    "int": ("{c} >= 0", "{c} in (0, 1)"),
    "bigint": ("{c} % 3 <> 1", "{c} > 2"),
    "double": ("not isnan({c})", "{c} <= 0"),
    "string": ("{c} like '%a%'", "{c} <> ''", "{c} = lower({c})"),
    "date": ("{c} > date'1970-01-01'",),
    "timestamp": ("{c} < timestamp'2024-03-10 12:00:00'", "hour({c}) < 12"),
    DAY_TIME: ("{c} > interval '0' day",),
}

KEY_TYPES = frozenset(
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(9,2)",
        "decimal(38,10)",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
ORDERED = KEY_TYPES - {"float", "double", "boolean"}
PANDAS_SAFE = frozenset(["string", "double", "decimal(9,2)", "decimal(38,10)", "date", "binary", "boolean"])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
