"""Which version of a Delta table showed a checkpoint of a job, what came behind it, and whether it is there still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta._log import commit_actions
from spark_ckpt.sinks.delta._restored import Action, is_restore, restored_version


@dataclass(frozen=True)
class Standing:
    """``version`` shows all that the job had committed up to the checkpoint. Behind it came ``undone``, checkpoints of
    the job, and ``others``, versions in which somebody else changed rows and that a later one of ``undone`` stands
    on. ``is_altered``: columns or properties were changed since, too."""

    version: int
    undone: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    is_altered: bool = False

    def __str__(self) -> str:
        altered = ", with the columns and properties that the table had then" if self.is_altered else ""
        return f"checkpoint(s) {', '.join(map(str, self.undone))}, back to version {self.version}{altered}"


def standing_at(files: pafs.FileSystem, newest: int, app: str, checkpoint: int, shown: str) -> Standing:
    """Of the table whose newest version is ``newest``. Reads the log back to the job's commit.

    Raises ``InvalidInputError`` if the log does not go back that far.
    """
    found = Standing(newest)
    pending: list[int] = []
    altered = False
    for version, actions in _back_from(files, newest, shown):
        own = [int(a["txn"]["version"]) for a in actions if "txn" in a and a["txn"]["appId"] == app]
        if own and own[0] <= checkpoint:
            break
        altered = altered or any("metaData" in a for a in actions)
        if own:
            found = Standing(version - 1, (own[0], *found.undone), (*pending, *found.others), altered)
            pending = []
        elif _changes_rows(actions):
            pending.insert(0, version)
    return found


def _back_from(files: pafs.FileSystem, newest: int, shown: str) -> Iterator[tuple[int, Sequence[Action]]]:
    """The versions whose rows the table shows, the newest first: what a ``RESTORE`` took back is passed over."""
    at = newest
    while at >= 0:
        try:
            actions = commit_actions(files, at)
        except FileNotFoundError:
            raise InvalidInputError(
                f"{shown}: its log goes back to version {at + 1} only, which does not tell what it showed at the "
                "checkpoint"
            ) from None
        if is_restore(actions):
            back = restored_version(files, at, actions)
            if back is None:
                raise InvalidInputError(f"{shown}: to which version its version {at} restored it cannot be told")
            at = back
            continue
        yield at, actions
        at -= 1


def _changes_rows(actions: Sequence[Action]) -> bool:
    files = (a.get("add") or a.get("remove") for a in actions)
    return any(f is not None and f.get("dataChange", True) for f in files)


def opened_at(
    table: DeltaTable, version: int, files: pafs.FileSystem, storage: Mapping[str, str], shown: str
) -> DeltaTable:
    """``table``, which is at its newest version, as it was at ``version``.

    Raises ``InvalidInputError`` if that cannot be read any more: its log was tidied up, or its files were vacuumed.
    """
    try:
        then = DeltaTable(table.table_uri, version=version, storage_options=dict(storage))
    except DeltaError as error:  # the newest one can be opened, so the store answers
        raise InvalidInputError(
            f"{shown}: version {version}, which it had at the checkpoint, cannot be opened any more, as when its log "
            f"was tidied up: {str(error).splitlines()[0]}"
        ) from None
    lost = _missing(files, _paths(then) - _paths(table))
    if lost:
        raise InvalidInputError(
            f"{shown}: {len(lost)} file(s) of version {version}, which it had at the checkpoint, are gone, as behind a "
            f"VACUUM: {', '.join(lost[:3])}"
        )
    return then


def _paths(table: DeltaTable) -> set[str]:
    return set(pa.table(table.get_add_actions())["path"].to_pylist())


def _missing(files: pafs.FileSystem, paths: set[str]) -> list[str]:
    """``files`` is rooted at the table: of a shallow clone's files elsewhere nothing is known."""
    own = sorted(unquote(p) for p in paths if "://" not in p and not p.startswith("/"))
    return [i.path for i in files.get_file_info(own) if i.type != pafs.FileType.File]


def rows_of(table: DeltaTable, shown: str) -> Callable[[], pa.RecordBatchReader]:
    """Reads all rows of ``table``. Raises ``InvalidInputError`` if it asks for what this process cannot do."""
    try:
        return table.to_pyarrow_dataset().scanner().to_reader
    except DeltaProtocolError as error:
        raise InvalidInputError(
            f"{shown}: version {table.version()} has the rows, and cannot be read without Spark: {error} Read it by "
            f"spark.read.format('delta').option('versionAsOf', {table.version()})"
        ) from None
