"""Ports for the servers of tests, on loopback."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _MOST_TRIES = 10_000, 1_000


def free_port() -> int:
    """One that nobody listens at, and that the system gives to nobody who asks for any.

    Spark asks for any at each result that it hands to Python. A client that keeps asking for a server which is not
    there yet, or was killed, would find Spark instead; Spark then hangs up on everybody.
    """
    highest = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 0
    if highest <= _LOWEST:
        return _bound(0)
    chance = random.SystemRandom()  # two processes that pick at once pick others
    for _ in range(_MOST_TRIES):
        try:
            return _bound(chance.randrange(_LOWEST, highest))
        except OSError:
            continue
    raise RuntimeError(f"no port from {_LOWEST} to {highest} is free")


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])
