"""Serves the page until it is told to end. The command's process."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from spark_ckpt.errors import ConfigError


def serve(app: Starlette, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Listen at ``host`` and ``port``; ``tell`` is given the URL once somebody can connect. Returns behind Ctrl-C.

    Raises ``ConfigError`` if the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port"
            ) from None
        listening.listen()
        tell(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")
        config = uvicorn.Config(app, log_level="warning", server_header=False)
        uvicorn.Server(config).run(sockets=[listening])
