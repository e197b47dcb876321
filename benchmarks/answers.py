"""How a worker process answers the suite: lines of JSON on standard output, marked, because engines print there too.

Imported in every environment, so it needs nothing but Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MARK = "RESULT "


def say(answer: Mapping[str, Any]) -> None:
    print(_MARK + json.dumps(answer), flush=True)


def heard(line: str) -> dict[str, Any] | None:
    """The answer in a line of output; None if it holds none."""
    found: dict[str, Any] | None = json.loads(line[len(_MARK) :]) if line.startswith(_MARK) else None
    return found
