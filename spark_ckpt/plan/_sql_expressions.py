"""Expressions in SQL as trees of Spark Connect's client, which has no parser. Driver, no Spark.

Names, literals, operators by Spark's precedence, predicates, CASE, CAST and calls are read, and nothing else. Whoever
uses a tree asks Spark whether it is the same as the text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._condition_text import Token, tokens_of

Expression = Any
_LEVELS = (
    {"=": "=", "==": "=", "<=>": "<=>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<>": "!=", "!=": "!="},
    {"|": "|"},
    {"^": "^"},
    {"&": "&"},
    {"+": "+", "-": "-", "||": "concat"},
    {"*": "*", "/": "/", "%": "%", "div": "div"},
)
"""What binds loosest first."""
_NO_NAMES = {
    "and", "or", "not", "in", "is", "between", "like", "rlike", "regexp", "ilike", "as", "when", "then", "else", "end",
    "from", "div", "escape", "case", "distinct", "select", "exists", "collate",
}  # fmt: skip
_PREDICATES = {"rlike": "rlike", "regexp": "rlike", "like": "like"}
_UNARY = {"-": "negative", "+": "positive", "~": "~"}
_TRIMS = {"both": "trim", "leading": "ltrim", "trailing": "rtrim"}
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_NUMBER = re.compile(r"(\d+)(\.\d*)?([eE][+-]?\d+)?([a-zA-Z]*)")
_UNITS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_WHOLE = {"y": (T.ByteType(), 7), "s": (T.ShortType(), 15), "l": (T.LongType(), 63)}


class Interval(E.SQLExpression):  # type: ignore[misc]
    """An interval of ``micros``, whose type of Spark's only the text tells."""

    def __init__(self, text: str, micros: int) -> None:
        super().__init__(text)
        self.micros = micros


class _NotReadError(Exception):
    pass


def read(text: str, zone: str) -> Expression | None:
    """``text`` as a tree, with an alias if it has one; None if it is something else. ``zone``: of its moments."""
    tokens = tokens_of(text)
    if not tokens:
        return None
    try:
        return _Reader(text, tokens, zone).whole()
    except (_NotReadError, ValueError):
        return None


def _call(name: str, *args: Expression) -> Expression:
    return E.UnresolvedFunction(name, list(args))


