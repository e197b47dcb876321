"""Between a client and a server, on loopback: passes bytes on, and cuts the connection off when an answer is due."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any


class LostAnswer:
    """A context manager: clients go to :attr:`port`. When the server hears ``marker`` for the ``nth`` time, it does
    what it is told, and its answer goes nowhere: :attr:`lost`."""

    def __init__(self, port: int, marker: bytes, nth: int = 1) -> None:
        self._server, self._marker, self._left = port, marker, nth
        self.lost = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> LostAnswer:
        self._threads[0].start()
        return self

    def __exit__(self, *_: Any) -> None:
        for end in self._sockets:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self._sockets.append(client)
                server = socket.create_connection(("127.0.0.1", self._server))
                self._sockets.append(server)
                due = threading.Event()
                for pair in ((client, server, due, True), (server, client, due, False)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=pair))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, to: socket.socket, due: threading.Event, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if asks and self._marker in data:
                    self._left -= 1
                    if self._left == 0:
                        due.set()
                elif not asks and due.is_set():
                    self.lost = True
                    break
                to.sendall(data)
        _shut(source)
        _shut(to)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
