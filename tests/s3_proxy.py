"""Between a client and an S3 server, on loopback: counts requests, and lets some of them fail or wait."""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


class S3Proxy:
    """Use as a context manager: :attr:`endpoint` is where clients go to. ``fault`` says, for a request (method and
    path), what becomes of it: None, or one of :data:`FAULTS`. ``drop``: request headers that the server never sees."""

    def __init__(self, server: str, fault: Callable[[str, str], str | None] = lambda *_: None, drop: str = "") -> None:
        self.fault = fault
        self.requests: list[str] = []
        self.faults: list[str] = []
        self._upstream, self._drop = urlsplit(server), drop.lower()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self) -> list[str]:
        """The requests since the last call, each as ``GET s3://bucket/key``."""
        taken, self.requests = self.requests, []
        return taken

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _pass_on(self) -> None:
                body = self._body()
                proxy.requests.append(named(self.command, self.path, dict(self.headers)))
                fault = proxy.fault(self.command, self.path)
                if fault is not None:
                    proxy.faults.append(fault)
                if fault == "slow":
                    time.sleep(0.7)
                if fault in ("500", "503"):
                    self._answer(int(fault), {}, _XML[fault])
                    return
                if fault == "no connection":
                    self.close_connection = True
                    return
                answer, content = self._asked(body)
                if fault == "lost answer":  # the server has done it, and the client never hears of it
                    self.close_connection = True
                    return
                self._answer(answer.status, dict(answer.getheaders()), content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

            def _body(self) -> bytes:
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    return self._chunks()
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def _chunks(self) -> bytes:
                found = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    found += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return found

            def _asked(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
                client = http.client.HTTPConnection(
                    str(proxy._upstream.hostname), proxy._upstream.port or 80, timeout=60
                )
                try:
                    client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in {*_HOP, "expect", proxy._drop}:
                            client.putheader(name, value)
                    client.putheader("Content-Length", str(len(body)))
                    client.endheaders(body)
                    answer = client.getresponse()
                    return answer, answer.read()
                finally:
                    client.close()

            def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                length = next((v for n, v in headers.items() if n.lower() == "content-length"), None)
                self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>injected</Message></Error>"
_XML = {"500": _ERROR.format("InternalError").encode(), "503": _ERROR.format("SlowDown").encode()}
FAULTS = ("500", "503", "slow", "no connection", "lost answer")


def some_faults(share: float, seed: int, kinds: tuple[str, ...] = FAULTS) -> Callable[[str, str], str | None]:
    """A fault for this share of the requests, of a kind drawn at random."""
    chosen, lock = random.Random(seed), threading.Lock()

    def fault(method: str, path: str) -> str | None:
        with lock:
            return chosen.choice(kinds) if chosen.random() < share else None

    return fault


def named(method: str, path: str, headers: dict[str, str]) -> str:
    """A request as prices have it: LIST is a GET of a bucket, COPY and CREATE are a PUT, BATCHDELETE is a POST."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    low = {name.lower() for name in headers}
    if method == "GET" and ("list-type" in query or "prefix" in query):
        return f"LIST {parts.path.rstrip('/')}/{query.get('prefix', [''])[0]}"
    if method == "PUT" and "x-amz-copy-source" in low:
        method = "COPY"
    if method == "PUT" and "if-none-match" in low:
        method = "CREATE"
    return f"{method} {parts.path}"


def without_names(request: str) -> str:
    """A request with what differs between two runs left out: hexadecimal names and numbers."""
    return re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{8}-?[0-9a-f-]{4,}", "*", request))
