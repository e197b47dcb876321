"""SQL texts of expressions, taken apart where that is certain. Driver, no Spark.

Spark Connect's client has no parser. Operators, calls and literals are found by Spark's precedence; what is between
them stays text, which the server reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

Expression = Any

_TOKENS = re.compile(
    r"(?P<space>\s+)|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)|(?P<word>[^\W\d]\w*)"
    r"|(?P<op><=>|->|<=|>=|<>|!=|==|\|\||::|<<|>>|[<>=+\-*/%&|^~!().,\[\]:])",
    re.DOTALL,
)
_ENDS = {"(": ")", "[": "]", "case": "end"}
_COMPARISONS = {"=": "=", "==": "=", "<=>": "<=>", "<>": "!=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PREDICATES = ("in", "like", "ilike", "rlike", "regexp", "is", "not", "similar", "escape")
_NUMBER = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?")
_STRING = re.compile(r"'([^'\\]*)'")
_CONSTANTS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    @property
    def is_name(self) -> bool:
        """Whether it may be one: keywords are words, too."""
        return self.kind in ("word", "name")

    @property
    def ends_operand(self) -> bool:
        """Whether a sign behind it has it as its left side."""
        return (self.kind != "op" or self.text in (")", "]")) and not self.word("interval", "div", "case", "between")


def taken_apart(text: str) -> tuple[str, list[str]] | None:
    """The operator at the top of ``text``, and the texts of what it takes: ``and``, ``or``, ``not``, ``between``, an
    arithmetic one or a comparison. None for whatever else it is, or if that is not certain."""
    return _apart(text, _bare(_tokens(text)))


def read(text: str, asked: re.Pattern[str]) -> Expression | None:
    """``text`` as a tree in which the calls that ``asked`` finds are nodes; None if nothing is found. Whether the tree
    is the text, the server has to be asked."""
    found = _Reader(asked).tree(text)
    return None if isinstance(found, E.SQLExpression) else found


def _tokens(text: str) -> list[_Token]:
    """None of them for what is not understood, as comments. ``CASE ... END`` is as deep as parentheses."""
    found: list[_Token] = []
    ends: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or text.startswith(("--", "/*"), at):
            return []
        kind, part, at = str(match.lastgroup), match.group(), match.end()
        if kind == "space":
            continue
        sign = part.lower() if kind == "op" or (kind == "word" and not (found and found[-1].text == ".")) else ""
        if ends and sign == ends[-1]:
            ends.pop()
        elif sign in (")", "]"):
            return []
        found.append(_Token(kind, part, match.start(), match.end(), len(ends)))
        if sign in _ENDS:
            ends.append(_ENDS[sign])
    return [] if ends else found


def _top(tokens: Sequence[_Token]) -> Iterator[int]:
    """The places of those in no parentheses, and in no interval: ``interval -1 hour +2 minutes`` has no sign."""
    at = 0
    while at < len(tokens):
        if tokens[at].depth == tokens[0].depth:
            yield at
        at += 1
        if tokens[at - 1].word("interval"):
            while length := _length_at(tokens, at):
                at += length


def _length_at(tokens: Sequence[_Token], at: int) -> int:
    """How many tokens a number and its unit have that begin there."""
    sign = int(at < len(tokens) and tokens[at].text in ("+", "-"))
    pair = tokens[at + sign : at + sign + 2]
    is_length = len(pair) == 2 and pair[0].kind in ("number", "string") and pair[1].kind == "word"
    return 2 + sign if is_length and not pair[1].word("and", "or") else 0


def _bare(tokens: list[_Token]) -> list[_Token]:
    """Without parentheses around all of it."""
    while len(tokens) > 2 and tokens[0].text == "(" and list(_top(tokens)) == [0, len(tokens) - 1]:
        inner = tokens[1:-1]
        if inner[0].word("select", "with", "values", "from", "table") or any(inner[i].text == "," for i in _top(inner)):
            return tokens
        tokens = inner
    return tokens


def _apart(text: str, tokens: list[_Token]) -> tuple[str, list[str]] | None:
    found = _split(tokens)
    if found is None or not all(found[1]):
        return None
    return found[0], [text[part[0].start : part[-1].end] for part in found[1]]


def _split(tokens: list[_Token]) -> tuple[str, list[list[_Token]]] | None:
    """By the operator that binds least. Those of one strength are taken from the left."""
    top = list(_top(tokens))
    for word, places in (("or", [i for i in top if tokens[i].word("or")]), ("and", _ands(tokens, top))):
        if places:
            return word, [tokens[: places[-1]], tokens[places[-1] + 1 :]]
    if tokens and (tokens[0].word("not") or tokens[0].text == "!"):
        return "not", [tokens[1:]]
    if any(tokens[i].word(*_PREDICATES) for i in top):
        return None
    between = [i for i in top if tokens[i].word("between")]
    if between:
        return _between(tokens, top, between[0])
    return _binary(tokens, top)


def _ands(tokens: list[_Token], top: list[int]) -> list[int]:
    """Those that are no part of ``BETWEEN``."""
    found, open_ = [], 0
    for i in top:
        if tokens[i].word("between"):
            open_ += 1
        elif tokens[i].word("and") and open_:
            open_ -= 1
        elif tokens[i].word("and"):
            found.append(i)
    return found


def _between(tokens: list[_Token], top: list[int], at: int) -> tuple[str, list[list[_Token]]] | None:
    ends = [i for i in top if i > at and tokens[i].word("and")]
    if len(ends) != 1:
        return None
    return "between", [tokens[:at], tokens[at + 1 : ends[0]], tokens[ends[0] + 1 :]]


def _binary(tokens: list[_Token], top: list[int]) -> tuple[str, list[list[_Token]]] | None:
    signs = [i for i in top if i and tokens[i].kind == "op" and tokens[i - 1].ends_operand]
    signs += [i for i in top if i and tokens[i].word("div")]
    for level in (_COMPARISONS, ("|", "^", "&", "<<", ">>", "->"), ("+", "-", "||"), ("*", "/", "%", "div")):
        places = [i for i in sorted(signs) if tokens[i].text.lower() in level]
        if places:
            sign = tokens[places[-1]].text
            known = _COMPARISONS.get(sign, sign if sign in "+-*/%" else None)
            return None if known is None else (known, [tokens[: places[-1]], tokens[places[-1] + 1 :]])
    return None


class _Reader:
    def __init__(self, asked: re.Pattern[str]) -> None:
        self._asked = asked

    def tree(self, text: str) -> Expression:
        tokens = _bare(_tokens(text))
        if not tokens:
            return E.SQLExpression(text)
        alias = self._aliased(text, tokens) or _literal(tokens)
        if alias is not None:
            return alias
        if not self._asked.search(text):
            return E.SQLExpression(text)
        found = _apart(text, tokens)
        if found is None:
            return self._called(text, tokens)
        name, parts = found
        made = E.UnresolvedFunction("=" if name == "!=" else name, [self.tree(part) for part in parts])
        return E.UnresolvedFunction("not", [made]) if name == "!=" else made

    def _aliased(self, text: str, tokens: list[_Token]) -> Expression | None:
        """``value AS name``, or ``f(...) name``."""
        last = tokens[-1]
        if len(tokens) < 3 or not last.is_name or last.word("end") or last.depth != tokens[0].depth:
            return None
        given = tokens[:-2] if tokens[-2].word("as") else tokens[:-1] if tokens[-2].text == ")" else []
        if not given:
            return None
        name = last.text[1:-1].replace("``", "`") if last.kind == "name" else last.text
        return E.ColumnAlias(self.tree(text[given[0].start : given[-1].end]), [name], None)

    def _called(self, text: str, tokens: list[_Token]) -> Expression:
        """``f(...)``, and fields of it."""
        if len(tokens) > 3 and tokens[-2].text == "." and tokens[-1].kind == "word" and tokens[-3].text == ")":
            field = E.LiteralExpression._from_value(tokens[-1].text)
            return E.UnresolvedExtractValue(self.tree(text[tokens[0].start : tokens[-3].end]), field)
        is_call = len(tokens) > 2 and tokens[0].kind == "word" and list(_top(tokens)) == [0, 1, len(tokens) - 1]
        if not is_call or tokens[1].text != "(" or tokens[0].word("case", "exists"):
            return E.SQLExpression(text[tokens[0].start : tokens[-1].end])
        inner = tokens[2:-1]
        distinct = bool(inner) and inner[0].word("distinct")
        args = [self.tree(text[arg[0].start : arg[-1].end]) for arg in _arguments(inner[distinct:]) if arg]
        return E.UnresolvedFunction(tokens[0].text.lower(), args, distinct)


def _arguments(tokens: list[_Token]) -> Iterator[list[_Token]]:
    begin = 0
    for i in [*(i for i in _top(tokens) if tokens[i].text == ","), len(tokens)]:
        yield tokens[begin:i]
        begin = i + 1


def _literal(tokens: list[_Token]) -> Expression | None:
    """Or a star, or a name."""
    text = "".join(token.text for token in tokens)
    if text == "*":
        return E.UnresolvedStar(None)
    if len(tokens) == 1 and text.lower() in _CONSTANTS:
        return E.LiteralExpression._from_value(_CONSTANTS[text.lower()])
    if string := _STRING.fullmatch(text):
        return E.LiteralExpression._from_value(string[1])
    number = _NUMBER.fullmatch(text)
    if number is not None and number[2] is None:
        return E.LiteralExpression._from_value(int(text))
    if number is not None:
        digits, scale = (number[1] + number[2]).lstrip("0"), len(number[2])
        return E.LiteralExpression(Decimal(text), T.DecimalType(max(len(digits), scale), scale))
    is_path = all(t.is_name if i % 2 == 0 else t.text == "." for i, t in enumerate(tokens)) and len(tokens) % 2
    return E.ColumnReference(text) if is_path else None
