"""State files that no manifest names any more: what a crash left, and a running job does not look for. Any process."""

from __future__ import annotations

import time
from collections.abc import Iterator

from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JobPaths
from spark_ckpt.storage.manifest import read_manifest

AGE_S = 86_400.0
"""What is younger may be of a checkpoint that is being taken."""
_ASKED = 1000
"""The age of so many files of a table is asked at most: each is a request to an object store."""


def unnamed_files(records: JobRecords, min_age_s: float = AGE_S) -> dict[str, int]:
    """By uid, how many state files are older than ``min_age_s`` seconds and named by no manifest of the job; those
    with none are left out. Costs a listing of each state table. Raises ``CorruptStorageError`` for a manifest that
    cannot be read."""
    root = Folder(records.paths.url, records.store.storage_options)
    before_s = time.time() - min_age_s
    found = {}
    for uid in root.folders("state"):
        found[uid] = sum(_old(root.child(JobPaths.state_file(uid)), _named(records, uid), before_s))
    return {uid: count for uid, count in found.items() if count}


def _named(records: JobRecords, uid: str) -> set[str]:
    folder = JobPaths.manifests_of(uid)
    names = (f"{folder}/{name}" for name in records.store.names(folder))
    return {file for name in names for file in read_manifest(records.store, name).files}


def _old(folder: Folder, named: set[str], before_s: float) -> Iterator[int]:
    files = [n for n in folder.names() if n.endswith(".parquet") and n not in named]
    for name in files[:_ASKED]:
        yield folder.modified_s(name) <= before_s
