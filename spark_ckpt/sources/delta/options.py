"""Options of the source ``delta``: Delta's own, by its names."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._options import Option, choice, flag, java_regex, positive, size, text
from spark_ckpt.sources.old_calendar import MODES

LATEST = -1
"""Of ``startingVersion``."""


def _version(value: str) -> int:
    if value.strip().lower() == "latest":
        return LATEST
    if not value.strip().isdigit():
        raise ValueError(value)
    return int(value)


OPTIONS = {
    "path": text(expects="a table's folder or URL, as delta-rs knows it").means(
        "The table. `load(path)` sets it, too.", required=True
    ),
    "startingVersion": Option(_version, "a version, or latest").means(
        "Begin with what this version did, or with the next one to come. Without it and `startingTimestamp` the stream "
        "begins with all rows that there are."
    ),
    "startingTimestamp": text(expects="a time such as 2026-01-31 or 2026-01-31T08:00:00.000Z").means(
        "Begin with the first version of that time or later; in the session's time zone, if it names none."
    ),
    "readChangeFeed": flag().means(
        "The table's change data feed: each row that came, went or changed, with `_change_type`, `_commit_version` and "
        "`_commit_timestamp`."
    ),
    "maxFilesPerTrigger": positive(1000).means("Files of a batch at most."),
    "maxBytesPerTrigger": size().means(
        "No further file when a batch's have so many bytes. Of a change data feed, versions are not cut by either."
    ),
    "ignoreDeletes": flag().means("Go on where a version only deletes rows."),
    "ignoreChanges": flag().means(
        "Go on where a version updates, merges or overwrites; rows of files that it wrote anew come again."
    ),
    "skipChangeCommits": flag().means("Go on where a version deletes or updates, and leave all of it out."),
    "excludeRegex": java_regex("a regular expression of Java").means("Leave out files in whose path it is found."),
    "failOnDataLoss": flag(True).means("false: go on where the log was cleaned up before it was read."),
    "maxSplitBytes": size(128 << 20).means("Larger files are read in parallel."),
    "datetimeRebaseMode": choice(*MODES).means(
        "As in Spark's reader of Parquet, of files that do not say which Spark wrote them, days before 1582-10-15 and "
        "times before 1900: CORRECTED, LEGACY or EXCEPTION. Without it "
        "`spark.sql.parquet.datetimeRebaseModeInRead` says it."
    ),
    "int96RebaseMode": choice(*MODES).means(
        "The same for times that are INT96, and `spark.sql.parquet.int96RebaseModeInRead`."
    ),
}

_ELSE = {
    "versionasof": "a stream has no fixed version; begin at one with startingVersion",
    "timestampasof": "a stream has no fixed version; begin at one with startingTimestamp",
    "endingversion": "a stream has no end; use the trigger availableNow",
    "endingtimestamp": "a stream has no end; use the trigger availableNow",
    "schematrackinglocation": (
        "columns that were renamed, dropped or widened need none here: start the query again and it goes on"
    ),
    "schemalocation": (
        "columns that were renamed, dropped or widened need none here: start the query again and it goes on"
    ),
    "witheventtimeorder": (
        "the first rows come file by file; drop late rows by a watermark that is generous enough, or begin with "
        "startingVersion"
    ),
    "ignorefiledeletion": "it is ignoreDeletes or ignoreChanges",
    "mergeschema": "columns are those of the table",
}
"""Options that Delta has for readers, and this source does not -> what to do instead."""


def refuse_others(given: Mapping[str, str]) -> None:
    """Raises ``ConfigError`` for an option of Delta's that this source does not have."""
    for name in given:
        if name.lower() in _ELSE:
            raise ConfigError(f"source 'delta' has no option '{name}': {_ELSE[name.lower()]}")
