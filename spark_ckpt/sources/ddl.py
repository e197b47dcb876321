"""Spark's DDL schema strings ("id long, name string") without a session.

``DataSource.schema()`` may return one, and Spark parses it in the JVM; a reader that wraps the source has no JVM at
hand. Interval types and column defaults are left out.
"""

from __future__ import annotations

import re

from pyspark.sql import types

from spark_ckpt.errors import ConfigError

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<word>[^\s,:<>()`'\"]+)|(?P<sign>[,:<>()]))"
)

_SIMPLE: dict[str, type[types.DataType]] = {
    "boolean": types.BooleanType,
    "tinyint": types.ByteType,
    "byte": types.ByteType,
    "smallint": types.ShortType,
    "short": types.ShortType,
    "int": types.IntegerType,
    "integer": types.IntegerType,
    "bigint": types.LongType,
    "long": types.LongType,
    "float": types.FloatType,
    "real": types.FloatType,
    "double": types.DoubleType,
    "date": types.DateType,
    "timestamp": types.TimestampType,
    "timestamp_ltz": types.TimestampType,
    "timestamp_ntz": types.TimestampNTZType,
    "string": types.StringType,
    "binary": types.BinaryType,
    "void": types.NullType,
    "variant": types.VariantType,
}


def parse_ddl(ddl: str) -> types.StructType:
    """The schema ``ddl`` stands for. Raises ``ConfigError`` showing the place where it stops making sense."""
    parser = _Parser(ddl)
    if re.match(r"\s*struct\s*<", ddl, re.IGNORECASE):
        schema = parser.data_type()
    else:
        schema = types.StructType(parser.fields(end=""))
    parser.expect("")
    assert isinstance(schema, types.StructType)
    return schema


class _Parser:
    """Recursive descent over the tokens of one DDL string."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = self._split(ddl)
        self._next = 0

    def _split(self, ddl: str) -> list[str]:
        tokens, at = [], 0
        while ddl[at:].strip():
            match = _TOKEN.match(ddl, at)
            if match is None:
                raise self._error(ddl[at:])
            tokens.append(match.group().strip())
            at = match.end()
        return tokens

    def fields(self, end: str) -> list[types.StructField]:
        found = []
        while self._peek() != end:
            found.append(self._field())
            if self._peek() != end:
                self.expect(",")
        return found

    def data_type(self) -> types.DataType:
        word = self._take().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word in ("decimal", "dec", "numeric"):
            return types.DecimalType(*(self._numbers() or [10, 0]))
        if word in ("char", "character"):
            return types.CharType(*self._numbers())
        if word == "varchar":
            return types.VarcharType(*self._numbers())
        if word in ("array", "map", "struct"):
            return self._nested(word)
        raise self._error(word)

    def expect(self, token: str) -> None:
        found = self._take() if token else self._peek()
        if found != token:
            raise self._error(found)

    def _nested(self, word: str) -> types.DataType:
        self.expect("<")
        if word == "array":
            nested: types.DataType = types.ArrayType(self.data_type())
        elif word == "map":
            key = self.data_type()
            self.expect(",")
            nested = types.MapType(key, self.data_type())
        else:
            nested = types.StructType(self.fields(end=">"))
        self.expect(">")
        return nested

    def _field(self) -> types.StructField:
        name = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif name[0] in "'\",:<>()":
            raise self._error(name)
        if self._peek() == ":":
            self._take()
        kind, nullable, metadata = self.data_type(), True, {}
        while self._peek().lower() in ("not", "comment"):
            if self._take().lower() == "comment":
                metadata["comment"] = self._take()[1:-1]
            elif self._take().lower() == "null":
                nullable = False
        return types.StructField(name, kind, nullable, metadata or None)

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        self._take()
        numbers = [self._number()]
        while self._peek() == ",":
            self._take()
            numbers.append(self._number())
        self.expect(")")
        return numbers

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise self._error(token)
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        if not token:
            raise self._error("its end")
        self._next += 1
        return token

    def _error(self, found: str) -> ConfigError:
        return ConfigError(
            f"cannot read the source's schema '{self._ddl}' at '{found}': expected columns such as 'id long, name "
            "string'; give the schema as a StructType with .schema(...)"
        )