class _Reader:
    def __init__(self, text: str, tokens: list[Token], zone: str) -> None:
        self._text, self._tokens, self._zone, self._at = text, tokens, zone, 0

    def whole(self) -> Expression:
        found = self._named()
        if self._at < len(self._tokens):
            raise _NotReadError
        return found

    # -- tokens ------------------------------------------------------------------------------------------------

    def _next(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _is(self, *texts: str) -> bool:
        token = self._next()
        return token is not None and token.kind in ("word", "op") and token.text.lower() in texts

    def _take(self) -> Token:
        token = self._next()
        if token is None:
            raise _NotReadError
        self._at += 1
        return token

    def _taken(self, *texts: str) -> str | None:
        return self._take().text.lower() if self._is(*texts) else None

    def _must(self, text: str) -> None:
        if not self._taken(text):
            raise _NotReadError

    # -- what binds loosest first ------------------------------------------------------------------------------

    def _named(self) -> Expression:
        found = self._expression()
        token = self._next()
        if self._taken("as") or (token is not None and self._is_name(token)):
            return E.ColumnAlias(found, [self._name()], None)
        return found

    def _expression(self) -> Expression:
        return self._folded(lambda: self._folded(self._negated, "and"), "or")

    def _folded(self, part: Callable[[], Expression], word: str) -> Expression:
        found = part()
        while self._taken(word):
            found = _call(word, found, part())
        return found

    def _negated(self) -> Expression:
        return _call("not", self._negated()) if self._taken("not", "!") else self._predicate()

    def _predicate(self) -> Expression:
        value = self._binary(0)
        if self._taken("is"):
            return self._is_what(value)
        negated = self._taken("not")
        if self._taken("between"):
            low = self._binary(0)
            self._must("and")
            found = _call("between", value, low, self._binary(0))
        elif self._taken("in"):
            self._must("(")
            found = _call("in", value, *self._several(self._expression))
        elif self._is(*_PREDICATES):
            found = _call(_PREDICATES[self._take().text.lower()], value, self._binary(0))
        elif negated:
            raise _NotReadError
        else:
            return value
        return _call("not", found) if negated else found

    def _is_what(self, value: Expression) -> Expression:
        negated = bool(self._taken("not"))
        if self._taken("null"):
            return _call("isnotnull" if negated else "isnull", value)
        if self._taken("distinct"):
            self._must("from")
            same, negated = _call("<=>", value, self._binary(0)), not negated
        elif self._is("true", "false"):
            same = _call("<=>", value, E.LiteralExpression._from_value(self._take().text.lower() == "true"))
        else:
            raise _NotReadError
        return _call("not", same) if negated else same

    def _binary(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._unary()
        found, operators = self._binary(level + 1), _LEVELS[level]
        while self._is(*operators):
            name = operators[self._take().text.lower()]
            other = self._binary(level + 1)
            found = _call("not", _call("=", found, other)) if name == "!=" else _call(name, found, other)
        return found

    def _unary(self) -> Expression:
        sign = self._taken(*_UNARY)
        token = self._next()
        if sign == "-" and token is not None and token.kind == "number":
            return self._behind(_number(self._take().text, -1))
        return self._behind(self._primary()) if sign is None else _call(_UNARY[sign], self._unary())

    def _behind(self, value: Expression) -> Expression:
        """Fields, elements and casts."""
        while self._is(".", "[", "::"):
            sign = self._take().text
            if sign == ".":
                value = E.UnresolvedExtractValue(value, E.LiteralExpression._from_value(self._name()))
            elif sign == "[":
                value = E.UnresolvedExtractValue(value, self._binary(0))
                self._must("]")
            else:
                value = E.CastExpression(value, self._type())
        return value

    def _primary(self) -> Expression:
        token = self._take()
        if token.text == "(":
            found = self._expression()
            self._must(")")
            return found
        if token.kind == "number":
            return _number(token.text, 1)
        if token.kind == "string":
            return E.LiteralExpression._from_value(_unescaped(token.text))
        if token.kind == "word" and self._is("("):
            return self._called(token)
        following = self._next()
        if token.word("date", "timestamp", "interval") and following and following.kind in ("string", "number"):
            return self._of_time(token)
        if token.word("case"):
            return self._case()
        if token.word("null", "true", "false"):
            return E.LiteralExpression._from_value({"true": True, "false": False}.get(token.text.lower()))
        if not self._is_name(token):
            raise _NotReadError
        names = [token.text]
        while self._is("."):
            self._take()
            names.append(self._take_name().text)
        return E.ColumnReference(".".join(names))

    def _is_name(self, token: Token) -> bool:
        return token.kind == "name" or (token.kind == "word" and token.text.lower() not in _NO_NAMES)

    def _take_name(self) -> Token:
        token = self._take()
        if not self._is_name(token):
            raise _NotReadError
        return token

    def _name(self) -> str:
        text = self._take_name().text
        return text[1:-1].replace("``", "`") if text.startswith("`") else text

    def _called(self, token: Token) -> Expression:
        name = token.text.lower()
        self._must("(")
        if name in ("cast", "try_cast"):
            value = self._expression()
            self._must("as")
            found = E.CastExpression(value, self._type(), "try" if name == "try_cast" else None)
            self._must(")")
            return found
        side = self._taken(*_TRIMS) if name == "trim" else None
        if side:
            what = self._expression()
            self._must("from")
            return _call(_TRIMS[side], what, *self._several(self._expression))
        distinct = bool(self._taken("distinct"))
        args = self._several(self._named if name == "struct" else self._argument)
        return E.UnresolvedFunction(name, args, distinct)

    def _argument(self) -> Expression:
        return E.UnresolvedStar(None) if self._taken("*") else self._expression()

    def _several(self, part: Callable[[], Expression]) -> list[Expression]:
        """Up to the parenthesis that closes them."""
        if self._taken(")"):
            return []
        found = [part()]
        while self._taken(","):
            found.append(part())
        self._must(")")
        return found

    def _type(self) -> str:
        """``decimal(10, 2)``; types with types in them are left to Spark."""
        first = self._take()
        if first.kind != "word" or self._is("<"):
            raise _NotReadError
        end = first.end
        if self._taken("("):
            while not self._is(")"):
                self._take()
            end = self._take().end
        return self._text[first.start : end]

    def _case(self) -> Expression:
        value = None if self._is("when") else self._expression()
        parts: list[Expression] = []
        while self._taken("when"):
            condition = self._expression()
            self._must("then")
            parts += [condition if value is None else _call("=", value, condition), self._expression()]
        parts += [self._expression()] if self._taken("else") else []
        self._must("end")
        return _call("when", *parts)

    def _of_time(self, token: Token) -> Expression:
        value = self._take()
        text = _unescaped(value.text) if value.kind == "string" else value.text
        if token.word("date"):
            return E.LiteralExpression(dt.date.fromisoformat(text), T.DateType())
        if token.word("timestamp"):
            return self._moment(text)
        unit = self._take()
        if not re.fullmatch(r"-?\d{1,9}", text) or unit.text.lower() not in _UNITS or self._is("to") or self._literal():
            raise _NotReadError
        return Interval(self._text[token.start : unit.end], int(text) * _UNITS[unit.text.lower()] * 1_000_000)

    def _literal(self) -> bool:
        """Whether an interval goes on."""
        token = self._next()
        return token is not None and token.kind in ("number", "string")

    def _moment(self, text: str) -> Expression:
        """Of the session's clock, without a zone of its own."""
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            raise _NotReadError
        made = E.LiteralExpression(None, T.TimestampType())
        since = moment.replace(tzinfo=ZoneInfo(self._zone)) - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
        made._value = since // dt.timedelta(microseconds=1)
        return made


def _number(text: str, sign: int) -> Expression:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise _NotReadError
    whole, fraction, exponent, suffix = found.groups()
    end = suffix.lower()
    if end in ("d", "f"):
        return E.LiteralExpression(sign * float(text[:-1]), T.DoubleType() if end == "d" else T.FloatType())
    if exponent and not end:
        return E.LiteralExpression(sign * float(text), T.DoubleType())
    if end in _WHOLE and not fraction and not exponent:
        kind, bits = _WHOLE[end]
        return E.LiteralExpression(_within(sign * int(whole), bits), kind)
    if end not in ("", "bd") or (end and exponent):
        raise _NotReadError
    return _exact(sign, whole, (fraction or "")[1:], bool(fraction) or bool(end))


def _exact(sign: int, whole: str, fraction: str, is_decimal: bool) -> Expression:
    value = sign * int(whole)
    if not is_decimal and -(2**63) <= value < 2**63:
        return E.LiteralExpression._from_value(value)
    exact = Decimal(f"{whole}.{fraction}" if fraction else whole) * sign
    digits = max(len((whole + fraction).lstrip("0")), len(fraction), 1)
    return E.LiteralExpression(exact, T.DecimalType(digits, len(fraction)))


def _within(value: int, bits: int) -> int:
    if not -(2**bits) <= value < 2**bits:
        raise _NotReadError
    return value


def _unescaped(text: str) -> str:
    quote, inner = text[0], text[1:-1]
    if quote * 2 in inner.replace("\\" + quote, ""):
        raise _NotReadError  # depends on a setting

    def meant(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPED:
            raise _NotReadError
        return _ESCAPED[found[1]]

    return re.sub(r"\\(.)", meant, inner, flags=re.DOTALL)
