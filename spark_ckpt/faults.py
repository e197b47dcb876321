"""Places where a process can be made to die, so that tests can prove what recovery does there.

Off unless the environment variable ``SPARK_CKPT_KILL_AT`` is set: ``place=marker file``. The first process that
reaches ``place`` while the marker file is absent creates it and kills itself with SIGKILL, as a power cut would.
"""

from __future__ import annotations

import os
import signal

_VARIABLE = "SPARK_CKPT_KILL_AT"


def reach(place: str) -> None:
    """Die here, once, if the environment asks for it."""
    wanted = os.environ.get(_VARIABLE)
    if not wanted:
        return
    name, _, marker = wanted.partition("=")
    if name != place:
        return
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    target = os.environ.get("SPARK_CKPT_KILL_PID")
    # The commit runs in a child of the driver's JVM: a test may name the driver itself as what dies.
    os.kill(int(target) if target else os.getpid(), signal.SIGKILL)
    if target:
        signal.pause()
