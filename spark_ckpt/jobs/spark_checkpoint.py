"""The checkpoint of a plain Spark query: its newest committed batch, and where its sources stood. Driver; read only.

Spark's offset log has a file a batch: the version, the batch's metadata, and an offset for each source in the order of
the plan. A file source's offset is a batch of its own log of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.spark_folder import Files
from spark_ckpt.redaction import redact_url

_VERSION = "v1"
_STATE = ("state/0/_metadata", "state/0/_metadata/v2")
"""What Spark tells of the first operator with state, by the format of its metadata."""
_SOURCES = "sources"
"""Spark's own folder of what file sources have read."""


class SparkCheckpoint:
    """``files`` reads the folder at ``location``. Raises ``InvalidInputError`` if no batch is committed there, or one
    was read by a source of ours."""

    def __init__(self, location: str, files: Files) -> None:
        self.location, self._files = location, files
        batches = [int(name) for name in files.names("commits") if name.isdigit()]
        if not batches:
            raise InvalidInputError(
                f"{redact_url(location)}: expected the checkpointLocation of a Spark query with a committed batch, "
                "found none in commits/"
            )
        self.batch = max(batches)
        """The newest batch that is committed: the state and the offsets are those behind it."""
        self._lines = self._read()

    @property
    def planned(self) -> bool:
        """Whether a further batch was planned, and perhaps written in part."""
        return any(name.isdigit() and int(name) > self.batch for name in self._files.names("offsets"))

    @property
    def keeps_state(self) -> bool:
        """Whether an operator of the query does."""
        return any(self._files.names(folder) for folder in _STATE)

    @property
    def watermark_ms(self) -> int:
        """That of the batch that comes next: behind the rows of the committed one, where a commit says so."""
        told = self._json_lines(f"commits/{self.batch}")
        following = [int(line["nextBatchWatermarkMs"]) for line in told if line.get("nextBatchWatermarkMs")]
        return max([self.late_ms, *following])

    @property
    def late_ms(self) -> int:
        """The watermark of the committed batch: rows of the next one are late by it."""
        return int(self._lines[0].get("batchWatermarkMs", 0))

    @property
    def offsets(self) -> list[Any]:
        """A source each, in the order of the plan: what Spark has of it as JSON; None where it has none yet."""
        return self._lines[1:]

    def files_of(self, source: int, upto: int) -> list[str]:
        """The files that a file source had read with batch ``upto`` of its own log."""
        folder, found = "/".join((_SOURCES, str(source))), dict[str, None]()
        names = self._files.names(folder)
        compacted = [int(n.split(".")[0]) for n in names if n.endswith(".compact") and int(n.split(".")[0]) <= upto]
        first = max(compacted, default=-1)
        wanted = [f"{first}.compact"] if compacted else []
        wanted += [str(batch) for batch in range(first + 1, upto + 1) if str(batch) in names]
        for name in wanted:
            for entry in self._json_lines(f"{folder}/{name}"):
                if int(entry.get("batchId", 0)) <= upto:
                    found[str(entry["path"])] = None
        return list(found)

    def _read(self) -> list[Any]:
        found = list(self._json_lines(f"offsets/{self.batch}"))
        if not found or not isinstance(found[0], dict):
            raise CorruptStorageError(
                f"{redact_url(self.location)}/offsets/{self.batch} is damaged: expected the metadata of the batch; put "
                "back a good copy"
            )
        if any(isinstance(line, dict) and "origin" in line for line in found[1:]):
            raise InvalidInputError(
                f"{redact_url(self.location)} is the location of a query that is checkpointed here: it goes on by "
                "itself, and needs no import"
            )
        return found

    def _json_lines(self, name: str) -> Iterator[Any]:
        content = self._files.read(name)
        if content is None:
            raise CorruptStorageError(f"{redact_url(self.location)}/{name} is missing; put back a good copy")
        version, *lines = content.decode().splitlines()
        if version != _VERSION:
            raise InvalidInputError(
                f"{redact_url(self.location)}/{name}: expected format {_VERSION} of Spark's log, found "
                f"{version[:20]!r}, which this release does not read"
            )
        for line in lines:
            try:
                yield None if line.strip() in ("", "-") else json.loads(line)
            except ValueError:
                raise CorruptStorageError(
                    f"{redact_url(self.location)}/{name} is damaged: expected JSON in each line; put back a good copy"
                ) from None
