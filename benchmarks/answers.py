"""How a worker process answers the suite: lines of JSON on standard output, marked, because engines print there too.

Imported in every environment, so it needs nothing but Python.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

_MARK = "RESULT "


def say(answer: Mapping[str, Any]) -> None:
    print(_MARK + json.dumps(answer), flush=True)


def say_error(error: Exception) -> None:
    """Of what is just handled; where it was raised goes to stderr."""
    traceback.print_exc()
    say({"error": f"{type(error).__name__}: {str(error)[:2000]}"})


def heard(line: str) -> dict[str, Any] | None:
    """The answer in a line of output; None if it holds none."""
    found: dict[str, Any] | None = json.loads(line[len(_MARK) :]) if line.startswith(_MARK) else None
    return found
