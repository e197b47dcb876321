"""``observe`` for a stream with control rows in it: its metrics are those of the data rows. Driver. On Connect:
:mod:`spark_ckpt.plan._observed_connect`.

Spark allows no FILTER in an observed aggregate. So in each aggregate function of the analysed plan what it looks at is
null in control rows, which aggregates pass over; ``count(*)``, which looks at nothing, counts what is not null so.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.errors import InvalidInputError

SparkDF = Any
JavaObject = Any

BY_ORDER = ("first", "first_value", "last", "last_value", "any_value")


def refuse_by_order(name: str) -> None:
    """Raises ``InvalidInputError`` for an aggregate that goes by the order of rows."""
    if name in BY_ORDER:
        raise InvalidInputError(
            f"observe: {name} would see control rows, and rows of a batch have no order here; use min or max"
        )
