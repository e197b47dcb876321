"""Processes whose files nobody else sees, as in containers: what they share is the image, the network and a store."""

from __future__ import annotations

import os
from pathlib import Path

_OWN_DISK = 'mount -t tmpfs tmpfs "$0" && mkdir "$0/tmp" && exec "$@"'


def pod(folder: Path) -> list[str]:
    """In front of a command: ``folder`` is an empty disk to it and to what it starts, and is gone when they are.

    ``folder`` is on the way to nothing that they need. ``TMPDIR`` is :func:`temporary` there.
    """
    return ["unshare", "--mount", "sh", "-c", _OWN_DISK, str(folder)]


def temporary(folder: Path) -> str:
    return str(folder / "tmp")


def can_have_pods() -> bool:
    return os.geteuid() == 0
