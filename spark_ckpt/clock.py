"""The clock: milliseconds since 1970, as records and offsets have them. What decides is told the time."""

from __future__ import annotations

import time


def now_ms() -> int:
    return int(time.time() * 1000)
