"""``spark.ckpt.metrics.port``: the metrics of a driver for Prometheus, while its queries run. Needs the extra
``metrics``. Driver."""

from __future__ import annotations

import hmac
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer

from spark_ckpt.errors import ConfigError
from spark_ckpt.monitoring.metrics import CONTENT_TYPE

TOKEN = "SPARK_CKPT_UI_TOKEN"
"""The variable of the environment that has the token; that of ``spark-ckpt ui``, too."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KEY = "spark.ckpt.metrics.port"


class Endpoint:
    """Answers at ``http://HOST:PORT/metrics`` from its making until :meth:`close`."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        """``address``: a port of 127.0.0.1, or ``host:port``. Raises ``ConfigError`` if it is taken, or no loopback and
        without a token."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]") or _LOOPBACK[0]
        token = os.environ.get(TOKEN) or None
        if host not in _LOOPBACK and token is None:
            raise ConfigError(
                f"{_KEY}: expected a token for the address {host}, which others can reach; set {TOKEN} in the "
                "driver's environment, or leave the address out to listen at 127.0.0.1 only"
            )
        app = _Guarded(text, token, anybody=host not in _LOOPBACK)
        try:
            self._server: Any = make_server(host, int(port), app, ThreadingWSGIServer, handler_class=_Quiet)
        except OSError as error:
            raise ConfigError(
                f"{_KEY}: cannot listen at {host}, port {port}: {error.strerror}; choose another port, or 0 for one "
                "that is free"
            ) from None
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="spark-ckpt-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no line in the driver's log."""


class _Guarded:
    """As the page is guarded: a token where there is one, and at loopback no name but its own, so that no page from
    elsewhere reads it by a name of its own for this address."""

    def __init__(self, text: Callable[[], str], token: str | None, anybody: bool) -> None:
        self._text, self._token, self._anybody = text, token, anybody

    def __call__(
        self, environ: Mapping[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]
    ) -> Iterable[bytes]:
        status, kind, body = self._answer(environ)
        start(status, [("Content-Type", kind), ("Cache-Control", "no-store")])
        return [body.encode()]

    def _answer(self, environ: Mapping[str, Any]) -> tuple[str, str, str]:
        host = re.sub(r":\d+$", "", str(environ.get("HTTP_HOST", ""))).strip("[]")
        if not self._anybody and host not in _LOOPBACK:
            return "400 Bad Request", "text/plain", "Invalid host header"
        given = str(environ.get("HTTP_AUTHORIZATION", "")).removeprefix("Bearer ")
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            return "401 Unauthorized", "text/plain", "Ask with Authorization: Bearer, and the token."
        if environ.get("PATH_INFO") != "/metrics":
            return "404 Not Found", "text/plain", "There is /metrics only."
        return "200 OK", CONTENT_TYPE, self._text()
