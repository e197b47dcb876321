"""Random CSV for random schemas and options of Spark's reader: as it should be, nearly, and broken."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

VALUES = {
    "int": ["1", "-7", "2147483647", "2147483648", "+5", "007", "0x1F", "-0", "12"],
    "bigint": ["1", "9223372036854775808", "-9223372036854775808", "123456789012"],
    "smallint": ["1", "300", "70000"],
    "tinyint": ["1", "200"],
    "double": ["1.5", "-0.0", "1e3", "NaN", "Inf", "nan", "1e400", "-.5", "5.", "1d", "0x1p3", "infinity", "1e-400"],
    "float": ["0.1", "16777217", "3.5e38", "1e-46", "NaN"],
    "boolean": ["true", "FALSE", "True", "tRue", "1", "false"],
    "decimal(10,2)": ["1.5", "1234567.891", "123456789.5", "-3", "12345678", "+1", "1e2", " 1.5", "1,2"],
    "timestamp": ["2020-01-01 10:00:00", "2020-01-01T10:00:00Z", "2020-01-01", "2020-01-01 10:00:00.5"],
    "timestamp_ntz": ["2020-01-01 10:00:00", "2020-01-01T10:00:00Z"],
    "date": ["2020-01-02", "2020-1-2", "2020-02-30", "0000-01-01", "1582-10-10", "9999-12-31", " 2020-01-01"],
    "string": ["a", "é", "a, b", " x ", 'say "hi"', "C:\\dir", "x\\", "NA", "'q'", "#c", "", " ", "😀"],
    "binary": ["ab", "é"],
}  # fmt: skip
OPTIONS = {
    "escape": ['"', "", "|"], "nullValue": ["NA", "-"], "emptyValue": ["E", "NA"], "comment": ["#", "1"],
    "ignoreLeadingWhiteSpace": ["true"], "sep": [";", "\t"], "header": ["true"], "nanValue": ["1.5"],
    "quote": ["'", ""],
    "mode": ["DROPMALFORMED"], "dateFormat": ["dd/MM/yyyy"], "timestampFormat": ["yyyy-MM-dd HH:mm"],
}  # fmt: skip
NOT_UTF8 = (b"\xff", b"\xe9x", b"\xed\xa0\x80", b"\xc3")
_IN_QUOTES = ("string", "binary", "decimal(10,2)", "int", "date")


@dataclass
class CsvWriter:
    """A file and how to read it. ``clean``: most of it is as Spark writes it."""

    random: Random
    clean: bool = field(init=False)
    options: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        r = self.random
        self.clean = r.randrange(3) == 0
        self.options = {name: r.choice(values) for name, values in OPTIONS.items() if r.randrange(6) == 0}
        self.kinds = [r.choice(list(VALUES)) for _ in range(r.randint(1, 6))]
        self.sep = self.options.get("sep", ",")

    def schema(self) -> str:
        fields = [f"c{n} {kind}" for n, kind in enumerate(self.kinds)]
        if self.random.randrange(2):
            fields.insert(self.random.randint(0, len(fields)), "_corrupt_record string")
        return ", ".join(fields)

    def file(self, count: int) -> bytes:
        r = self.random
        lines = [self.sep.join(self.value(kind) for kind in self.kinds) for _ in range(count)]
        for n in range(0, 0 if self.clean else count, 5):
            lines[n] = self.broken(lines[n])
        if "header" in self.options:
            lines.insert(0, self.sep.join(f"c{n}" for n in range(len(self.kinds))))
        data = r.choice(["\n", "\n", "\r\n", "\r"]).join(lines).encode()
        return data if self.clean or r.randrange(3) else data.replace("é".encode(), r.choice(NOT_UTF8))

    def broken(self, line: str) -> str:
        sep = self.sep
        ends = (sep + "x", sep, "\\", self.options.get("quote", '"'), " ")
        return self.random.choice([*(line + end for end in ends), line.rsplit(sep, 1)[0], "x", "", "   ", "#" + line])

    def value(self, kind: str) -> str:
        r = self.random
        if r.randrange(10) == 0:
            return "" if self.clean else r.choice(["", '""', "NA"])
        if not self.clean and r.randrange(12) == 0:
            kind = r.choice(list(VALUES))
        text = r.choice(VALUES[kind][:3] if self.clean else VALUES[kind])
        if kind in _IN_QUOTES and (self.sep in text or r.randrange(4) == 0):
            return self.quoted(text)
        return r.choice(" \t") + text if not self.clean and r.randrange(30) == 0 else text

    def quoted(self, text: str) -> str:
        r = self.random
        how = 0 if self.clean else r.randrange(8)
        if how < 5:
            return '"' + text.replace('"', "" if self.clean else self.options.get("escape", "\\") + '"') + '"'
        if how == 5:
            return '"' + text.replace('"', '""') + '"'
        end = "" if how == 6 else '"' + r.choice(["", " ", "x"])
        return r.choice(["", " ", "x", '"']) * (how == 7) + '"' + text + end
