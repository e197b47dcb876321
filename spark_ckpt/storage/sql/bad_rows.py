"""Whether a database's error is about what is in a row, and which of its rules it names."""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.storage.sql.mariadb import error_code

_POSTGRES = ("22", "23", "44", "45", "54000", "P0001")
"""Data, constraints, check options of views, what functions raise, index entries that are too long."""
_POSTGRES_OWN = "012345FHPX"
"""What the standard's and PostgreSQL's own states begin with; a trigger may raise any other."""
_MARIADB = frozenset(
    (1048, 1062, 1118, 1169, 1216, 1217, 1264, 1265, 1292, 1365, 1366, 1406, 1411, 1441, 1451, 1452, 1526, 1557, 1586,
     1644, 1690, 1748, 1761, 1762, 3819, 4025)
)  # fmt: skip
_MARIADB_RULE = re.compile(r"CONSTRAINT (?:`[^`]+`\.)?`([^`]+)`|for key '([^']+)'")
_SQLITE = ("IntegrityError", "DataError")


def is_about_row(error: Any) -> bool:
    """``error``: the driver's own. Another row might be taken; this one will not, however often it is tried."""
    code, state = error_code(error), getattr(error, "sqlstate", None)
    if code is not None:  # its drivers may tell a state, too, which says less
        return code in _MARIADB
    if state is not None:
        return str(state).startswith(_POSTGRES) or str(state)[0] not in _POSTGRES_OWN
    return type(error).__name__ in _SQLITE


def may_pass_with_others(error: Any) -> bool:
    """Whether it is about a row and others, so that the row may be taken behind them: a reference, a unique value."""
    code, state = error_code(error), getattr(error, "sqlstate", None)
    if code is not None:
        refers = code in (1451, 1452)
    else:
        refers = str(state) in ("23001", "23503") if state is not None else str(error).startswith("FOREIGN")
    return refers or is_collision(error)


def is_collision(error: Any) -> bool:
    """Whether a unique index has the value already, or an exclusion constraint another one that bars it."""
    code, state = error_code(error), getattr(error, "sqlstate", None)
    if code is not None:
        return code in (1062, 1169, 1586)
    return str(state) in ("23505", "23P01") if state is not None else str(error).startswith("UNIQUE")


def rule_of(error: Any) -> str | None:
    """The constraint or index that it names."""
    diagnosis = getattr(error, "diag", None)
    if diagnosis is not None:
        name = diagnosis.constraint_name
        return None if name is None else str(name)
    if error_code(error) is not None:
        found = _MARIADB_RULE.search(str(error.args[1]) if len(error.args) > 1 else "")
        return None if found is None else next(g for g in found.groups() if g)
    _, failed, name = str(error).partition(" constraint failed: ")
    return name if failed else None
