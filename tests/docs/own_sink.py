"""A sink of one's own: a folder of Arrow files, one for each checkpoint. docs/writing-a-sink.md shows it."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from spark_ckpt import CommitPermit, Committable, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.errors import ConfigError, CorruptStorageError, InvalidInputError


class ArrowFilesSink(TwoPhaseSink):
    """Option: ``path``, a local folder. Whoever reads its ``*.arrow`` files sees whole checkpoints."""

    OPTIONS = ("path",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        given = {name.lower(): value for name, value in options.items()}
        if set(given) != {"path"}:
            raise ConfigError(f"sink arrow: expected the option path and no other, found {sorted(options)}")
        self._folder = Path(given["path"])
        self._staged = self._folder / "_staged"

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return {name: os.path.abspath(value) if name.lower() == "path" else value for name, value in options.items()}

    def validate(self, schema: pa.Schema) -> None:
        self._staged.mkdir(parents=True, exist_ok=True)

    def writer(self, ctx: WriterContext) -> SinkWriter:
        # The attempt makes the name unique, the job in front lets gc find what is its own.
        name = f"{mark(ctx.job)}-{mark(f'{ctx.sink} {ctx.epoch} {ctx.attempt}')}.arrow"
        return ArrowFileWriter(self._staged / name, ctx.schema)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        names = [c.data.decode() for c in committables]
        place = f"{permit.checkpoint:010d}-{mark(f'{permit.job}/{committables[0].sink}')}"
        target = self._folder / f"{place}-{mark(' '.join(names))}.arrow"
        others = [file.name for file in self._folder.glob(f"{place}-*.arrow") if file != target]
        if others:
            raise InvalidInputError(f"{others} are checkpoint {permit.checkpoint} of this job with other contents")
        self._step("before the file")  # a crash here: nothing is visible, the next commit starts over
        if not target.exists():
            self._publish(target, mark(permit.job), names)
        self._step("after the file")  # a crash here: the file tells the next commit that it is done
        self.abort(committables)

    def _publish(self, target: Path, job: str, names: Sequence[str]) -> None:
        try:
            tables = [pa.ipc.open_file(pa.OSFile(str(self._staged / name))).read_all() for name in names]
        except FileNotFoundError as error:
            if target.exists():
                return  # another driver was quicker
            raise CorruptStorageError(f"a staged file is missing: {error}. Nothing was committed") from None
        temporary = self._staged / f"{job}-{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, tables[0].schema) as arrow:
            for table in tables:
                arrow.write_table(table)
        sync(temporary)
        os.replace(temporary, target)  # the one step that makes the checkpoint visible
        sync(self._folder)

    def newest_checkpoint(self, job: str, sink: str) -> int:
        found = (f for f in self._folder.glob("*.arrow") if f.name[11:].startswith(mark(f"{job}/{sink}")))
        return max((int(file.name[:10]) for file in found), default=0)

    def abort(self, committables: Sequence[Committable]) -> None:
        for c in committables:
            (self._staged / c.data.decode()).unlink(missing_ok=True)

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        kept = {c.data for c in keep}
        lost = [file for file in self._staged.glob(f"{mark(job)}-*") if file.name.encode() not in kept]
        for file in lost:
            file.unlink(missing_ok=True)
        return [file.name for file in lost]


class ArrowFileWriter(SinkWriter):
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema, self._batches = path, schema, list[pa.RecordBatch]()

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)

    def prepare_commit(self) -> Sequence[bytes]:
        if not self._batches:
            return []
        with pa.OSFile(str(self._path), "wb") as file, pa.ipc.new_file(file, self._schema) as arrow:
            for batch in self._batches:
                arrow.write_batch(batch)
        sync(self._path)
        sync(self._path.parent)
        return [self._path.name.encode()]  # all that a commit elsewhere needs

    def close(self) -> None:
        self._batches.clear()


def mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sync(path: Path) -> None:
    """What is in a file, or which names are in a folder, survives a power loss."""
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
