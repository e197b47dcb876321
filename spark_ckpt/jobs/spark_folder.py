"""What Spark's own checkpoint folder tells about a query. Driver; reads only, and changes nothing there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spark_ckpt.protocol.recovery import SparkLocation
from spark_ckpt.storage.filesystem import Folder

_PARTITIONS = "spark.sql.shuffle.partitions"


class SparkFolder:
    """The folder at ``path``, which need not exist."""

    def __init__(self, path: str, storage: Mapping[str, Any]) -> None:
        self.path = path
        self._folder = Folder(path, storage)

    def location(self) -> SparkLocation:
        """The newest batches that were planned and committed, and the generation that first ran here.

        That is the origin that a ckpt source wrote into its offset.
        """
        planned = self._newest("offsets")
        origins = (value.get("origin") for value in self._offsets(planned))
        origin = next((o for o in origins if isinstance(o, int)), None)
        return SparkLocation(self.path, planned, self._newest("commits"), origin)

    def query_id(self) -> str | None:
        """Spark's id of the query that runs here; None if none ever did."""
        try:
            return str(json.loads(self._folder.read("metadata") or b"{}")["id"])
        except (ValueError, LookupError, TypeError):
            return None

    def partitions(self) -> int | None:
        """The shuffle partitions that Spark wrote beside its offsets, and keeps whatever the session says."""
        confs = (value.get("conf") for value in self._offsets(self._newest("offsets")))
        return next((int(c[_PARTITIONS]) for c in confs if isinstance(c, dict) and _PARTITIONS in c), None)

    def _newest(self, log: str) -> int | None:
        return max((int(n) for n in self._folder.names(log) if n.isdigit()), default=None)

    def _offsets(self, batch: int | None) -> Iterator[dict[str, Any]]:
        """The objects in a file of the offset log: the batch's metadata, then each source's offset."""
        content = b"" if batch is None else self._folder.read(f"offsets/{batch}") or b""
        for line in content.decode(errors="replace").splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value
