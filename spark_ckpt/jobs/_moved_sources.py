"""What a source keeps beside its offsets, where it has another uid now. Driver, at start."""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.storage.filesystem import Folder


def bring_source(records: JobRecords, was: str, uid: str) -> None:
    """Copy the folder of source ``was`` to that of ``uid``. Stopped in here: the same call does the rest.

    Raises ``InvalidInputError`` if ``uid`` was another source's before: what an offset means is in its folder."""
    options = records.store.storage_options
    source, target = (Folder(records.paths.source(u), options) for u in (was, uid))
    if not _bring(source, target):
        raise InvalidInputError(
            f"moved({was!r}, {uid!r}): expected a uid that no other source of this job has had, and another source was "
            f"called {uid!r} before; choose a uid that is new"
        )


def _bring(source: Folder, target: Folder) -> bool:
    """Whether all of ``source`` is in ``target``. Its files are never changed."""
    for name in source.names():
        data = source.read(name)
        if data is not None and not target.create(name, data) and target.read(name) != data:
            return False
    return all(_bring(source.child(folder), target.child(folder)) for folder in source.folders())
