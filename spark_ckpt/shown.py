"""How values look in a notebook. What makes the HTML is found by name: it needs the extra ``ui``, and stands outside of
the rooms whose values it shows."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from spark_ckpt.errors import CkptError


def html(what: str, *about: Any) -> str | None:
    """What the function ``what`` of ``spark_ckpt.ui.notebook`` makes of ``about``; None, and the notebook shows the
    text, if the extra ``ui`` is not installed or storage does not answer."""
    try:
        made: str = getattr(importlib.import_module("spark_ckpt.ui.notebook"), what)(*about)
    except (ImportError, CkptError, OSError) as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("spark_ckpt"):
            raise
        return None
    return made


def in_notebook() -> bool:
    """Whether HTML is shown where this process prints."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def show(value: Any) -> None:
    """As a notebook shows it; else print it."""
    if in_notebook():
        importlib.import_module("IPython.display").display(value)
    else:
        print(value)  # noqa: T201
