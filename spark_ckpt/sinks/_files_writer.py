"""Stages the rows of one task as a file of the ``files`` sink. Executor."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import staging
from spark_ckpt.sinks.base import WriterContext
from spark_ckpt.sinks.files_formats import EXTENSIONS, FileOptions, open_writer
from spark_ckpt.storage.filesystem import make_on

KIND = "files"


class FilesWriter(staging.FileWriter):
    """``partition``: the folder that the file goes to, and which file of its task it is."""

    def __init__(
        self,
        files: Any,
        folder: str,
        ctx: WriterContext,
        file_format: str,
        how: FileOptions,
        partition: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(f"staging rows in {folder}", ctx)
        self._files, self._folder, self._schema = files, folder, ctx.schema
        self._format, self._how, self._place = file_format, how, partition and partition[0]
        number = "" if partition is None else f"-{partition[1]:05d}"
        self._name = f"{staging.staged_name(ctx)}{number}.{EXTENSIONS[file_format]}"
        self._rows = 0

    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        make_on(self._files, self._folder)
        stream = self._files.open(f"{self._folder}/{self._name}", "wb")
        return stream, open_writer(self._format, stream, self._schema, self._how)

    def _put(self, rows: pa.Table) -> None:
        self._writer.write(rows.cast(self._schema))
        self._rows += len(rows)

    def _finish(self) -> bytes:
        self._stream.close()
        if durable.is_local(self._files):
            durable.sync([f"{self._folder}/{self._name}"])
        place = {} if self._place is None else {"folder": self._place}
        return staging.encode(KIND, file=self._name, rows=self._rows, ext=EXTENSIONS[self._format], **place)
