"""A record of CSV into the texts of its values, as the parser that Spark uses divides it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NONE = "\x00"
_LINE_END = "\n"
_COMMENT = "#"
"""Where none is given, the parser still has this one."""
_BLANKS = "".join(map(chr, range(33)))


@dataclass(frozen=True)
class CsvForm:
    """How values are told apart. An empty ``quote``, ``escape`` or ``comment``: there is none."""

    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    escape_of_escape: str | None = None
    """In front of an escape; None: ``escape`` itself, unless it is the quote."""
    comment: str = ""
    null_value: str = ""
    """What a value of which nothing is written counts as."""
    empty_value: str = ""
    """What stands for a value of nothing in quotes."""
    trim_left: bool = False
    trim_right: bool = False


class _EndError(Exception):
    """The text ends. Internal."""


class CsvSplitter:
    """Values of one record after another. Not for several threads at a time.

    What Spark's parser makes of quotes that are not closed, or closed too early, depends on the character that it
    stands on and the one before, so these two are kept.
    """

    def __init__(self, form: CsvForm) -> None:
        self.form = form
        self._sep, self._quote, self._escape = form.sep, form.quote or _NONE, form.escape or _NONE
        same = self._escape == self._quote
        self._escape2 = form.escape_of_escape or (_NONE if same else self._escape)
        self._stops = (form.sep, _LINE_END)
        self._unquoted = re.compile(f"[^{re.escape(form.sep)}\n]*")
        self._inside = re.compile("[^" + re.escape(self._quote + self._escape + self._escape2) + "]*")

    def values(self, text: str) -> list[str]:
        """Of ``text``, a record without its line end."""
        return self.record(text, 0)[0]

    def record(self, text: str, at: int) -> tuple[list[str], int, bool]:
        """The values of the record that begins at ``at``, where it ends, and whether a line end says so, behind which
        that is. Nothing of it: no values."""
        self._text, self._at = text, at
        self._ch, self._prev, self._odd, self._trim = _NONE, _NONE, False, False
        self._value: list[str] = []
        found: list[str] = []
        try:
            self._next()
            ended = self._read(found)
        except _EndError:
            ended = False
            self._take_last(found, len(text) > at)
        return found, self._at, ended

    def _read(self, found: list[str]) -> bool:
        while self._ch != _LINE_END:
            if self.form.trim_left:
                self._past_blanks()
            if self._ch in self._stops:
                found.append(self.form.null_value)
            else:
                self._odd, self._prev = False, _NONE
                if self._ch != self._quote:
                    found.append(self._plain())
                elif (text := self._well_quoted()) is not None:
                    found.append(text or self.form.empty_value)
                    if self._ch == self._sep and self._at == len(self._text):
                        found.append(self.form.null_value)
                        return False
                else:
                    self._trim = False
                    self._quoted()
                    self._take(found)
            if self._ch != _LINE_END:
                self._next()
                if self._ch == _LINE_END:
                    found.append(self.form.null_value)
        return True

    def _next(self) -> None:
        if self._at >= len(self._text):
            raise _EndError
        self._ch = self._text[self._at]
        self._at += 1

    def _past_blanks(self) -> None:
        char = self._ch
        while char <= " " and char not in (self._sep, self._quote, _LINE_END):
            if self._at >= len(self._text):
                raise _EndError
            char = self._text[self._at]
            self._at += 1
        self._ch = char

    def _plain(self) -> str:
        begin = self._at - 1
        end = self._unquoted.match(self._text, begin).end()  # type: ignore[union-attr]
        text = self._text[begin:end]
        if end == len(self._text):
            self._trim, self._at, self._value = self.form.trim_right, end, [text]
            raise _EndError
        self._at, self._ch = end + 1, self._text[end]
        return (_trimmed(text) if self.form.trim_right else text) or self.form.null_value

    def _well_quoted(self) -> str | None:
        """A value in quotes in which nothing is escaped, and behind which the next one, or the next record, begins."""
        end = self._text.find(self._quote, self._at)
        text, behind = self._text[self._at : end], self._text[end + 1 : end + 2]
        if end < 0 or not behind or behind not in self._stops or "\n" in text:
            return None
        if self._escape in text and (text[-1] == self._escape or self._escape + self._escape2 in text):
            return None
        if not text and self._escape == self._quote:
            return None
        self._at, self._ch = end + 2, behind
        return text

    def _quoted(self) -> None:
        self._next()
        while not (self._prev == self._quote and (self._ch <= " " or self._ch in self._stops)):
            if self._ch in (self._quote, self._escape):
                self._escaped()
                self._forward()
                if self._odd and self._ch in self._stops:
                    return
                continue
            if self._prev == self._quote:  # it was none that closes
                self._odd = True
                self._value += [self._quote, self._ch]
                self._as_it_is()
                return
            if self._prev == self._escape != _NONE:
                self._value.append(self._escape)
            self._until(self._inside)
            self._forward()
        self._behind_quotes()

    def _behind_quotes(self) -> None:
        if self._ch in self._stops:
            return
        blanks = []
        while True:
            blanks.append(self._ch)
            self._next()
            if self._ch in self._stops:
                return
            if self._ch > " ":
                break
        self._value += [self._quote, *blanks, self._ch]
        self._prev = self._ch
        self._as_it_is()

    def _as_it_is(self) -> None:
        """There is more behind quotes: all of it is the value, up to what separates, with its quotes."""
        self._prev = self._ch
        self._value.insert(0, self._quote)
        self._next()
        self._trim = self.form.trim_right
        self._until(self._unquoted)

    def _escaped(self) -> None:
        """On a quote or an escape."""
        if self._ch == self._escape and self._prev == self._escape2 != _NONE:
            self._value.append(self._escape)
            self._ch = _NONE
        elif self._prev == self._escape:
            if self._ch == self._quote:
                self._value.append(self._quote)
                self._ch = _NONE
            else:
                self._value.append(self._prev)
        elif self._prev == self._quote:
            self._value.append(self._quote)
            if self._ch != self._quote:
                self._prev = self._ch
                self._unquoted_rest()

    def _unquoted_rest(self) -> None:
        """An escape stands behind quotes."""
        while self._ch not in self._stops:
            if self._ch in (self._quote, self._escape):
                self._escaped()
            elif self._prev == self._quote:
                self._value.append(self._quote)
                self._prev = self._ch
                continue
            else:
                self._value.append(self._ch)
            self._forward()

    def _forward(self) -> None:
        self._prev = self._ch
        self._next()

    def _until(self, those: re.Pattern[str]) -> None:
        """Takes ``those`` characters, from the one it stands on, if it is one of them."""
        begin = self._at - 1
        end = those.match(self._text, begin).end()  # type: ignore[union-attr]
        self._value.append(self._text[begin:end])
        self._at = end
        if end > begin:
            self._next()
        else:
            self._at = begin + 1

    def _take(self, found: list[str]) -> None:
        text = "".join(self._value)
        found.append((_trimmed(text) if self._trim else text) or self.form.empty_value)
        self._value = []

    def _take_last(self, found: list[str], begun: bool) -> None:
        """The text has ended in the middle of a record, as the last one, and each that is by itself, does."""
        there = self._ch == self._quote == self._prev
        if not there:
            if self._ch == self._quote and not self._odd:
                self._value.append(self._quote)
            there = self._prev != _NONE and self._ch not in (*self._stops, self.form.comment or _COMMENT)
        if there or "".join(self._value):
            self._take(found)
        elif begun:
            found.append(self.form.null_value)


def _trimmed(text: str) -> str:
    return text.rstrip(_BLANKS)
