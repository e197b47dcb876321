"""Expressions in SQL as trees of Spark Connect's client, which has no parser. Driver, no Spark.

Names, literals, operators by Spark's precedence, predicates, CASE, CAST and calls are read, and nothing else. Whoever
uses a tree asks Spark whether it is the same as the text.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._sql_literals import Interval, micros, moment, number
from spark_ckpt.plan._sql_tokens import NotReadError, Token, tokens_of, unescaped

Expression = Any
LEVELS = (
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


def read(text: str, zone: str) -> Expression | None:
    """``text`` as a tree, with an alias if it has one; None if it is something else. ``zone``: of its moments."""
    tokens = tokens_of(text)
    if not tokens:
        return None
    try:
        return Reader(text, tokens, zone).whole()
    except (NotReadError, ValueError):
        return None


def _call(name: str, *args: Expression) -> Expression:
    return E.UnresolvedFunction(name, list(args))


@dataclass(frozen=True)
class Piece:
    """What was read from some of the tokens."""

    tree: Expression
    begin: int
    end: int


class Reader:
    def __init__(self, text: str, tokens: list[Token], zone: str) -> None:
        self._text, self._tokens, self._zone, self._at = text, tokens, zone, 0
        self._made: dict[int, tuple[Expression, str, tuple[Piece, ...]]] = {}
        """By the identity of a tree: the operator at its top and what it takes."""

    def whole(self) -> Expression:
        found = self._named()
        if self._at < len(self._tokens):
            raise NotReadError
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
            raise NotReadError
        self._at += 1
        return token

    def _taken(self, *texts: str) -> str | None:
        return self._take().text.lower() if self._is(*texts) else None

    def _must(self, text: str) -> None:
        if not self._taken(text):
            raise NotReadError

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
        found = self._piece(part)
        while self._taken(word):
            found = self._operator(word, found, self._piece(part))
        return found.tree

    def _piece(self, part: Callable[[], Expression]) -> Piece:
        begin = self._at
        return Piece(part(), begin, self._at)

    def _operator(self, name: str, *pieces: Piece) -> Piece:
        trees = [piece.tree for piece in pieces]
        tree = _call("not", _call("=", *trees)) if name == "!=" else _call(name, *trees)
        self._made[id(tree)] = tree, name, pieces
        return Piece(tree, pieces[0].begin, self._at)

    def _negated(self) -> Expression:
        if self._taken("not", "!"):
            return self._operator("not", self._piece(self._negated)).tree
        return self._predicate()

    def _predicate(self) -> Expression:
        value = self._piece(self._operand)
        if self._taken("is"):
            return self._is_what(value.tree)
        negated = self._taken("not")
        if self._taken("between"):
            low = self._piece(self._operand)
            self._must("and")
            found = self._operator("between", value, low, self._piece(self._operand)).tree
        elif self._taken("in"):
            self._must("(")
            found = _call("in", value.tree, *self._several(self._expression))
        elif self._is(*_PREDICATES):
            found = _call(_PREDICATES[self._take().text.lower()], value.tree, self._operand())
        elif negated:
            raise NotReadError
        else:
            return value.tree
        return _call("not", found) if negated else found

    def _is_what(self, value: Expression) -> Expression:
        negated = bool(self._taken("not"))
        if self._taken("null"):
            return _call("isnotnull" if negated else "isnull", value)
        if self._taken("distinct"):
            self._must("from")
            same, negated = _call("<=>", value, self._operand()), not negated
        elif self._is("true", "false"):
            same = _call("<=>", value, E.LiteralExpression._from_value(self._take().text.lower() == "true"))
        else:
            raise NotReadError
        return _call("not", same) if negated else same

    def _operand(self) -> Expression:
        return self._binary(0)

    def _binary(self, level: int) -> Expression:
        if level == len(LEVELS):
            return self._unary()
        operators = LEVELS[level]
        found = self._piece(lambda: self._binary(level + 1))
        while self._is(*operators):
            name = operators[self._take().text.lower()]
            found = self._operator(name, found, self._piece(lambda: self._binary(level + 1)))
        return found.tree

    def _unary(self) -> Expression:
        sign = self._taken(*_UNARY)
        token = self._next()
        if sign == "-" and token is not None and token.kind == "number":
            return self._behind(number(self._take().text, -1))
        return self._behind(self._primary()) if sign is None else _call(_UNARY[sign], self._unary())

    def _behind(self, value: Expression) -> Expression:
        """Fields, elements and casts."""
        while self._is(".", "[", "::"):
            sign = self._take().text
            if sign == ".":
                value = E.UnresolvedExtractValue(value, E.LiteralExpression._from_value(self._take_field().name))
            elif sign == "[":
                value = E.UnresolvedExtractValue(value, self._operand())
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
            return number(token.text, 1)
        if token.kind == "string":
            return E.LiteralExpression._from_value(unescaped(token.text))
        if token.kind == "word" and self._is("("):
            return self._called(token)
        if token.word("date", "timestamp") and self._is_value(self._at):
            return self._of_day(token)
        if token.word("interval") and self._is_length():
            return self._interval(token)
        if token.word("case"):
            return self._case()
        if token.word("null", "true", "false"):
            return E.LiteralExpression._from_value({"true": True, "false": False}.get(token.text.lower()))
        if not self._is_name(token):
            raise NotReadError
        names = [token.text]
        while self._is("."):
            self._take()
            names.append(self._take_field().text)
        return E.ColumnReference(".".join(names))

    def _is_name(self, token: Token) -> bool:
        return token.kind == "name" or (token.kind == "word" and token.text.lower() not in _NO_NAMES)

    def _take_name(self) -> Token:
        token = self._take()
        if not self._is_name(token):
            raise NotReadError
        return token

    def _take_field(self) -> Token:
        """Behind a dot, where every word is a name, ``window.end`` among them."""
        token = self._take()
        if token.kind not in ("name", "word"):
            raise NotReadError
        return token

    def _name(self) -> str:
        return self._take_name().name

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
            raise NotReadError
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

    def _is_value(self, at: int) -> bool:
        return at < len(self._tokens) and self._tokens[at].kind in ("string", "number")

    def _of_day(self, token: Token) -> Expression:
        text = unescaped(self._take().text)
        if token.word("date"):
            return E.LiteralExpression(dt.date.fromisoformat(text), T.DateType())
        return moment(text, self._zone)

    def _is_length(self) -> bool:
        """Whether a number of units comes, as it does in an interval."""
        at = self._at + self._is("+", "-")
        return self._is_value(at) and at + 1 < len(self._tokens) and self._tokens[at + 1].kind == "word"

    def _interval(self, token: Token) -> Expression:
        total = 0
        while self._is_length():
            sign, value = self._taken("+", "-"), self._take()
            text = unescaped(value.text) if value.kind == "string" else value.text
            unit = self._take()
            total += micros(text, unit.text) * (-1 if sign == "-" else 1)
        if self._is("to"):
            raise NotReadError
        return Interval(self._text[token.start : unit.end], total)
