"""Globs of paths and of file names by Hadoop's rules, on any fsspec file system. Driver and executors.

Hadoop makes a regular expression of RE2 of a glob, part by part of the path, and so does this module: first the same
text as Hadoop's ``GlobPattern``, then one of Python's with the same meaning. Braces that hold a slash are written out
before, as by ``GlobExpander``. Held against both by ``tests/sources/test_globs.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from spark_ckpt.sources._local_folders import passed_over

_SPECIAL = frozenset("{}[]*?\\")
_URL_HOST = re.compile(r"[a-zA-Z0-9+.-]+://[^/]*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class GlobError(ValueError):
    """Why a text is no glob."""


def is_glob(path: str) -> bool:
    """Whether Spark looks for what matches ``path``, instead of taking it as it is."""
    return not _SPECIAL.isdisjoint(path)


class NameGlob:
    """A glob for one name without slashes. Raises :class:`GlobError`."""

    def __init__(self, glob: str) -> None:
        self._glob = glob
        text, self.has_wildcard = _re2(glob)
        self._pattern = _python(text)

    def matches(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None

    @property
    def literal(self) -> str:
        """The name, of a glob without wildcards."""
        return _ESCAPED.sub(r"\1", self._glob)


class PathGlob:
    """A glob for paths, as they are on a file system: without a scheme. Raises :class:`GlobError`."""

    def __init__(self, glob: str) -> None:
        self._alternatives = [_parts(text) for text in _without_slashes_in_braces(glob)]

    def paths(self, fs: Any, local: bool) -> list[str]:
        """What is there now, sorted. Of a literal last part it is not looked whether it is there."""
        found: set[str] = set()
        for root, names in self._alternatives:
            found.update(_found(fs, local, root, names))
        return sorted(found)


# --- on a file system -----------------------------------------------------------------------------------------------


def _found(fs: Any, local: bool, root: str, names: list[NameGlob]) -> list[str]:
    paths = [root]
    for i, name in enumerate(names):
        if name.has_wildcard:
            inner = i < len(names) - 1
            paths = [p for path in paths for p in _matching(fs, local, path, name, inner)]
        else:
            paths = [_joined(path, name.literal) for path in paths]
    return paths


def _matching(fs: Any, local: bool, folder: str, name: NameGlob, only_folders: bool) -> Iterator[str]:
    for child, is_folder in _local_children(folder) if local else _children(fs, folder):
        if (is_folder or not only_folders) and name.matches(child):
            yield _joined(folder, child)


def _local_children(folder: str) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as found:
            yield from ((item.name, _is_folder(item)) for item in found)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        passed_over(folder, error)


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:  # such as a link in a circle
        return False


def _children(fs: Any, folder: str) -> Iterator[tuple[str, bool]]:
    try:
        found = fs.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    for info in found:
        above, _, name = info["name"].rstrip("/").rpartition("/")
        if name and above.strip("/") == folder.strip("/"):  # a file is listed as itself
            yield name, info["type"] == "directory"


def _joined(folder: str, name: str) -> str:
    return f"{folder}{name}" if folder.endswith("/") or not folder else f"{folder}/{name}"


def _parts(glob: str) -> tuple[str, list[NameGlob]]:
    """The root, which is a bucket or container where there are any, and a glob for each name below."""
    host = _URL_HOST.match(glob)
    root = host[0] if host else "/" if glob.startswith("/") else ""
    names = [part for part in glob[len(root) :].split("/") if part]
    if not root and names:
        root = _ESCAPED.sub(r"\1", names.pop(0))
    return root, [NameGlob(name) for name in names]


# --- braces that hold slashes -----------------------------------------------------------------------------------------


def _without_slashes_in_braces(glob: str) -> list[str]:
    done, open_ = [], [(glob, 0)]
    while open_:
        text, at = open_.pop(0)
        first = _first_with_slash(text, at)
        if first is None:
            done.append(text)
        else:
            inside, behind = _alternatives(text, first)
            open_[:0] = [(f"{text[:first]}{one}{behind}", first) for one in inside]
    return done


def _first_with_slash(text: str, at: int) -> int | None:
    """Where the first outer brace opens that is closed, and behind whose opening or before is a slash in braces."""
    depth, first, has_slash = 0, None, False
    for i, c in _letters(text, at):
        if c == "{":
            first = i if depth == 0 else first
            depth += 1
        elif c == "}" and depth:
            depth -= 1
            if depth == 0 and has_slash:
                return first
        elif c == "/" and depth:
            has_slash = True
    return None


def _alternatives(text: str, at: int) -> tuple[list[str], str]:
    """What is between the commas of the brace that opens at ``at``, and the text behind it. As in Hadoop, what a
    backslash protects in there is not protected any more."""
    parts, depth = [""], 0
    for i, c in _letters(text, at):
        if c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return parts, text[i + 1 :]
        if c == "," and depth == 1:
            parts.append("")
        elif (c, depth) != ("{", 1):
            parts[-1] += c[-1]
    raise GlobError("a brace '{' is not closed")


def _letters(text: str, at: int) -> Iterator[tuple[int, str]]:
    """Each letter with its place; one that is escaped together with its backslash."""
    while at < len(text):
        size = 2 if text[at] == "\\" else 1
        if at + size > len(text):
            raise GlobError("nothing follows the last backslash")
        yield at, text[at : at + size]
        at += size


# --- from a glob to a regular expression of RE2 -----------------------------------------------------------------------

_AS_LITERAL = {c: f"\\{c}" for c in ".$()|+"}
_WILD = {"*": ".*", "?": ".", "{": "(?:", "[": "["}


def _re2(glob: str) -> tuple[str, bool]:
    """Hadoop's text, and whether the glob has wildcards."""
    parts: list[str] = []
    in_class, depth, wild = False, 0, False
    for i, c in _letters(glob, 0):
        wild |= c in _WILD
        if c == "[" and in_class:
            raise GlobError("a class '[' is not closed")
        if c == "{":
            depth += 1
        if (c, depth > 0) == ("}", True):
            depth -= 1
            parts.append(")")
        elif (c, depth > 0) == (",", True):
            parts.append("|")
        elif c == "^" and not in_class:
            parts.append("\\^")
        elif c == "!" and in_class and glob[i - 1] == "[":
            parts.append("^")
        else:
            parts.append(_AS_LITERAL.get(c) or _WILD.get(c) or c)
        in_class = (in_class or c == "[") and c != "]"
    if in_class:
        raise GlobError("a class '[' is not closed")
    if depth:
        raise GlobError("a brace '{' is not closed")
    return "".join(parts), wild


