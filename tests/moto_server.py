"""``python tests/moto_server.py PORT``: moto's server, with one request at a time.

A conditional put of moto looks for the object and then writes it, in two steps; Amazon's is atomic. Under load two of
moto's threads both find no object, and two writers are told that they created it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """A WSGI application whose calls wait for each other."""

    def __init__(self, app: Any) -> None:
        self._app, self._turn = app, threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        with self._turn:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer


if __name__ == "__main__":
    application = DomainDispatcherApplication(create_backend_app)
    run_simple(
        "127.0.0.1", int(sys.argv[1]), OneAtATime(application), threaded=True, request_handler=MotoRequestHandler
    )
