"""What is in a local folder. One entry that cannot be looked at is told of, and never hides the others. Driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from stat import S_ISDIR, S_ISREG
from typing import Any

from spark_ckpt.redaction import redact_url

_log = logging.getLogger("spark_ckpt")
_told: set[str] = set()
"""In this process: what was told to be passed over."""
_MOST_TOLD = 10_000


def scan(folder: str, recursive: bool, within: tuple[tuple[int, int], ...] = ()) -> Iterator[dict[str, Any]]:
    """What is in ``folder``, links followed; folders in it are walked if ``recursive``, and else told.

    ``within`` are the folders that the walk came through: a link that leads back to one is not followed. Raises
    ``OSError`` if ``folder`` itself cannot be listed.
    """
    with os.scandir(folder) as found:
        here = (*within, _identity(os.stat(folder)))
        for item in found:
            status = _status(item)
            if status is None:
                continue
            info = local_info(item.path, status)
            if info["type"] == "file":
                yield info
            elif info["type"] == "directory" and not is_hidden(item.name):
                yield from _below(info, _identity(status), here) if recursive else [info]


def _below(info: dict[str, Any], identity: tuple[int, int], here: tuple[tuple[int, int], ...]) -> Iterator[Any]:
    if identity in here:
        return
    try:
        yield from scan(info["name"], True, here)
    except FileNotFoundError:
        pass  # removed meanwhile
    except OSError as error:
        passed_over(info["name"], error)


def _status(item: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return item.stat()
    except FileNotFoundError:
        return None  # renamed or removed meanwhile, or a link to nothing
    except OSError as error:
        passed_over(item.path, error)
        return None


def local_info(path: str, status: os.stat_result) -> dict[str, Any]:
    """As fsspec tells it."""
    kind = "directory" if S_ISDIR(status.st_mode) else "file" if S_ISREG(status.st_mode) else "other"
    return {"name": path, "size": status.st_size, "mtime": status.st_mtime, "type": kind}


def passed_over(path: str, error: OSError) -> None:
    """A warning, once for each path and process: an entry that cannot be looked at is left out until it can be."""
    if path in _told:
        return
    if len(_told) >= _MOST_TOLD:
        _told.clear()
    _told.add(path)
    _log.warning("Passed over until it can be read: %s (%s)", redact_url(path), error.strerror)


def is_hidden(name: str) -> bool:
    return name[:1] in ("_", ".")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
