"""What cannot be aggregates of one operator: refused when the DataFrame is built. Driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.kinds import FLAT, RUNNING_KINDS, is_ordered
from spark_ckpt.types import CONTROL_COLUMNS, KEY_GROUP, KEY_HASH, TIMEOUT_MS


def check_options(specs: Mapping[str, AggSpec], emit: str, order_by: str | None, input_schema: pa.Schema) -> None:
    if emit not in ("update", "rows"):
        raise InvalidInputError(f"aggregate: emit must be 'update' or 'rows', found {emit!r}.")
    if not specs:
        raise InvalidInputError("aggregate: expects at least one aggregate, such as n=agg.count().")
    for name, spec in specs.items():
        if not isinstance(spec, AggSpec):
            raise InvalidInputError(
                f"aggregate {name!r}: expects a function of spark_ckpt.agg, found {type(spec).__name__}."
            )
        if emit == "rows" and spec.kind not in RUNNING_KINDS:
            raise InvalidInputError(
                f"aggregate {name!r}: {spec.kind} is not available with emit='rows'; "
                f"use emit='update' or one of {', '.join(RUNNING_KINDS)}."
            )
    if order_by is not None:
        _check_order_by(order_by, emit, input_schema)


def _check_order_by(column: str, emit: str, input_schema: pa.Schema) -> None:
    if emit != "rows" or column not in input_schema.names:
        raise InvalidInputError(
            f"aggregate: order_by needs emit='rows' and a column out of {input_schema.names}, "
            f"found emit={emit!r} and {column!r}."
        )
    type_ = input_schema.field(column).type
    if not is_ordered(type_):
        raise InvalidInputError(f"aggregate: cannot order by column {column!r} of type {type_}. Supported: {FLAT}.")


def check_names(keys: Sequence[str], state: Sequence[str], output: Sequence[str]) -> None:
    """Of the columns."""
    reserved = [*keys, *CONTROL_COLUMNS, KEY_HASH, KEY_GROUP, TIMEOUT_MS]
    for what, names in (("state columns", [*reserved, *state]), ("output columns", list(output))):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidInputError(f"aggregate: {what} {twice} would occur twice. Choose other output names.")


def check_families(families: Collection[str], aggregates: Sequence[str]) -> None:
    """``aggregates``: those that keep their values in a family each."""
    if len(families) < len(aggregates):
        raise InvalidInputError(
            f"aggregate: the values of {list(aggregates)} would meet in tables of one name, out of "
            f"{sorted(families)}. Choose other output names."
        )
