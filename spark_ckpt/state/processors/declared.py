"""What ``init`` of a user's processor declares: state variables, each a family of the operator. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_ckpt.state.lsm.layout import FamilyLayout

VALUE, LIST, MAP = "value", "list", "map"

INDEX = "_index"
"""Sub-key of a list's elements: they ascend, and are never used again while the list has one."""
EXPIRY = "expiry_ms"
"""Sub-key of timers."""
LIST_NAME, NEXT = "list", "next"
"""Columns of the family of all lists of an operator: the index of the next element of each."""

INITIAL = "__initial"
"""The column of an input row that is none, but a row of the initial state."""

TIMERS, LISTS = "_timers", "_lists"
"""Families that are no variables. No variable begins so: Spark refuses those names."""


@dataclass(frozen=True)
class Columns:
    """A struct of the user's: its JSON, and how its fields are called and typed in a state table."""

    struct: str
    stored: pa.Schema


@dataclass(frozen=True)
class Variable:
    """``ttl_ms`` is 0 without one. ``user_key`` is a map's."""

    name: str
    kind: str
    value: Columns
    user_key: Columns | None = None
    ttl_ms: int = 0

    def layout(self, key_schema: pa.Schema) -> FamilyLayout:
        sub = pa.schema([]) if self.kind == VALUE else pa.schema([(INDEX, pa.int64())])
        if self.user_key is not None:
            sub = self.user_key.stored
        return FamilyLayout(key_schema, sub, self.value.stored, with_timeout=self.ttl_ms > 0)


def families(key_schema: pa.Schema, variables: tuple[Variable, ...], time_mode: str) -> dict[str, FamilyLayout]:
    """One a variable; the timers, where there can be some; the lists' next indexes, if there are lists.

    Whether those can expire follows from the time mode alone, so that a list with a TTL can be added to others.
    """
    found = {v.name: v.layout(key_schema) for v in variables}
    if any(v.kind == LIST for v in variables):
        name, after = pa.schema([(LIST_NAME, pa.string())]), pa.schema([(NEXT, pa.int64())])
        found[LISTS] = FamilyLayout(key_schema, name, after, with_timeout=time_mode == "ProcessingTime")
    if time_mode != "None":
        found[TIMERS] = FamilyLayout(key_schema, pa.schema([(EXPIRY, pa.int64())]), pa.schema([]), with_timeout=True)
    return found
