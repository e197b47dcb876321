"""A user function's exception, with the user's own lines: what a driver shows of a Python worker has no causes."""

from __future__ import annotations

import os
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def raised(where: str, error: BaseException) -> str:
    """The message: what was raised, and where in the user's code, without the lines of this package above it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    lines = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return f"{where}: the user's function raised {type(error).__name__}: {error}\n{lines}"
