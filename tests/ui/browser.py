"""Chromium without a window, driven over a pipe by the DevTools protocol: no library, and no port.

``scripts/with_env.sh ... --chromium`` installs it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # it shows our own pages only, and root has no other way
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """One page. ``errors``: what its console and its scripts complained of; ``asked``: the URLs that were requested."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        assert program is not None, "Chromium is missing: apt-get install chromium"
        theirs, self._to = os.pipe()
        self._from, said = os.pipe()
        # They expect the pipe's ends as 3 and 4, which may be taken here.
        shell = f'exec 3<&{theirs} 4>&{said}; exec "$0" "$@"'
        command = ["bash", "-c", shell, program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs, said), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(said)
        self._rest, self._id, self._session, self._loads = b"", 0, "", 0
        self.errors: list[str] = []
        self.asked: list[str] = []
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, url: str) -> None:
        """Returns when the page and what it loads are there."""
        loads = self._loads
        self._call("Page.navigate", url=url)
        self._wait_for_load(loads)

    def submit(self, button: str) -> None:
        """Press a button, named by a CSS selector, of a form, and wait for the next page."""
        loads = self._loads
        self.run(f"document.querySelector({json.dumps(button)}).click()")
        self._wait_for_load(loads)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, what it is fulfilled with."""
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}[key])

    def resize(self, width: int, height: int = 800) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def screenshot(self, file: Path, whole: bool = True) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        asked = {"id": self._id, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._id:
                assert "error" not in told, told["error"]
                result: dict[str, Any] = told["result"]
                return result

    def _wait_for_load(self, loads: int) -> None:
        while self._loads == loads:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser ended"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(line)
        self._note(told.get("method", ""), told.get("params", {}))
        return told

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
