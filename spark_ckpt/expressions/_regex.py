"""Java's regular expressions, as far as Python's mean the same; others are refused. Driver and executor."""

from __future__ import annotations

import re
from functools import lru_cache

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_CLASSES = {
    "d": "0-9", "w": "a-zA-Z_0-9", "s": " \\t\\n\\x0b\\f\\r", "t": "\\t", "n": "\\n", "r": "\\r", "f": "\\f",
}  # fmt: skip
_NEGATED = {"D": "d", "W": "w", "S": "s"}
_REPEATED = re.compile(r"\{\d{1,3}(,\d{0,3})?\}")
_TERMINATOR = "(?:\\r\\n|[\\n\\r\\u0085\\u2028\\u2029])?\\Z"
_END = f"(?={_TERMINATOR})(?<!\\r(?=\\n))"
"""In front of the last line's end, too, but not inside of one of two characters."""


class UnsureError(ValueError):
    """What is in the pattern that may mean something else."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Raises :class:`UnsureError`."""
    ignoring = pattern.startswith("(?i)")
    reader = _Reader(pattern[4 * ignoring :])
    text = reader.alternatives()
    if reader.rest():
        raise UnsureError("an unbalanced parenthesis")
    return re.compile(text, re.ASCII | (re.IGNORECASE if ignoring else 0))


def literal(pattern: str) -> str | None:
    """The text that ``pattern`` stands for, if it is one."""
    match = re.fullmatch(r"(?:[^\\\[\](){}.*+?^$|]|\\[^a-zA-Z0-9]|\[[^\\\[\]^&-]\])*", pattern, re.DOTALL)
    if match is None:
        return None
    return re.sub(r"\\(.)|\[(.)\]", lambda m: m[1] or m[2], pattern, flags=re.DOTALL)


class _Reader:
    """Reads a pattern of Java's and writes one of Python's."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        if any("\ud800" <= c <= "\udfff" for c in pattern):
            raise UnsureError("half a character")

    def rest(self) -> str:
        return self._pattern[self._at :]

    def _take(self, size: int = 1) -> str:
        found = self._pattern[self._at : self._at + size]
        if len(found) < size:
            raise UnsureError("an end in the middle")
        self._at += size
        return found

    def alternatives(self) -> str:
        parts = [self._sequence()]
        while self.rest().startswith("|"):
            self._take()
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        parts = []
        while self.rest() and self.rest()[0] not in "|)":
            parts.append(self._repeated(self._atom()))
        return "".join(parts)

    def _atom(self) -> str:
        c = self._take()
        if c == "(":
            return self._group()
        if c == "[":
            return self._class()
        if c == "\\":
            return self._escaped()
        if c == ".":
            return f"[^{_LINE_ENDS}]"
        if c == "^":
            return "\\A"
        if c == "$":
            return _END
        if c in "*+?{":
            raise UnsureError(f"{c} without anything to repeat")
        return re.escape(c)

    def _group(self) -> str:
        opening = "("
        if self.rest().startswith("?:"):
            opening += self._take(2)
        elif self.rest().startswith("?"):
            raise UnsureError("(?")
        inside = self.alternatives()
        if self._take() != ")":
            raise UnsureError("an unbalanced parenthesis")
        return f"{opening}{inside})"

    def _escaped(self) -> str:
        c = self._take()
        if c in _NEGATED:
            return f"[^{_CLASSES[_NEGATED[c]]}]"
        if c in _CLASSES:
            return f"[{_CLASSES[c]}]"
        if c.isascii() and not c.isalnum():
            return re.escape(c)
        raise UnsureError(f"\\{c}")

    def _class(self) -> str:
        negated = self.rest().startswith("^")
        self._take(int(negated))
        parts: list[str] = []
        while not self.rest().startswith("]"):
            parts.append(self._member())
        self._take()
        if not parts:
            raise UnsureError("an empty class")
        return f"[{'^' * negated}{''.join(parts)}]"

    def _member(self) -> str:
        first = self._one()
        if len(first) == 1 and self.rest().startswith("-") and not self.rest().startswith("-]"):
            self._take()
            last = self._one()
            if len(last) != 1 or last < first:
                raise UnsureError("a range")
            return f"{re.escape(first)}-{re.escape(last)}"
        return re.escape(first) if len(first) == 1 else first

    def _one(self) -> str:
        """A letter, or several as Python writes them in a class."""
        c = self._take()
        if c in "[&^":
            raise UnsureError(f"{c} in a class")
        if c != "\\":
            return c
        c = self._take()
        if c in _CLASSES:
            return _CLASSES[c]
        if c.isascii() and not c.isalnum():
            return c
        raise UnsureError(f"\\{c} in a class")

    def _repeated(self, atom: str) -> str:
        rest = self.rest()
        counted = _REPEATED.match(rest)
        if rest[:1] not in ("*", "+", "?") and not counted:
            return atom
        if atom in ("\\A", _END):
            raise UnsureError("a repeated place")
        # What a group has found after several rounds, or after an empty one, is told in other ways.
        empty = re.compile(atom, re.ASCII).fullmatch("") is not None
        if atom.startswith("(") and (empty or (_has_group(atom) and rest[0] != "?")):
            raise UnsureError("a repeated group that captures or may be empty")
        sign = self._take(len(counted[0]) if counted else 1)
        if self.rest()[:1] == "?":
            sign += self._take()
        elif self.rest()[:1] in ("+", "*", "{"):
            raise UnsureError("a possessive repetition")
        return atom + sign


def _has_group(atom: str) -> bool:
    return re.compile(atom).groups > 0


def replacement(text: str, groups: int) -> str | None:
    """Of Java's with ``$1``, one of Python's; None if it is not sure to be the same."""
    parts = re.split(r"\$(\d)(?!\d)", text)
    if any("$" in part or "\\" in part for part in parts[::2]) or any(int(n) > groups for n in parts[1::2]):
        return None
    return "".join(part if i % 2 == 0 else f"\\g<{part}>" for i, part in enumerate(parts))
