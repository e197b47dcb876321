"""Random JSON for a schema: valid, nearly valid, and broken in the middle."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

NUMBERS = (
    "0", "1", "-1", "-0", "-0.0", "5", "127", "200", "-129", "255", "256", "32768", "2147483648", "1.0", "1.10", "0.1",
    "1e2", "1E+3", "1e400", "-1e-400", "1e", "1.", "1.e5", "0.x", "1.x", "01", "-", "-x", "+1", ".5", "NaN", "Infinity",
    "-INF", "+INF", "-Infinity", "Nan", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890",
    "16777217", "1e22", "2e23", "12345678.9", "0.001", "0.0001", "3.4028236e38", "1.17549435e-38", "1.235", "-1.235",
    "99999999.995", "0e0", "1e5x", "0ex", "-0x", "12a", "1578313578",
)  # fmt: skip
TEXTS = (
    "", "x", "a\\nb", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\x", "\\u12", "\\'", "it's", "é", "😀", "\\\"", "a\tb",
    "NaN", "Infinity", "+INF", "1", "1.5", "1,234.5", "true", "2020-01-02", "2020-1-2", "2020-01", "2020-13-01", "5",
    "-800000", "2020-01-01T10:00:00Z", "2020-01-01T10:00:00.123456+02:00", "2020-01-01 10:00:00", "2020-01-01T10:00",
    "2021-03-28 02:30:00", "2020-01-01T00:00:00GMT+1", "GMT2020-01-01", "2020-01-01 10:00:00 Europe/Paris",
    " 2020-01-01 ",
    "02/01/2020 10:00", "20200102", "1e3", " 7", "\u2028", "\x7f", "{}", "aGk=",
)  # fmt: skip
ODD = ("tru", "true", "false", "null", "nul", "nullx", "x", "'a'", "'a\"b'", "[]", "{}", "[1,2]",
       '["a",{"b":1}]', '{"x":1,"y":[2.50,"\\ud83d\\ude00é\\u0001"]}', "[1,x]", '{"x":tru}',
       '{"x":1', "[", "@", "é", "'", '"', ",", "}", "]")  # fmt: skip
DAMAGE = (
    '"',
    "'",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "\\",
    " ",
    "\n",
    "x",
    "tru",
    "1",
    "é",
    "😀",
    "/",
    "\x00",
    "-",
    ".",
    "e",
)


class JsonWriter:
    """``harm``: of how many values one is not of its type."""

    def __init__(self, random: Random, harm: int = 6) -> None:
        self.random, self.harm = random, harm

    def record(self, kind: pa.DataType) -> str:
        r = self.random
        text = self.value(kind)
        for _ in range(r.choice([0, 0, 0, 0, 0, 1, 1, 2])):
            text = self.damaged(text)
        return r.choice(["", "", "", " ", "\t"]) + text + r.choice(["", "", "", " ", " x", "}", ",{}"])

    def value(self, kind: pa.DataType) -> str:
        r = self.random
        if r.randrange(self.harm) == 0:
            return r.choice([*ODD, r.choice(NUMBERS), f'"{r.choice(TEXTS)}"'])
        if pt.is_struct(kind):
            return self.members(kind)
        if pt.is_map(kind):
            return (
                "{" + ",".join(f'"{r.choice("abc")}":{self.value(kind.item_type)}' for _ in range(r.randrange(3))) + "}"
            )
        if pt.is_list(kind):
            return "[" + ", ".join(self.value(kind.value_type) for _ in range(r.randrange(4))) + "]"
        return self.plain(kind)

    def members(self, kind: Any) -> str:
        r = self.random
        fields = r.sample(list(kind), r.randint(0, kind.num_fields))
        if fields and r.randrange(8) == 0:
            fields.append(r.choice(fields))
        members = [f'"{f.name}"{r.choice([":", ":", " : "])}{self.value(f.type)}' for f in fields]
        if r.randrange(5) == 0:
            members.insert(r.randint(0, len(members)), f'"{r.choice(["other", "I", ""])}":{self.value(pa.string())}')
        return "{" + r.choice([",", ",", ", ", ",\n"]).join(members) + "}"

    def plain(self, kind: pa.DataType) -> str:
        r = self.random
        if r.randrange(12) == 0:
            return "null"
        if pt.is_boolean(kind):
            return r.choice(["true", "false"])
        if pt.is_integer(kind):
            return str(r.randint(-(2 ** r.choice([3, 7, 20])), 2 ** r.choice([3, 7, 20])))
        if pt.is_floating(kind) or pt.is_decimal(kind):
            return r.choice([f"{r.uniform(-1000, 1000):.{r.randrange(7)}f}", r.choice(NUMBERS[:20])])
        if pt.is_date(kind):
            return r.choice(['"2020-01-02"', '"1999-12-31"'])
        if pt.is_timestamp(kind):
            return r.choice(['"2020-01-01T10:00:00Z"', '"2020-01-01 10:00:00.5"', '"2020-06-01T10:00:00+02:00"', "17"])
        return f'"{r.choice(TEXTS)}"'

    def damaged(self, text: str) -> str:
        r = self.random
        if not text:
            return text
        at = r.randrange(len(text))
        return r.choice([
            text[:at], text[:at] + text[at + 1 :], text[:at] + r.choice(DAMAGE) + text[at:],
            text[:at] + r.choice(DAMAGE) + text[at + 1 :], text[:at] + r.choice(ODD) + text[at + 1 :],
        ])  # fmt: skip
