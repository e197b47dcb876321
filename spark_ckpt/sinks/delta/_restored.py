"""Which checkpoint a Delta table shows that ``RESTORE`` may have set back.

``RESTORE`` is a version of its own, with the files of an older one; the application transactions of all versions stay.
So the log is read from its end: the first of our transactions met is the newest one that counts, and what a ``RESTORE``
took back is passed over. To which version it went is found by the files and not by its parameters, as a time in them
has no zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs

from spark_ckpt.sinks.delta._log import commit_actions

_LOOK_AT = 1000
"""Commits of others behind ours that are looked through: further back, a ``RESTORE`` among them is not noticed."""

Action = Mapping[str, Any]


def newest_shown(files: pafs.FileSystem, version: int, app: str, recorded: int) -> int | None:
    """The checkpoint of ``app``'s newest transaction among what the table shows at ``version``; 0 if it shows none.

    ``recorded``: the newest that the table remembers, whether or not it was taken back, which is believed where the log
    is gone. None: it was taken back, and how far cannot be told.
    """
    at = version
    for _ in range(_LOOK_AT):
        if at < 0:
            return 0
        try:
            actions = commit_actions(files, at)
        except FileNotFoundError:
            return recorded
        found = [a["txn"]["version"] for a in actions if "txn" in a and a["txn"]["appId"] == app]
        if found:
            return int(found[0])
        if is_restore(actions):
            restored = restored_version(files, at, actions)
            if restored is None:
                return None
            at = restored
        else:
            at -= 1
    return recorded


def is_restore(actions: Sequence[Action]) -> bool:
    return any(a.get("commitInfo", {}).get("operation") == "RESTORE" for a in actions)


def restored_version(files: pafs.FileSystem, restore: int, actions: Sequence[Action]) -> int | None:
    """The newest version before ``restore`` with just the files that the table has behind it."""
    differ, at = set(_touched(actions)), restore - 1
    while differ and at >= 0:
        try:
            differ ^= set(_touched(commit_actions(files, at)))
        except FileNotFoundError:
            return None
        at -= 1
    return None if differ else at


def _touched(actions: Sequence[Action]) -> Iterator[tuple[str, str]]:
    """The files that come or go: with another deletion vector a file is another one. One that only changes what is
    known of it is there before and after."""
    found: dict[tuple[str, str], int] = {}
    for action in actions:
        for kind in ("add", "remove"):
            file = action.get(kind)
            if file:
                place = file["path"], str(sorted((file.get("deletionVector") or {}).items()))
                found[place] = found.get(place, 0) + 1
    return (place for place, times in found.items() if times == 1)
