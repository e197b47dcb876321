"""Whether a text has a match of a pattern of ``java.util.regex``, for options that Spark gives to Java. Driver.

Patterns come from options, which no Spark can evaluate here: more is read than :mod:`_regex` reads for functions, as
nobody asks what a group has found. What Java refuses, and what Python may take otherwise, is refused by name. Held
against Java by ``tests/sources/test_java_regex.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_ckpt.expressions._regex import _END, UnsureError, _Reader

__all__ = ["Searcher", "UnsureError", "searcher"]

_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "XDigit": "0-9a-fA-F",
    "ASCII": "\\x00-\\x7f", "Cntrl": "\\x00-\\x1f\\x7f", "Blank": " \\t", "Space": " \\t\\n\\x0b\\f\\r",
    "Punct": "!-/:-@\\[-`{-~", "Graph": "!-~", "Print": " -~",
}  # fmt: skip
_PLACES = {"A": "\\A", "z": "\\Z", "Z": _END}
_WORD_EDGES = {"b": "\\b", "B": "\\B"}
_WRITTEN = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))|\\.|[^\\]|\\\Z", re.DOTALL)
_SIGNS = re.compile(r"[ -/:-@\[-`{-~]")
_OPENING = re.compile(r"\?(?:[:=!]|<[=!]|i:|<([a-zA-Z][a-zA-Z0-9]*)>)")
_NAMED = re.compile(r"([pP])\{(\w*)\}")


@dataclass(frozen=True)
class Searcher:
    """A pattern of Java's, and Python's for it."""

    java: str
    python: re.Pattern[str]

    def finds(self, text: str) -> bool:
        """As ``Matcher.find``."""
        return self.python.search(text) is not None


def searcher(pattern: str, ascii_texts: bool = False) -> Searcher:
    """``ascii_texts``: no other letters are in any text that is searched. Raises :class:`UnsureError`, which says what
    of ``pattern`` is refused."""
    ignoring = pattern.startswith("(?i)")
    reader = _Whether(_WRITTEN.sub(_plain, pattern[4 * ignoring :]), ascii_texts)
    try:
        text = reader.alternatives()
        if reader.rest():
            raise UnsureError("an unbalanced parenthesis")
        return Searcher(pattern, re.compile(text, re.ASCII | (re.IGNORECASE if ignoring else 0)))
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsureError(str(error)) from None


def _plain(found: re.Match[str]) -> str:
    """Letters in quotes or by their codes, each with a backslash if it is a sign."""
    quoted, *codes = found.groups()
    text = quoted if quoted is not None else "".join(chr(int(code, 16)) for code in codes if code)
    return _SIGNS.sub(r"\\\g<0>", text) if quoted is not None or any(codes) else found[0]


class _Whether(_Reader):
    """Groups capture nothing here."""

    def __init__(self, pattern: str, ascii_texts: bool) -> None:
        super().__init__(pattern)
        self._places = {**_PLACES, **(_WORD_EDGES if ascii_texts else {})}
        self._names: set[str] = set()
        self._with_places: set[str] = {"\\A", _END, *self._places.values()}
        """Atoms that are places, which take no letter, or hold one: Java and Python repeat those in other ways."""

    # -- outside of classes --------------------------------------------------------------------------------------------

    def _group(self) -> str:
        opening = self._opening()
        inside = self.alternatives()
        holds = opening not in ("(?:", "(?i:") or any(place in inside for place in self._with_places)
        if self._take() != ")":
            raise UnsureError("an unbalanced parenthesis")
        if holds:
            self._with_places.add(f"{opening}{inside})")
        return f"{opening}{inside})"

    def _opening(self) -> str:
        if not self.rest().startswith("?"):
            return "(?:"
        found = _OPENING.match(self.rest())
        if found is None:
            raise UnsureError(f"({self.rest()[:3]}")
        self._take(len(found[0]))
        if found[1] is None:
            return f"({found[0]}"
        if found[1] in self._names:
            raise UnsureError(f"two groups of the name {found[1]}")
        self._names.add(found[1])
        return "(?:"

    def _escaped(self) -> str:
        place = self._places.get(self.rest()[:1])
        if place is not None and not self.rest().startswith("b{"):
            self._take()
            return place
        return self._named_class() or super()._escaped()

    def _named_class(self) -> str | None:
        if self.rest()[:1] not in ("p", "P"):
            return None
        found = _NAMED.match(self.rest())
        if found is None or found[2] not in _POSIX:
            raise UnsureError(f"\\{self.rest()[:20]}")
        self._take(len(found[0]))
        return f"[{'^' * (found[1] == 'P')}{_POSIX[found[2]]}]"

    def _repeated(self, atom: str) -> str:
        sign = self.rest()[:1]
        if sign in ("*", "+", "?", "{") and atom in self._with_places and (sign != "?" or not atom.startswith("(?:")):
            raise UnsureError("a repeated place")
        if sign != "?" or not atom.startswith("("):
            return super()._repeated(atom)
        self._take()  # once or not at all: nothing goes round that may be empty
        lazy = self._take() if self.rest()[:1] == "?" else ""
        if self.rest()[:1] in ("+", "*", "{"):
            raise UnsureError("a possessive repetition")
        return f"{atom}?{lazy}"

    # -- classes -------------------------------------------------------------------------------------------------------

    def _class(self) -> str:
        negated = self.rest().startswith("^")
        self._take(int(negated))
        inside = self._body(first=True)
        self._take()
        if not negated:
            return inside
        plain = inside.startswith("[") and not inside.startswith("[^")
        return f"[^{inside[1:]}" if plain else f"(?:(?!{inside})[\\s\\S])"

    def _body(self, first: bool = False) -> str:
        """What is in a class up to its end, which is left: a union, or one met with what is behind ``&&``. As a class,
        or as a group that takes one letter."""
        members: list[str] = []
        classes: list[str] = []
        while first or not self.rest().startswith("]"):
            if self.rest().startswith("&&"):
                return self._met(_union(members, classes))
            found = self._member()
            (classes if found[0] in "[(" else members).append(found)
            first = False
        return _union(members, classes)

    def _met(self, left: str) -> str:
        """Behind ``&&`` stand classes in brackets, then perhaps a body, which ends with the class."""
        self._take(2)
        right: list[str] = []
        while self.rest().startswith("["):
            right.append(self._member())
        ends = self.rest().startswith("]")
        if not left or (ends and not right) or (self.rest().startswith("&") and not self.rest().startswith("&&")):
            raise UnsureError("&& without a class on both sides")
        if not ends and not self.rest().startswith("&&"):
            right.append(self._body())
        both = f"(?:(?={_union([], right)}){left})"
        return self._met(both) if self.rest().startswith("&&") else both

    def _member(self) -> str:
        """A letter or a range as Python writes it in a class, or a whole class."""
        if self.rest().startswith("["):
            self._take()
            return self._class()
        if self.rest()[:2] in ("\\D", "\\W", "\\S", "\\p", "\\P"):
            self._take()
            return self._escaped()
        first = self._one()
        if len(first) != 1 or not self.rest().startswith("-") or self.rest()[1:2] in ("]", "["):
            return re.escape(first) if len(first) == 1 else first
        self._take()
        last = self._one()
        if len(last) != 1 or last < first:
            raise UnsureError("a range")
        return f"{re.escape(first)}-{re.escape(last)}"

    def _one(self) -> str:
        if self.rest()[:1] in ("&", "^", "["):
            return self._take()
        return super()._one()


def _union(members: list[str], classes: list[str]) -> str:
    """Empty if nothing is in it."""
    parts = ([f"[{''.join(members)}]"] if members else []) + classes
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})" if parts else ""
