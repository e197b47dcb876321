"""Which version of a Delta table showed a checkpoint of a job, and what came behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta._log import commit_actions
from spark_ckpt.sinks.delta._restored import Action, is_restore, restored_version


@dataclass(frozen=True)
class Standing:
    """``version`` shows all that the job had committed up to the checkpoint. Behind it came ``undone``, checkpoints of
    the job, and ``others``, versions in which somebody else changed rows and that a later one of ``undone`` stands
    on."""

    version: int
    undone: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


def standing_at(files: pafs.FileSystem, newest: int, app: str, checkpoint: int, shown: str) -> Standing:
    """Of the table whose newest version is ``newest``. Reads the log back to the job's commit.

    Raises ``InvalidInputError`` if the log does not go back that far.
    """
    found = Standing(newest)
    pending: list[int] = []
    for version, actions in _back_from(files, newest, shown):
        own = [int(a["txn"]["version"]) for a in actions if "txn" in a and a["txn"]["appId"] == app]
        if own and own[0] <= checkpoint:
            break
        if own:
            found = Standing(version - 1, (own[0], *found.undone), (*pending, *found.others))
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
