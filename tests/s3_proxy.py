"""Between a client and an S3 server, on loopback: counts requests, and lets some of them fail or wait.

It is a process of its own: delta-rs keeps Python waiting while it writes, a proxy among its threads, too.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FAULTS = ("500", "503", "slow", "no connection", "lost answer")
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
_CONTROL = "/proxy-taken"
_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>injected</Message></Error>"
_XML = {"500": _ERROR.format("InternalError").encode(), "503": _ERROR.format("SlowDown").encode()}


class S3Proxy:
    """A context manager: clients go to :attr:`endpoint`. A fault of ``kinds``, drawn by ``seed``, meets this ``share``
    of the requests. ``drop``: a request header that the server never sees."""

    def __init__(
        self, server: str, share: float = 0.0, seed: int = 0, kinds: tuple[str, ...] = FAULTS, drop: str = ""
    ) -> None:
        self._arguments = {"server": server, "share": share, "seed": seed, "kinds": kinds, "drop": drop}
        self.endpoint = ""

    def __enter__(self) -> S3Proxy:
        command = [sys.executable, __file__, json.dumps(self._arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.communicate()

    def take(self) -> list[str]:
        """The requests since the last call, each as ``GET /bucket/key``, behind it the fault that it met."""
        with urllib.request.urlopen(f"{self.endpoint}{_CONTROL}") as answer:
            return list(json.load(answer))


class _Proxy:
    """The process's part."""

    def __init__(self, server: str, share: float, seed: int, kinds: list[str], drop: str) -> None:
        self.requests: list[str] = []
        self._share, self._kinds = share, kinds
        self._random, self._lock = random.Random(seed), threading.Lock()
        self.upstream, self.drop = urlsplit(server), drop.lower()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True

    def run(self) -> None:
        print(f"http://127.0.0.1:{self._server.server_address[1]}", flush=True)  # noqa: T201 - to who started it
        self._server.serve_forever()

    def taken(self) -> list[str]:
        with self._lock:
            taken, self.requests = self.requests, []
        return taken

    def fault(self, request: str) -> str | None:
        """What becomes of ``request``, noted with it."""
        with self._lock:
            fault = self._random.choice(self._kinds) if self._random.random() < self._share else None
            self.requests.append(f"{request} ({fault})" if fault else request)
        return fault


class _Handler(BaseHTTPRequestHandler):
    """Of one connection. ``proxy`` is set in a class made for it."""

    proxy: _Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _pass_on(self) -> None:
        body = self._body()
        if self.path == _CONTROL:
            self._answer(200, {}, json.dumps(self.proxy.taken()).encode())
            return
        fault = self.proxy.fault(named(self.command, self.path, dict(self.headers)))
        if fault == "slow":
            time.sleep(0.7)
        if fault in _XML:
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
            str(self.proxy.upstream.hostname), self.proxy.upstream.port or 80, timeout=60
        )
        try:
            client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {*_HOP, "expect", self.proxy.drop}:
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


if __name__ == "__main__":
    _Proxy(**json.loads(sys.argv[1])).run()