# --- from RE2 to Python -----------------------------------------------------------------------------------------------


def _python(text: str) -> re.Pattern[str]:
    parts: list[str] = []
    depth, at = 0, 0
    while at < len(text):
        size, part = _read(text, at)
        depth += {"(?:": 1, ")": -1}.get(part, 0)
        if depth < 0:
            raise GlobError("a brace '}' closes none")
        if (part, parts[-1:]) != (".*", [".*"]):  # many stars would be tried in many ways
            parts.append(part)
        at += size
    if depth:
        raise GlobError("a brace '{' is not closed")
    return re.compile("".join(parts), re.DOTALL)


def _read(text: str, at: int) -> tuple[int, str]:
    for part in ("(?:", ".*", ".", "|", ")"):
        if text.startswith(part, at):
            return len(part), part
    if text[at] == "[":
        return _class(text, at)
    size, letter = _letter(text, at)
    return size, re.escape(letter)


def _letter(text: str, at: int) -> tuple[int, str]:
    if text[at] != "\\":
        return 1, text[at]
    letter = text[at + 1]
    if letter.isalnum() or not letter.isascii():
        raise GlobError(f"a backslash in front of {letter!r} means something else than the letter; leave it out")
    return 2, letter


def _class(text: str, start: int) -> tuple[int, str]:
    """A class; a ``]`` that stands first in it is a letter, and so is ``-`` where it makes no range."""
    at = first = start + (2 if text.startswith("[^", start) else 1)
    members: list[str] = []
    while at == first or text[at : at + 1] != "]":
        if at >= len(text):
            raise GlobError("a class '[' is not closed")
        if text.startswith("[:", at):
            raise GlobError("a class '[' holds '[:', which means a class by name; write \\[")
        size, low = _letter(text, at)
        at, high = at + size, low
        if text[at : at + 1] == "-" and at + 1 < len(text) and text[at + 1] != "]":
            size, high = _letter(text, at + 1)
            at += 1 + size
        if high < low:
            raise GlobError(f"the range {low}-{high} is upside down")
        members.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
    return at + 1 - start, f"[{'^' * (first - start - 1)}{''.join(members)}]"
