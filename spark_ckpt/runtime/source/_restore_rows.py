"""The control rows that carry a checkpoint's manifests to the operators. Driver, source process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.migration import restored_table
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.manifest import read_manifest


def restore_events(
    records: JobRecords, checkpoint: int, uids: Sequence[str], adopt: bool, operators: Mapping[str, Mapping[str, Any]]
) -> list[ev.Event]:
    """One event for each operator of ``uids`` that has state in ``checkpoint``; a new operator has none. ``operators``
    are the query's, as its topology says.

    Reads the manifests, not the state. Raises ``CorruptStorageError`` if one is missing or damaged.
    """
    completion = records.completion(checkpoint)
    if completion is None:
        raise CorruptStorageError(
            f"checkpoint {checkpoint} is to be restored, but {JobPaths.checkpoint(checkpoint)} is gone; "
            f"{RESTORE_ANOTHER}"
        )
    found: list[ev.Event] = []
    for uid in uids:
        table = restored_table(operators.get(uid, {}), uid, completion)
        if table is not None:
            groups = read_manifest(records.store, table.manifest).groups
            found.append(ev.Restore(uid, checkpoint, groups, adopt))
    return found
