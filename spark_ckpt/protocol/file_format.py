"""Formats of what is stored: every record and file has a number, and one that is not known here is refused by it. Pure.

A format is made anew when what was written before could be misunderstood by older code, or older files by newer code.
Where no number stands, it is 1: files of the first releases have none, nor have things that Spark keeps, which would
grow by it in every batch.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.errors import NewerFormatError

FIELD = "format"
"""Where the number stands in what is JSON."""


def require_known(found: Any, newest: int, where: str) -> None:
    """Raise ``NewerFormatError`` if ``found``, the format of ``where``, is a number that is greater than ``newest``."""
    if isinstance(found, int) and not isinstance(found, bool) and found > newest:
        raise newer(where, f"its format is {found}, and this version reads formats up to {newest}")


def newer(where: str, how: str) -> NewerFormatError:
    return NewerFormatError(
        f"{where} was written by a newer version of spark-ckpt: {how}. Nothing is damaged. Use the version that wrote "
        "it, or a newer one; to go on with this one, restore a savepoint that this one, or an older one, wrote."
    )
