"""What Spark's state store keeps of a task's state between two batches, as JSON, and whose state that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError, TopologyError
from spark_ckpt.state.ipc import Rows, schema_from_text
from spark_ckpt.state.lsm._levels import Level
from spark_ckpt.state.lsm._memtable import Memtable
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange, RangeRun, numbers_from_json

FORMAT = 1
"""Of what Spark's state store keeps, which does not say it while it is 1: it is written with every batch."""

KEPT = "what Spark's state store keeps of this state"


@contextmanager
def damage_told() -> Iterator[None]:
    """What is read with every batch is not looked at value by value: what is wrong with it shows when it is used."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptStorageError(f"{KEPT}: expected what was sealed, found {type(error).__name__}: {error}") from None


def groups_to_json(groups: KeyRange) -> list[int]:
    return [groups.first, groups.end, groups.total]


def refuse_other_groups(found: Sequence[int], groups: KeyRange) -> None:
    if found != groups_to_json(groups):
        raise TopologyError(
            f"state was written for key groups {found} (first, end, total), expected {groups_to_json(groups)}: "
            "restore it into a new Spark checkpoint location"
        )


def refuse_other_layout(meta: Mapping[str, Any], layout: StateLayout, can_carry: bool) -> None:
    """``can_carry``: rows of another layout can be made this one's, if what was sealed tells which they had."""
    if meta["layout"] == layout.fingerprint or (can_carry and ("schema" in meta or not meta["rows"])):
        return
    raise TopologyError(
        f"state was written with other key or state columns than {layout.stored_schema.names}: "
        "restore it into a new Spark checkpoint location, or go back to the old columns"
    )


def opened_memtable(
    layout: StateLayout,
    meta: Mapping[str, Any],
    memtable: bytes,
    carried: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
) -> Memtable:
    known = meta["layout"] == layout.fingerprint
    kept = Memtable.from_bytes(memtable, layout.stored_schema if known else schema_from_text(meta["schema"]))
    return kept if carried is None else Memtable(carried(kept.rows), kept.removed)


def levels_to_json(levels: Sequence[Level]) -> list[list[Any]]:
    """Each run with its level and layer behind it."""
    return [
        [*run.to_json(), i, j]
        for i, level in enumerate(levels)
        for j, layer in enumerate(level.layers)
        for run in layer
    ]


def keys_from_json(value: str, groups: KeyRange) -> Rows:
    """How many keys each of ``groups`` has."""
    keys = numbers_from_json(value)
    if len(keys) != len(groups):
        raise ValueError(f"numbers of {len(keys)} key groups instead of {len(groups)}")
    return keys


def levels_from_json(value: Sequence[Sequence[Any]], groups: KeyRange) -> list[Level]:
    levels: list[Level] = []
    for *run, i, j in value:
        if i == len(levels):
            levels.append(Level([]))
        if j == len(levels[i].layers):
            levels[i].layers.append([])
        made = RangeRun.from_json(run)
        if not groups.first <= made.first <= made.end <= groups.end:
            raise ValueError(f"a run of key groups {made.first} to {made.end} outside of {groups_to_json(groups)}")
        levels[i].layers[j].append(made)
    return levels
