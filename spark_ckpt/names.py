"""One rule for names that become folders: jobs, and uids of operators, sources and sinks; and a name that is free.

A name is one folder's name on every file system and in every URL, and nothing a path, a URL or a glob would read
differently. Letters and digits of any script, spaces, dots inside and most punctuation are fine. File systems that
ignore case are not looked after: ``Orders`` and ``orders`` are two names.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from spark_ckpt.errors import CkptError, ConfigError

MAX_BYTES = 200  # a folder's name may have 255 bytes, and object stores and ledgers put something around it
_SPECIAL = frozenset('/\\*?"<>|#%^{}[]')  # paths, globs, URLs; delta-rs cannot have ^ in a path
PATH_SPECIAL = "%[]^|\\"
RULE = (
    f'a name of at most {MAX_BYTES} bytes, without / \\ :: * ? " < > | # % ^ {{ }} [ ] and control characters, that '
    "does not begin with a dot and has no blank at either end"
)


def name_problem(name: str) -> str | None:
    """What is wrong with ``name``, in words that follow it; None if nothing is."""
    if not name:
        return "is empty"
    odd = next((c for c in name if not _is_fine(c)), None)
    if odd is not None:
        return f"has the character {odd if odd in _SPECIAL else f'U+{ord(odd):04X}'}"
    if "::" in name:
        return "has two colons in a row"  # with them, fsspec chains file systems
    if name[0] == ".":
        return "begins with a dot"
    if name != name.strip():
        return "begins or ends with a blank"
    length = len(name.encode())
    return f"is {length} bytes long" if length > MAX_BYTES else None


def path_problem(path: str, refused: str = PATH_SPECIAL) -> str | None:
    """What is wrong with a folder's ``path`` or URL, in words that follow it; None if nothing is.

    ``refused``: what Delta's and Arrow's libraries read differently, or fail at, in some of their calls. In a URL, they
    and fsspec also disagree about what begins with ``#`` and ``?``. Without ``refused``, a URL may have anything.
    """
    is_url = "://" in path
    if is_url and not refused:
        return None
    refused += "#?" if is_url else ""
    odd = next((c for c in path if c in refused or unicodedata.category(c) == "Cc"), None)
    if odd is not None:
        return f"has the character {odd if odd in refused else f'U+{ord(odd):04X}'}"
    return "has two colons in a row" if "::" in path else None


def similar_name(name: str, otherwise: str = "my-job") -> str:
    """A name close to ``name`` that nothing is wrong with."""
    fine = "".join(c if _is_fine(c) else "-" for c in name)
    fine = re.sub("::+", ":", fine).strip().lstrip(". ")
    fine = fine.encode()[:MAX_BYTES].decode(errors="ignore").strip()
    return fine if fine.strip("-. ") else otherwise


def name_of_location(location: str) -> str:
    """Of a query that has no name, by the folder that is its own: the folder's name, and which one of that name."""
    place = location.rstrip("/")
    which = hashlib.sha256(place.encode()).hexdigest()[:8]
    return f"{similar_name(place.rpartition('/')[2])[:80]}-{which}"


def checked_name(what: str, name: str, error: type[CkptError] = ConfigError) -> str:
    """``name`` itself. Raises ``error``, with a name that would work, if it breaks the rule."""
    problem = name_problem(name)
    if problem is not None:
        shown = name if len(name) <= MAX_BYTES else f"{name[:40]}..."
        raise error(f"{what} {shown!r} {problem}: expected {RULE}; {similar_name(name)!r} would work")
    return name


def family_table(uid: str, family: str) -> str:
    """The name by which checkpoints know a family of operator ``uid``, and the folder of its state table."""
    return f"{uid}.{family}"


def free(name: str, taken: Iterable[str]) -> str:
    """``name``, with a number behind it if it is taken, whatever the case of its letters."""
    low, number, found = {t.lower() for t in taken}, 1, name
    while found.lower() in low:
        number += 1
        found = f"{name}_{number}"
    return found


def is_plain_file(name: object) -> bool:
    """Whether a file name read from storage stays in its folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)


def _is_fine(c: str) -> bool:
    return c == " " or (c not in _SPECIAL and unicodedata.category(c)[0] not in "CZ")
