"""Tables as text that never cut a cell: what does not fit beside its row goes on a line below it."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence

_GAP = "  "
_INDENT = "    "


def terminal_width() -> int | None:
    """The columns of the terminal; None where the output goes into a file or another program, which count none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def text_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[str] = (),
    detail: bool = False,
    width: int | None = None,
) -> str:
    """``rows`` under ``heads``, to the right but for those in ``left``.

    With ``detail`` the last cell of each row is text of any length: if it makes a line longer than ``width``, it stands
    below its row.
    """
    widths = [max(len(r[i]) for r in [heads, *rows]) for i in range(len(heads))]
    total = sum(widths) + len(_GAP) * (len(widths) - 1)
    below = detail and width is not None and total > width
    shown = len(heads) - 1 if below else len(heads)

    def line(cells: Sequence[str]) -> str:
        aligned = [c.ljust(w) if h in left else c.rjust(w) for c, w, h in zip(cells, widths, heads, strict=True)]
        return _GAP.join(aligned[:shown]).rstrip()

    ruled = sum(widths[:shown]) + len(_GAP) * (shown - 1)
    out = [line(heads), "─" * ruled]
    for row in rows:
        out.append(line(row))
        if below:
            out += textwrap.wrap(
                row[-1], width or total, initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
    return "\n".join(out)
