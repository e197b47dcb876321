"""``spark-ckpt top``: all jobs of a folder on one live screen."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

_QUIT = frozenset("qQ\x1b")


def live_screen(show: Callable[[], str], every_s: float, console: Console | None = None) -> None:
    """``show`` again every ``every_s`` seconds, on a screen of its own, until ``q``, Escape or Ctrl-C. The terminal is
    afterwards as it was, also after an error."""
    console = console or Console()
    screen = Live(console=console, screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), _keys() as pressed, screen:
        while True:
            screen.update(_page(show(), every_s, console), refresh=True)
            if pressed(every_s):
                return


def _page(text: str, every_s: float, console: Console) -> Text:
    """What fits the screen, and how many lines do not."""
    lines = text.splitlines()
    room = max(1, console.height - 2)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines: spark-ckpt jobs shows them all"]
    footer = f"{time.strftime('%H:%M:%S')}, again every {every_s:g} s; q ends"
    return Text("\n".join([*lines, "", footer]), no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Gives what waits so many seconds and says whether a key that ends was pressed meanwhile."""
    try:
        import termios
        import tty

        kept = termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError):  # no terminal, or one of Windows: Ctrl-C ends it
        yield _only_wait
        return
    tty.setcbreak(sys.stdin)
    try:
        yield _waited
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, kept)


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _waited(seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in _QUIT:
            return True
    return False
