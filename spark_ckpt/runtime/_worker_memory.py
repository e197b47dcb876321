"""Keeps memory that NumPy lets go of in a Python worker, within bounds, for the next array. All stages.

The C library gives large blocks back to the system and asks for new ones, whose pages the system fills with zeros at
the first touch: of vectorised work over some MB, where nearly every step makes a new array, a third of the time. With
glibc that is a matter of two settings; elsewhere nothing is done. What a worker keeps so is at most 128 MB more than it
needs. Who sets glibc's own variables (``MALLOC_TRIM_THRESHOLD_`` ...) for executors has decided otherwise.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 128 << 20, 32 << 20
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Whether it is kept from now on, in this process. Called again it changes nothing."""
    if any(variable in os.environ for variable in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES))
