"""Imported by every Python process that has this folder on its path: its clock is ahead or behind by what a file says.

Only the clock of the wall: monotonic time, sleeps and time-outs stay, as when an administrator sets the time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FILE = Path(os.environ["SOAK_CLOCK"])
_true_time, _true_time_ns = time.time, time.time_ns
_offset, _looked = 0, float("-inf")


def _ahead_s() -> int:
    global _offset, _looked
    if time.monotonic() > _looked + 0.2:
        _offset, _looked = int(_FILE.read_text()), time.monotonic()
    return _offset


time.time = lambda: _true_time() + _ahead_s()
time.time_ns = lambda: _true_time_ns() + _ahead_s() * 1_000_000_000
