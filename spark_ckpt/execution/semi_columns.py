"""The columns of a semi join in plain Spark's state: told by the plan, used by the import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SemiColumns:
    """What Spark keeps of the left side of a semi join: ``kept`` are the names of all columns in their order, ``of``
    has the query's name -> Spark's, of those that are kept as they are."""

    kept: list[str]
    of: Mapping[str, str]
