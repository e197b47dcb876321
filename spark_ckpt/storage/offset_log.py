"""Spark's log of offsets: a file a batch, at a query's location. Any process; pure.

The first line is the version, the second the batch's metadata. Behind them, version 1 has a line for each source in the
order of the plan. Version 2 (Spark 4.2 and later, where ``spark.sql.streaming.offsetLog.formatVersion`` or
``spark.sql.streaming.queryEvolution.enableSourceEvolution`` ask for it) has ``ID:OFFSET`` in any order. The ID is the
source's place in the plan, or the name that the user gave it.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "-"
"""In place of an offset: of a source that has not had anything yet."""
VERSIONS = ("v1", "v2")


@dataclass(frozen=True)
class LoggedBatch:
    """``sources``: the offset of each as text, by its ID. IDs that are places stand in the plan's order."""

    version: str
    metadata: str
    sources: dict[str, str]


def logged_batch(content: bytes) -> LoggedBatch:
    """One file of the log. It may be of a version that is not among ``VERSIONS``: the caller looks."""
    lines = content.decode(errors="replace").splitlines()
    version, metadata = [*lines, "", ""][:2]
    if version == "v2":
        pairs = (line.partition(":") for line in lines[2:])
        named = {name: offset for name, _, offset in pairs}
    else:
        named = {str(place): offset for place, offset in enumerate(lines[2:])}
    return LoggedBatch(version, metadata, dict(sorted(named.items(), key=_in_plan)))


def _in_plan(source: tuple[str, str]) -> tuple[int, str]:
    name = source[0]
    return (int(name) if name.isdigit() else 0, name)
