"""What a method that is not there should have been: the nearest name, or how the same is done here. Driver."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar


class Hinting:
    """Base of what users call methods of, but for those that pass unknown names on."""

    _ways: ClassVar[Mapping[str, str]] = {}
    """Methods of PySpark's that have another form here -> what to write instead."""

    if not TYPE_CHECKING:  # a type checker and an editor are to know the methods that there are

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, self._ways)


def missing(owner: object, name: str, ways: Mapping[str, str], more: Iterable[str] = ()) -> AttributeError:
    """To be raised for ``owner.name``. ``more``: names that are understood besides the class's own."""
    kind = type(owner).__name__
    if name.startswith("_"):
        return AttributeError(f"{kind!r} object has no attribute {name!r}")
    if name in ways:
        return AttributeError(f"{kind} has no {name!r}: {ways[name]}")
    there = [n for n in [*dir(type(owner)), *more, *ways] if not n.startswith("_")]
    same = [n for n in there if n.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, there, n=3, cutoff=0.7)
    found = [f"{n} ({ways[n]})" if n in ways else n for n in near]
    advice = f"did you mean {' or '.join(found)}?" if found else f"there are {', '.join(sorted({*there} - {*ways}))}"
    return AttributeError(f"{kind} has no {name!r}: {advice}")
