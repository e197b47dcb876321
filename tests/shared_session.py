"""One Spark session for all tests of a folder. It ends with the last of them: others make their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_sessions: dict[Path, Any] = {}


def shared(folder: Path, made: Callable[[], Any]) -> Any:
    """That of ``folder``, made by its first test."""
    if folder not in _sessions:
        _sessions[folder] = made()
    return _sessions[folder]


def end_those_not_of(following: Path | None) -> None:
    """``following``: the file of the next test, if there is one."""
    for folder in [f for f in _sessions if following is None or f not in following.parents]:
        _sessions.pop(folder).stop()
