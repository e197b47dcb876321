"""``spark-ckpt top`` in a terminal: it shows the jobs, ends with a key, and leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_DEADLINE_S = 60


def _read_until(terminal: int, is_done: Callable[[bytes], bool]) -> None:
    """As a terminal does: whoever writes to one that nobody reads waits."""
    seen, ends = b"", time.monotonic() + _DEADLINE_S
    while not is_done(seen):
        assert time.monotonic() < ends, seen
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_the_jobs_are_on_one_screen_until_a_key_ends_it_and_the_terminal_is_as_before(
    tmp_path: Path, key: bytes
) -> None:
    mine, its = pty.openpty()
    before = termios.tcgetattr(its)
    command = [sys.executable, "-m", "spark_ckpt", "top", str(tmp_path), "--every", "0.2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}

    def at_a_terminal() -> None:
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell has its background jobs, such as this test's, ignore it

    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=subprocess.PIPE, env=env, start_new_session=True,
        preexec_fn=at_a_terminal,
    ) as done:  # fmt: skip
        try:
            _read_until(mine, lambda seen: b"There are no jobs in" in seen)
            os.write(mine, key)
            _read_until(mine, lambda _: done.poll() is not None)
            assert done.returncode == 0
        finally:
            done.kill()
    assert termios.tcgetattr(its) == before
    os.close(mine)
    os.close(its)
