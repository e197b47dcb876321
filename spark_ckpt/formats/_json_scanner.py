"""Strings, numbers and words of JSON, and how far Spark's parser has got in them when it gives up."""

from __future__ import annotations

import re
import unicodedata

NAME, TEXT, INTEGER, FLOAT, TRUE, FALSE, NULL = "name", "text", "integer", "float", "true", "false", "null"
START_OBJECT, END_OBJECT, START_ARRAY, END_ARRAY = "{", "}", "[", "]"
_MOST_DIGITS = 1000
MOST_OF_NAME = 50_000
_SHOWN_TOKEN = 256
_BLANKS = re.compile(r"[ \t\n\r]*")
_DIGITS = re.compile(r"[0-9]*")
_PLAIN = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]*") for quote in "\"'"}
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_PAIR, _HALF = re.compile("[\ud800-\udbff][\udc00-\udfff]"), re.compile("[\ud800-\udfff]")
_PARTS = {"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "Mn", "Mc", "Pc", "Sc", "Cf"}


class JsonError(ValueError):
    """The text is no JSON here, or the value does not fit its type."""


def utf16(text: str) -> str:
    """With two characters, a pair of surrogates, for one outside of the basic plane: as Java counts them."""
    if text.isascii():
        return text
    return _ASTRAL.sub(lambda found: _halves(ord(found[0])), text)


def paired(text: str) -> str:
    """``text`` of :func:`utf16` with its pairs as one character; half of a pair alone stays."""
    if text.isascii():
        return text
    return _PAIR.sub(lambda found: chr(0x10000 + (ord(found[0][0]) - 0xD800 << 10) + ord(found[0][1]) - 0xDC00), text)


def whole(text: str) -> str:
    """``text`` of :func:`utf16` as Java writes it: half of a pair alone is a question mark."""
    return text if text.isascii() else _HALF.sub("?", paired(text))


def _halves(code: int) -> str:
    high, low = divmod(code - 0x10000, 0x400)
    return chr(0xD800 + high) + chr(0xDC00 + low)


class Scanner:
    """Reads ``text``, from :func:`utf16`, at ``at``. Whatever raises ``JsonError`` leaves ``at`` where Spark's parser
    would go on."""

    def __init__(self, text: str, of_bytes: bool = False, of_hive: bool = False) -> None:
        self.text, self.at, self.end = text, 0, len(text)
        self.of_hive = of_hive
        """As Spark reads for ``get_json_object``: strings may have control characters in them, NaN is no number."""
        self.of_bytes = of_bytes
        """As Spark reads files: behind a word that is no value its parser has taken one character more."""
        self.number_text = ""
        self.string_text = ""
        self.unread = False
        """The string's end has not been looked for."""
        self.cut_character = False
        """Of the string that is unread, the parser of bytes stands within a character."""

    def in_root(self) -> bool:
        raise NotImplementedError

    def value(self, char: str) -> str:
        if char == '"':
            self.unread = True
            return TEXT
        if char in "{[":
            return START_OBJECT if char == "{" else START_ARRAY
        if char == "t":
            return self._literal("true", TRUE)
        if char == "f":
            return self._literal("false", FALSE)
        if char == "n":
            return self._literal("null", NULL)
        if char == "-" or "0" <= char <= "9":
            return self._number(char)
        return self._odd(char)

    def _odd(self, char: str) -> str:
        if char == "'":
            self.string_text = self.read_string("'")
            return TEXT
        if self.of_hive and char in "NI+":
            raise self._unexpected(char, "a value")
        if char in "NI":
            word = "NaN" if char == "N" else "Infinity"
            self._literal(word, FLOAT)
            self.number_text = word
            return FLOAT
        if char == "+":
            return self._infinite(self._take("a number"), "+")
        if self.of_bytes and char > "\x7f":
            self.at -= char >= "\u0800" or "\u05c0" <= char <= "\u05ff"  # bytes of it are left
        elif _is_part(char) and not _is_digit(char):
            self._refuse_word(1)
        raise self._unexpected(char, "a value")

    def _literal(self, word: str, token: str, matched: int = 1) -> str:
        while matched < len(word):
            if self.at >= self.end or self.text[self.at] != word[matched]:
                self._refuse_word(matched)
            self.at += 1
            matched += 1
        if self.at < self.end and self.text[self.at] >= "0" and _is_part(self.text[self.at]):
            self._refuse_word(matched)
        return token

    def _refuse_word(self, length: int) -> None:
        start = self.at - length
        while self.at < self.end and length < _SHOWN_TOKEN:
            is_part = _is_part(self.text[self.at])
            self.at += is_part or self.of_bytes
            if not is_part:
                break
            length += 1
        raise JsonError(f"expected a value, found {self.text[start : self.at][:40]}")

    def _infinite(self, char: str, sign: str) -> str:
        """Behind a sign that no digit follows."""
        if char == "I" and not self.of_hive:
            char = self._take("a number")
            for letter, word in (("N", "INF"), ("n", "Infinity")):
                if char == letter:
                    self._literal(sign + word, FLOAT, 3)
                    self.number_text = sign + word
                    return FLOAT
        raise self._unexpected(char, "a digit")

    def _number(self, char: str) -> str:
        begin, digits = self.at - 1, self.at - 1
        if char == "-":
            digits = self.at
            first = self.text[digits : digits + 1]
            if first and not "0" <= first <= "9":
                self.at += 1
                return self._odd(first) if first == "." else self._infinite(first, "-")
        behind = _behind_digits(self.text, digits)
        if self.text[digits : digits + 1] in ("", "0") or behind >= self.end:
            return self._number_to_the_end(begin, digits)
        if self.text[behind] in ".eE":
            self.at = behind + 1
            return self._fraction(begin, digits, behind)
        self.at = behind
        return self._made_number(begin, INTEGER)

    def _fraction(self, begin: int, digits: int, at: int) -> str:
        """A number with a point or an exponent. A refused one leaves the parser behind its first sign."""
        text, end = self.text, self.end
        if text[at] == ".":
            behind = _behind_digits(text, at + 1)
            if behind >= end:
                return self._number_to_the_end(begin, digits)
            if behind == at + 1:
                raise self._unexpected(text[behind], "a digit")
            at = behind
        if text[at] in "eE":
            at += 1
            if at < end and text[at] in "+-":
                at += 1
            behind = _behind_digits(text, at)
            if behind >= end:
                return self._number_to_the_end(begin, digits)
            if behind == at:
                raise self._unexpected(text[behind], "a digit")
            at = behind
        self.at = at
        return self._made_number(begin, FLOAT)

    def _number_to_the_end(self, begin: int, digits: int) -> str:
        """One that begins with a zero or may end with the text. A refused one leaves the parser behind what it saw."""
        self.at = digits
        if self._take("a digit") == "0" and self.text[self.at : self.at + 1] in tuple("0123456789"):
            raise JsonError(f"a number with a leading zero, at character {self.at}")
        self.at = _behind_digits(self.text, digits)
        token = INTEGER
        if self.text[self.at : self.at + 1] == ".":
            token = FLOAT
            self.at += 1
            self._require_digits(at_end=True)
        if self.text[self.at : self.at + 1] in ("e", "E"):
            token = FLOAT
            self.at += 1
            if self.text[self.at : self.at + 1] in ("+", "-"):
                self.at += 1
            self._require_digits(at_end=False)
        return self._made_number(begin, token)

    def _require_digits(self, at_end: bool) -> None:
        behind = _behind_digits(self.text, self.at)
        if behind == self.at:
            if self.at < self.end:
                self.at += 1
            raise JsonError(f"expected a digit at character {behind + 1}")
        self.at = behind

    def _made_number(self, begin: int, token: str) -> str:
        self.number_text = self.text[begin : self.at]
        if self.in_root() and self.at < self.end:
            char = self.text[self.at]
            self.at += char != "\r"
            if char not in " \t\r\n":
                raise self._unexpected(char, "a blank")
        if len(self.number_text) > _MOST_DIGITS and sum("0" <= c <= "9" for c in self.number_text) > _MOST_DIGITS:
            raise JsonError(f"a number of more than {_MOST_DIGITS} digits")
        return token

    def quoted_name(self, char: str) -> str:
        if char not in "\"'":
            raise self._unexpected(char, "a name in quotes")
        name = self.read_string(char)
        if len(name) > MOST_OF_NAME:
            raise JsonError(f"a name of more than {MOST_OF_NAME} characters")
        return name

    def read_string(self, quote: str) -> str:
        parts = []
        while True:
            plain = _PLAIN[quote].match(self.text, self.at)
            assert plain is not None
            self.at = plain.end()
            parts.append(plain[0])
            char = self._take("the string's end")
            if char == quote:
                return "".join(parts) if len(parts) > 1 else parts[0]
            if char != "\\" and self.of_hive:
                parts.append(char)
                continue
            if char != "\\":
                raise JsonError(f"a control character in a string, at character {self.at}")
            parts.append(self._escaped())

    def _escaped(self) -> str:
        char = self._take("a character")
        if char != "u":
            if char not in _ESCAPED:
                raise self._unexpected(char, "a character that may be escaped")
            return _ESCAPED[char]
        code = 0
        for _ in range(4):
            digit = self._take("a hexadecimal digit")
            masked = chr(ord(digit) & 0xFF)
            if masked not in "0123456789abcdefABCDEF":
                raise self._unexpected(digit, "a hexadecimal digit")
            code = code << 4 | int(masked, 16)
        return chr(code)

    def take_of_string(self) -> str:
        return self._take("the string's end")

    def escaped(self) -> str:
        """What stands behind a backslash."""
        return self._escaped()

    def past_blanks(self) -> str:
        """The next character that is none, taken; nothing at the end."""
        self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]
        if self.at >= self.end:
            return ""
        char = self.text[self.at]
        self.at += 1
        if char < " " or char == "/":
            raise self._unexpected(char, "a value")
        return char

    def past_comma(self, char: str) -> str:
        if char != ",":
            raise self._unexpected(char, "','")
        return self.past_blanks() or self._ended()

    def past_colon(self) -> str:
        char = self.past_blanks() or self._ended()
        if char != ":":
            raise self._unexpected(char, "':'")
        return self.past_blanks() or self._ended()

    def _take(self, what: str) -> str:
        if self.at >= self.end:
            raise JsonError(f"expected {what}, found the end of the text")
        self.at += 1
        return self.text[self.at - 1]

    def _ended(self) -> str:
        raise JsonError("the text ends within an object or an array")

    def _unexpected(self, char: str, expected: str) -> JsonError:
        return JsonError(f"expected {expected}, found {char!r} at character {self.at}")


def _behind_digits(text: str, at: int) -> int:
    return _DIGITS.match(text, at).end()  # type: ignore[union-attr]


def _is_digit(char: str) -> bool:
    return unicodedata.category(char) in ("Nd", "Mn", "Mc", "Cf", "Cc")


def _is_part(char: str) -> bool:
    """Of a word, for Java."""
    return (
        unicodedata.category(char) in _PARTS or char <= "\x08" or "\x0e" <= char <= "\x1b" or "\x7f" <= char <= "\x9f"
    )
