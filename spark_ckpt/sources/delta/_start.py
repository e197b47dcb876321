"""Where a stream of a Delta table begins. Driver."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources.delta._offsets import Position
from spark_ckpt.sources.delta._schema import check_metadata
from spark_ckpt.sources.delta._table import FollowedTable
from spark_ckpt.sources.delta.options import LATEST


def check_start(options: Mapping[str, Any], table: FollowedTable) -> None:
    """What can be told when the DataFrame is built. Raises ``ConfigError`` for a version or a time to come."""
    version = options["startingVersion"]
    if version is not None and version > table.head:
        raise ConfigError(
            f"[DELTA_VERSION_NOT_FOUND] source 'delta': expected startingVersion up to {table.head}, the newest of "
            f"{table.shown}, or latest, found {version}"
        )
    if options["startingTimestamp"] is not None:
        version_at(options["startingTimestamp"], table)


def first_position(options: Mapping[str, Any], table: FollowedTable, pinned: int | None) -> Position:
    """Asked once in a job's life: the first offset keeps it. Raises as :func:`check_start`, and
    ``InvalidInputError`` if the version is not in the log any more."""
    changes: bool = options["readChangeFeed"]
    version, time = options["startingVersion"], options["startingTimestamp"]
    newest = table.look_now() if pinned is None else pinned
    if version is None and time is None:
        return Position(table.table, changes, newest, True, newest)
    if version == LATEST:
        return Position(table.table, changes, newest + 1, False, newest + 1)
    start = version_at(time, table) if version is None else version
    if start not in table.listing.commits and start <= table.listing.newest:
        raise InvalidInputError(
            f"[DELTA_VERSION_NOT_FOUND] {table.shown}: expected to begin with version {start}, found "
            f"{table.listing.earliest} as the earliest in the log; begin with that or a later one"
        )
    if changes:
        check_metadata(table.state_at(start).metadata, changes, f"{table.shown} at version {start}")
    return Position(table.table, changes, start, False, start)


def version_at(text: str, table: FollowedTable) -> int:
    """The first version of time ``text`` or later. Raises ``ConfigError`` if there is none."""
    wanted, newest_ms = _milliseconds(text), 0
    for version in sorted(table.listing.commits):
        # Files may be older than those of versions before them; times of versions are not, as in Delta.
        newest_ms = max(_time_ms(version, table), newest_ms + 1)
        if newest_ms >= wanted:
            return version
    newest = dt.datetime.fromtimestamp(newest_ms / 1000, dt.timezone.utc).isoformat(timespec="milliseconds")
    raise ConfigError(
        f"[DELTA_TIMESTAMP_GREATER_THAN_COMMIT] source 'delta': expected startingTimestamp up to {newest}, the time of "
        f"the newest version of {table.shown}, found {text}; begin with what comes next by startingVersion=latest"
    )


def first_since(text: str, table: FollowedTable) -> int:
    """As :func:`version_at`; the one to come next, if all are earlier."""
    try:
        return version_at(text, table)
    except ConfigError:
        return table.head + 1


def _time_ms(version: int, table: FollowedTable) -> int:
    noted = table.state.metadata.configuration.get("delta.enableInCommitTimestamps", "false").lower() == "true"
    return table.time_at(version) if noted else table.listing.commits[version]


def with_zone(text: str, zone: str) -> str:
    """Time ``text`` with its offset from UTC; in ``zone``, if it names none. Raises ``ConfigError``."""
    found = _time(text)
    return (found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))).isoformat()


def _milliseconds(text: str) -> int:
    found = _time(text)
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=dt.timezone.utc)
    return -(-round(zoned.timestamp() * 1_000_000) // 1000)


def _time(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            "option 'startingTimestamp' of source 'delta': expected a time such as 2026-01-31, 2026-01-31 08:00:00 or "
            f"2026-01-31T08:00:00.000Z, found '{text}'"
        ) from None
