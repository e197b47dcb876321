"""Which rows of a version a stream gets: appended ones, or those of a change data feed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.expressions.java_regex import Searcher
from spark_ckpt.sources.delta._actions import Commit, DataFile, Vector

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
GONE, THERE = ("update_preimage", "delete"), ("insert", "update_postimage")
"""Kinds of change: of rows that are not there any more, and of rows that are."""


@dataclass(frozen=True)
class Entry:
    """Rows of one file: all but those of vector ``without``, and of ``among``, where there is one, only those.

    ``change`` is what a change data feed calls each row; empty where the file's own column says it, and then only rows
    of ``kinds`` count. None outside a feed.
    """

    file: DataFile
    without: Vector | None = None
    among: Vector | None = None
    change: str | None = None
    version: int = 0
    time_ms: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def again(self) -> bool:
        """Whether the file was counted with an entry ahead of this one."""
        return self.kinds == THERE


@dataclass(frozen=True)
class Policy:
    """What the options say about rows that did not only come."""

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude: Searcher | None = None

    def excludes(self, file: DataFile) -> bool:
        return self.exclude is not None and self.exclude.finds(file.path)


def appended(commit: Commit, policy: Policy, shown: str) -> list[Entry | None]:
    """One for each file that the version adds; None for a file whose rows do not count.

    Raises ``InvalidInputError`` if the version removed rows and ``policy`` does not say what to make of that.
    """
    adds = [file for file in commit.adds if file.data_change]
    removed = next((file for file in commit.removes if file.data_change), None)
    if removed is not None:
        _check_removal(commit.version, removed, bool(adds), policy, shown)
    skipped = removed is not None and policy.skip_change_commits
    return [
        None if skipped or not file.data_change or policy.excludes(file) else Entry(file, file.vector)
        for file in commit.adds
    ]


def _check_removal(version: int, removed: DataFile, updated: bool, policy: Policy, shown: str) -> None:
    if policy.ignore_changes or policy.skip_change_commits or (policy.ignore_deletes and not updated):
        return
    if updated:
        raise InvalidInputError(
            f"[DELTA_SOURCE_TABLE_IGNORE_CHANGES] {shown}: version {version} updates or overwrites rows (for "
            f"example in {removed.path}), and a stream of appended rows cannot tell that. Leave such versions out by "
            "skipChangeCommits=true, read rewritten files as if all their rows were new with ignoreChanges=true, "
            "or read the changes themselves with readChangeFeed=true"
        )
    raise InvalidInputError(
        f"[DELTA_SOURCE_IGNORE_DELETE] {shown}: version {version} deletes rows (for example {removed.path}), and a "
        "stream of appended rows cannot tell that. Go on as if it had not with option ignoreDeletes=true, or read the "
        "changes themselves with readChangeFeed=true"
    )


def changed(commit: Commit, policy: Policy, time_ms: int) -> list[Entry | None]:
    """The rows of the version's change data feed: its files of changes, else what was added and removed; None for a
    file that ``policy`` excludes.

    All rows that are not there any more come ahead of all that are, so that a sink may merge them as they come: a key
    may be in both, in files that different tasks read.
    """
    version = commit.version
    if commit.changes:
        halves = (GONE, THERE)
        both = [Entry(f, f.vector, None, "", version, time_ms, kinds) for kinds in halves for f in commit.changes]
        return _not_excluded(both, policy)
    if commit.copies_only:
        return []
    removed = {file.path: file for file in commit.removes if file.data_change}
    found: list[Entry] = []
    for file in (f for f in commit.adds if f.data_change):
        before = removed.pop(file.path, None)
        if before is None:
            found.append(Entry(file, file.vector, None, "insert", version, time_ms))
        else:  # only its vector is another: rows died, or came back (RESTORE)
            found += _between(file, before.vector, file.vector, version, time_ms)
    found += [Entry(file, file.vector, None, "delete", version, time_ms) for file in removed.values()]
    return _not_excluded(sorted(found, key=lambda entry: entry.change != "delete"), policy)


def _not_excluded(entries: Sequence[Entry], policy: Policy) -> list[Entry | None]:
    """Places in a version are counted with the files that are left out."""
    return [None if policy.excludes(entry.file) else entry for entry in entries]


def _between(file: DataFile, old: Vector | None, new: Vector | None, version: int, time_ms: int) -> Sequence[Entry]:
    died = [Entry(file, old, new, "delete", version, time_ms)] if new is not None else []
    came = [Entry(file, new, old, "insert", version, time_ms)] if old is not None else []
    return died + came


def snapshot(
    files: Sequence[DataFile], policy: Policy, version: int, time_ms: int, as_changes: bool
) -> list[Entry | None]:
    """All rows of a table at ``version``, oldest files first, as Delta orders them; None as in :func:`changed`."""
    ordered = sorted(files, key=lambda file: (file.modified_ms, file.path))
    change = "insert" if as_changes else None
    return _not_excluded([Entry(file, file.vector, None, change, version, time_ms) for file in ordered], policy)
