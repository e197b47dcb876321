"""Places where a process can be made to die, so that tests can prove what recovery does there.

Off unless the environment variable ``SPARK_CKPT_KILL_AT`` is set: ``place=marker file``, several divided by ``;``. The
first process that reaches ``place`` while the marker file is absent creates it and kills itself with SIGKILL, as a
power cut would. ``place#3`` means a process that comes there for the third time.

``SPARK_CKPT_KILL_PID`` names what dies instead, as for kill(2): a process, or a process group if negative. With
``SPARK_CKPT_KILL_SIGNAL=STOP`` nothing dies but is halted, as by a long pause, until somebody sends it SIGCONT.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

_AT, _PID, _SIGNAL = "SPARK_CKPT_KILL_AT", "SPARK_CKPT_KILL_PID", "SPARK_CKPT_KILL_SIGNAL"
_reached: Counter[str] = Counter()
_listener: Callable[[str], None] | None = None


@contextlib.contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Within, ``listener`` is told of every place that is reached, in all threads of this process; it may raise."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def reach(place: str) -> None:
    """Die here, once, if the environment asks for it."""
    if _listener is not None:
        _listener(place)
    for wanted in filter(None, os.environ.get(_AT, "").split(";")):
        name, _, marker = wanted.partition("=")
        name, _, nth = name.partition("#")
        if name != place:
            continue
        _reached[wanted] += 1
        if _reached[wanted] >= int(nth or 1) and _claim(marker):
            _die()


def _claim(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _die() -> None:
    target = int(os.environ.get(_PID) or os.getpid())
    if os.environ.get(_SIGNAL) == "STOP":
        _halt(target)
        return
    # The commit runs in a child of the driver's JVM, so a test names the driver itself as what dies. Whoever waits
    # here does nothing more, as if it had died in the same moment.
    os.kill(target, signal.SIGKILL)
    while True:
        signal.pause()


def _halt(target: int) -> None:
    own = os.getpid()
    os.kill(target, signal.SIGSTOP)
    if target not in (own, -os.getpgid(own)):
        os.kill(own, signal.SIGSTOP)
