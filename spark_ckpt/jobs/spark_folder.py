"""What Spark's own checkpoint folder tells about a query. Driver; changes nothing there, but for emptying it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import FencedError
from spark_ckpt.protocol.recovery import SparkLocation
from spark_ckpt.protocol.source_offset import undamaged
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.object_options import scheme_of
from spark_ckpt.storage.offset_log import logged_batch

_URL = re.compile(r"(?!file:)[a-zA-Z][\w+.-]*:/")

_KEPT_BY_SPARK = ("metadata", "commits", "sources", "state", "offsets")
_PARTITIONS = "spark.sql.shuffle.partitions"


class Files(Protocol):
    """What is asked of a folder; :class:`spark_ckpt.storage.filesystem.Folder` has both."""

    def names(self, folder: str = "") -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...

    def remove_all(self, name: str) -> None: ...


class SparkFolder:
    """The folder at ``path``, which need not exist. ``files``: how it is read, if not by fsspec."""

    def __init__(self, path: str, config: JobConfig, files: Files | None = None) -> None:
        self.path = path
        # The job's storage options are for where the job is.
        own = scheme_of(path) == scheme_of(normalize_url(config.dir))
        self._folder = files or Folder(path, config.storage_options() if own else {})

    def location(self) -> SparkLocation:
        """The newest batches that were planned and committed, and the generation that first ran here.

        That is the origin that a ckpt source wrote into its offset. Raises ``CorruptStorageError`` if one of the two
        newest offsets of such a source is damaged: Spark goes on from them.
        """
        planned = self._newest("offsets")
        origins = [self._origin(batch) for batch in (planned, (planned or 0) - 1)]
        return SparkLocation(self.path, planned, self._newest("commits"), origins[0])

    def empty(self, origin: int) -> None:
        """Remove what Spark keeps here of batches of ``origin``, so that the next query begins anew.

        Stopped in between: offsets go last, and while there are some, :meth:`location` tells whose batches these were.
        Raises ``FencedError`` if they are another's: a start that was halted must not remove what its successor plans.
        """
        for name in _KEPT_BY_SPARK:
            found = self.location().origin
            if found not in (None, origin):
                raise FencedError(
                    f"the Spark checkpoint location {self.path}: expected batches of origin {origin}, which are given "
                    f"up, found those of origin {found}; another query runs this job now, stop this one"
                )
            self._folder.remove_all(name)

    def query_id(self) -> str | None:
        """Spark's id of the query that runs here; None if none ever did."""
        try:
            return str(json.loads(self._folder.read("metadata") or b"{}")["id"])
        except (ValueError, LookupError, TypeError):
            return None

    def partitions(self) -> int | None:
        """The shuffle partitions that the query keeps."""
        found = self.kept_conf(_PARTITIONS)
        return None if found is None else int(found)

    def kept_conf(self, name: str) -> str | None:
        """What Spark wrote of the session's conf ``name`` beside its offsets, and keeps whatever the session says; None
        if it keeps no such one, or no batch was planned."""
        confs = (value.get("conf") for value in self._offsets(self._newest("offsets")))
        return next((str(c[name]) for c in confs if isinstance(c, dict) and name in c), None)

    def _origin(self, batch: int | None) -> int | None:
        origins = [
            undamaged(value, f"{self.path}/offsets/{batch}")["origin"]
            for value in self._offsets(batch)
            if isinstance(value.get("origin"), int)
        ]
        return origins[0] if origins else None

    def _newest(self, log: str) -> int | None:
        return max((int(n) for n in self._folder.names(log) if n.isdigit()), default=None)

    def _offsets(self, batch: int | None) -> Iterator[dict[str, Any]]:
        """The objects in a file of the offset log: the batch's metadata, then each source's offset."""
        content = b"" if batch is None else self._folder.read(f"offsets/{batch}") or b""
        logged = logged_batch(content)
        for line in (logged.metadata, *logged.sources.values()):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def is_url(location: str) -> bool:
    """Whether ``location`` is no local folder. Hadoop knows URLs such as ``dbfs:/folder``, too."""
    return _URL.match(location) is not None


def one_spelling(location: str) -> str:
    """``location`` as records have it, however it was written."""
    if is_url(location) and "://" not in location:
        return location.rstrip("/")
    return normalize_url(location)


def local_location(config: JobConfig, job: str) -> str:
    """This machine's own folder for the Spark location of ``job``, whose ``dir`` Spark cannot write to.

    What is in there may be lost: the next start goes on from the newest checkpoint. Its path tells the machine, so that
    a start elsewhere is not taken for one here.
    """
    url = normalize_url(config.dir)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", url).strip("-")[:48]
    mark = hashlib.sha256(url.encode()).hexdigest()[:12]
    return str(_local_root() / socket.gethostname() / f"{slug}-{mark}" / job)


def remove_local(location: str) -> None:
    """Remove ``location`` if :func:`local_location` made it, on this machine."""
    if Path(location).is_relative_to(_local_root() / socket.gethostname()):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(location)


def _local_root() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "spark_ckpt"
