"""What a database says of an error, for a message: with the values of rows, or without."""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.storage.sql.mariadb import error_code

_DATA = "22"  # PostgreSQL's class of errors that quote what could not be read
_IN_POSTGRES = (
    (re.compile(r': ".*"$', re.DOTALL), ""),
    (re.compile(r'^value ".*" is', re.DOTALL), "a value is"),
)
_IN_MARIADB = (
    (re.compile(r"^Duplicate entry '.*' for key", re.DOTALL), "Duplicate entry for key"),
    (re.compile(r"^Table has no partition for value .*", re.DOTALL), "Table has no partition for a value"),
    (re.compile(r"^(Incorrect|Truncated incorrect) ([\w ]+) value: '.*'( for column|$)", re.DOTALL), r"\1 \2 value\3"),
)


def said(error: BaseException, values: bool = False) -> str:
    """What the driver's ``error`` says, without values of rows unless ``values``."""
    if values:
        return str(error).strip()
    diagnosis: Any = getattr(error, "diag", None)
    if diagnosis is not None and getattr(diagnosis, "message_primary", None):
        return _of_postgres(diagnosis)
    if error_code(error) is not None and len(error.args) > 1:
        text = str(error.args[1])
        for pattern, replacement in _IN_MARIADB:
            text = pattern.sub(replacement, text)
        return text
    return str(error).strip()


def _of_postgres(diagnosis: Any) -> str:
    """Its detail quotes rows; which column, constraint and table it is stands in fields of their own."""
    text = str(diagnosis.message_primary)
    if str(diagnosis.sqlstate or "").startswith(_DATA):
        for pattern, replacement in _IN_POSTGRES:
            text = pattern.sub(replacement, text)
    for kind in ("constraint", "column", "table"):
        name = getattr(diagnosis, f"{kind}_name", None)
        if name and f'"{name}"' not in text:
            text += f', {kind} "{name}"'
    return text
