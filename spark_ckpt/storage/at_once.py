"""Work on several files at once, in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_MOST = 4
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def made(work: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterator[_Made]:
    """What ``work`` makes of each of the ``items``, in their order: of as many at once as there are cores, up to four.

    Raises what it raised for the first that failed.
    """
    with ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as threads:
        yield from threads.map(work, items)
