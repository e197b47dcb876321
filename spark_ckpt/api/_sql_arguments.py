"""What ``ckpt.sql`` is given beside its text: parameters, as literals of SQL. Driver, no Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.sql_names import string_of
from spark_ckpt.plan.sql_tokens import Token, tokens_of

_ESCAPED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}


def with_arguments(text: str, args: Mapping[str, Any] | Sequence[Any] | None) -> str:
    """``text`` with ``:name`` or ``?`` replaced. Raises ``InvalidInputError`` for one that is not given."""
    if not args:
        return text
    tokens = tokens_of(text)
    places = list(_named(tokens, args) if isinstance(args, Mapping) else _positional(tokens, args))
    for start, end, value in reversed(places):
        text = text[:start] + literal(value) + text[end:]
    return text


def _named(tokens: list[Token], args: Mapping[str, Any]) -> Iterator[tuple[int, int, Any]]:
    for at, (sign, name) in enumerate(pairwise(tokens)):
        path = at > 0 and tokens[at - 1].end == sign.start and tokens[at - 1].kind in ("word", "name")  # json:field
        if sign.text != ":" or name.kind != "word" or name.start != sign.end or path:
            continue
        if name.text not in args:
            raise InvalidInputError(f"[UNBOUND_SQL_PARAMETER] args has no value for :{name.text}")
        yield sign.start, name.end, args[name.text]


def _positional(tokens: list[Token], args: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    marks = [t for t in tokens if t.text == "?"]
    if len(marks) > len(args):
        raise InvalidInputError(f"[UNBOUND_SQL_PARAMETER] the query has {len(marks)} ?, args has {len(args)} values")
    for mark, value in zip(marks, args, strict=False):
        yield mark.start, mark.end, value


def with_identifiers(text: str) -> str:
    """``text`` with the name itself in place of ``IDENTIFIER('name')``."""
    tokens = tokens_of(text)
    for at in reversed(range(len(tokens) - 3)):
        call, begin, name, end = tokens[at : at + 4]
        if call.word("identifier") and begin.text == "(" and name.kind == "string" and end.text == ")":
            text = text[: call.start] + (string_of(name.text) or "") + text[end.end :]
    return text


def without_word_stream(text: str, views: Container[str]) -> str:
    """``FROM STREAM name`` and ``FROM STREAM(name)``, as Spark calls its own streams, without that word."""
    tokens = tokens_of(text)
    for at in reversed(range(1, len(tokens) - 1)):
        if not tokens[at].word("stream") or not (
            tokens[at - 1].word("from", "join") or tokens[at - 1].text in (",", "(")
        ):
            continue
        called = tokens[at + 1].text == "(" and at + 3 < len(tokens) and tokens[at + 3].text == ")"
        name = tokens[at + 2 if called else at + 1]
        if name.is_name and name.name.lower() in views:
            text = text[: tokens[at].start] + name.text + text[tokens[at + 3].end if called else name.end :]
    return text


def literal(value: Any) -> str:
    """``value`` in SQL. Raises ``InvalidInputError`` for what has no short form there."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, str):
        return "'" + "".join(_ESCAPED.get(c, c) for c in value) + "'"
    if isinstance(value, int):
        return f"CAST({value} AS INT)" if value == -(2**31) else f"({value}{'' if abs(value) < 2**31 else 'L'})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"({value:f}BD)"
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    return f"array({', '.join(map(literal, value))})" if isinstance(value, list) else _of_time(value)


def _of_time(value: Any) -> str:
    if isinstance(value, dt.datetime):
        # Without a zone it is of this process's clock, as PySpark's are, and not of the session's.
        return f"TIMESTAMP_LTZ'{value.astimezone(dt.timezone.utc).isoformat(' ')}'"
    if isinstance(value, dt.date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        seconds = abs(value) % dt.timedelta(days=1)
        micros = f"{seconds.microseconds:06}"
        minutes = f"{seconds.seconds // 3600:02}:{seconds.seconds // 60 % 60:02}:{seconds.seconds % 60:02}"
        sign = "-" if value < dt.timedelta(0) else ""
        return f"INTERVAL '{sign}{abs(value).days} {minutes}.{micros}' DAY TO SECOND"
    if isinstance(value, dt.time):
        return f"TIME'{value.isoformat()}'"
    raise InvalidInputError(
        "a parameter of SQL: expected a text, number, boolean, date, time or duration, bytes, or a list of these, "
        f"found {value!r}"
    )
