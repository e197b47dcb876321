"""The end of the process that Spark runs a source's reader in. Driver, source process."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

_AT_MOST_S = 45


def end_in_order() -> None:
    """From now on SIGTERM, by which Spark ends this process with the query, lets the reader's ``stop`` run first.

    By default Python ends at once and passes over every ``finally``. Whatever is under way is left as in a crash. A
    ``stop`` that hangs does not keep the process: it is killed some seconds later. Nothing changes where somebody else
    handles the signal.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def stopping() -> None:
    """The reader's ``stop`` runs, and SIGTERM does not end it in the middle.

    Spark sends the signal and closes the connection. Where that is seen first, ``stop`` runs when the signal comes.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, _end_soon)


def _end(signal_: int, frame: FrameType | None) -> None:
    _end_soon(signal_, frame)
    sys.exit(0)


def _end_soon(_signal: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark may send it twice
    signal.alarm(_AT_MOST_S)
