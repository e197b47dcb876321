"""The checkpoint of a plain Spark query: its newest committed batch, and where its sources stood. Driver; read only.

Spark's offset log (:mod:`spark_ckpt.storage.offset_log`) has a file a batch. A file source's offset is a batch of its
own log of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs.spark_folder import Files
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.offset_log import NOTHING, VERSIONS, logged_batch

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
        self._metadata, self._sources = self._read()

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
        return int(self._metadata.get("batchWatermarkMs", 0))

    @property
    def offsets(self) -> dict[str, Any]:
        """What Spark has of each source as JSON, None where it has none yet: by name, or by place in the plan, ``"0"``,
        ``"1"``, in its order."""
        return self._sources

    def files_of(self, source: str, upto: int) -> list[str]:
        """The files that a file source had read with batch ``upto`` of its own log."""
        folder, found = "/".join((_SOURCES, source)), dict[str, None]()
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

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        name = f"offsets/{self.batch}"
        logged = logged_batch(self._content(name))
        self._expect(name, logged.version, VERSIONS)
        metadata = self._json(name, logged.metadata)
        sources = {source: self._json(name, offset) for source, offset in logged.sources.items()}
        if not isinstance(metadata, dict):
            raise CorruptStorageError(
                f"{redact_url(self.location)}/{name} is damaged: expected the metadata of the batch; put "
                "back a good copy"
            )
        if any(isinstance(offset, dict) and "origin" in offset for offset in sources.values()):
            raise InvalidInputError(
                f"{redact_url(self.location)} is the location of a query that is checkpointed here: it goes on by "
                "itself, and needs no import"
            )
        return metadata, sources

    def _json_lines(self, name: str) -> Iterator[Any]:
        """Of the other logs, which have one version."""
        version, *lines = self._content(name).decode().splitlines()
        self._expect(name, version, VERSIONS[:1])
        return (self._json(name, line) for line in lines)

    def _content(self, name: str) -> bytes:
        content = self._files.read(name)
        if content is None:
            raise CorruptStorageError(f"{redact_url(self.location)}/{name} is missing; put back a good copy")
        return content

    def _expect(self, name: str, version: str, known: tuple[str, ...]) -> None:
        if version not in known:
            raise InvalidInputError(
                f"{redact_url(self.location)}/{name}: expected format {' or '.join(known)} of Spark's log, found "
                f"{version[:20]!r}, which this release does not read"
            )

    def _json(self, name: str, text: str) -> Any:
        try:
            return None if text.strip() in ("", NOTHING) else json.loads(text)
        except ValueError:
            raise CorruptStorageError(
                f"{redact_url(self.location)}/{name} is damaged: expected JSON in each line; put back a good copy"
            ) from None
