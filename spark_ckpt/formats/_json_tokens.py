"""JSON token by token, as the parser that Spark uses: what comes behind an error is read from where that parser stands.

A record that is broken in its middle gives Spark the fields that its parser finds before and after the damage. So not
only what is JSON matters here, but also how far the parser has got when it gives up, and which token it then stands on.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.formats._json_scanner import (
    END_ARRAY,
    END_OBJECT,
    NAME,
    START_ARRAY,
    START_OBJECT,
    JsonError,
    Scanner,
)

ROOT, OBJECT, ARRAY = "root", "object", "array"
_STARTS, _ENDS = (START_OBJECT, START_ARRAY), (END_OBJECT, END_ARRAY)
_MOST_DEPTH = 1000


@dataclass
class _Scope:
    kind: str
    values: int = 0
    name: str | None = None


class Tokens(Scanner):
    """Of ``text``, from :func:`utf16`. ``token`` is the one that it stands on, None ahead of the first and behind the
    last; ``start`` is where that began."""

    def __init__(self, text: str, of_bytes: bool = False, of_hive: bool = False) -> None:
        super().__init__(text, of_bytes, of_hive)
        self.token: str | None = None
        self.start = 0
        self._behind_name: str | None = None
        self._scopes = [_Scope(ROOT)]

    def next(self) -> str | None:
        """Raises ``JsonError``, and may be called again then."""
        if self.token is NAME:
            return self._after_name()
        if self.unread:
            self.unread = False
            if self.cut_character:
                self.cut_character = False
                raise JsonError(f"half of a character, at character {self.at}")
            self.string_text = self.read_string('"')
        char = self.past_blanks()
        if not char:
            if len(self._scopes) > 1:
                raise JsonError(f"the text ends within an {self._scopes[-1].kind}")
            self.token = None
            return None
        if char in "]}":
            return self._close(char)
        return self._open(char)

    def name(self) -> str | None:
        """Of the member that this token belongs to."""
        scopes = self._scopes
        return scopes[-2].name if self.token in _STARTS and len(scopes) > 1 else scopes[-1].name

    def in_root(self) -> bool:
        return self._scopes[-1].kind is ROOT

    def string(self) -> str:
        """Of a token TEXT."""
        if self.unread:
            self.unread = False
            self.string_text = self.read_string('"')
        return self.string_text

    def skip_children(self) -> None:
        """Past the end of the object or array that begins here; nothing for other tokens."""
        depth = 1 if self.token in _STARTS else 0
        while depth:
            token = self.next()
            if token is None:
                if len(self._scopes) > 1:
                    raise JsonError(f"the text ends within an {self._scopes[-1].kind}")
                return
            depth += (token in _STARTS) - (token in _ENDS)

    def _after_name(self) -> str | None:
        found, self._behind_name = self._behind_name, None  # None behind a value that was no JSON
        if found in _STARTS:
            self._enter(found)
        self.token = found
        return found

    def _enter(self, token: str | None) -> None:
        self._scopes.append(_Scope(OBJECT if token is START_OBJECT else ARRAY))
        if len(self._scopes) > _MOST_DEPTH + 1:
            raise JsonError(f"values within values, more than {_MOST_DEPTH} deep")

    def _open(self, char: str) -> str | None:
        scope = self._scopes[-1]
        scope.values += 1
        if scope.kind is not ROOT and scope.values > 1:
            char = self.past_comma(char)
        named = scope.kind is OBJECT
        if named:
            scope.name = self.quoted_name(char)
            self.token = NAME
            char = self.past_colon()
        self.start = self.at - 1
        found = self.value(char)
        if named:
            self._behind_name = found
            return NAME
        if found in _STARTS:
            self._enter(found)
        self.token = found
        return found

    def _close(self, char: str) -> str:
        self.start = self.at - 1
        if self._scopes[-1].kind is not (ARRAY if char == "]" else OBJECT):
            raise JsonError(f"'{char}' closes nothing, at character {self.at}")
        self._scopes.pop()
        self.token = END_ARRAY if char == "]" else END_OBJECT
        return self.token
