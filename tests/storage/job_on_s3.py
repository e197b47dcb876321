"""The whole job of :mod:`tests.storage.whole_job` on an object store: its folder, its state table, and a sink there."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.jobs.spec import SinkSpec, with_job_storage
from spark_ckpt.protocol.records import SAVEPOINT, TriggerRecord
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.storage.object_options import delta_rs_options
from tests.storage.whole_job import KEYS, ROWS, TOPOLOGY, WholeJob

KINDS = {"delta": DeltaSink, "files": FilesSink}


class JobOnS3(WholeJob):
    """One operator, one source, and the sink ``kind`` at ``<url>/out``; Spark's location is local."""

    def __init__(self, root: Path, url: str, storage: dict[str, str], kind: str = "delta", **options: str) -> None:
        self._out, self._kind = f"{url}/out", kind
        self.topology = replace(TOPOLOGY, sinks=(kind,))
        keyed = {f"storage.{name}": value for name, value in storage.items()}
        super().__init__(root, **{"dir": f"{url}/jobs", "history": "true", **keyed, **options})

    def _sinks(self) -> tuple[SinkSpec, ...]:
        return (with_job_storage(SinkSpec(self._kind, KINDS[self._kind], {"path": self._out}), self.config),)

    def savepoint(self, path: str) -> None:
        """A batch whose barrier is of a savepoint in ``path``."""
        k = self._next_id()
        now_ms = int(time.time() * 1000)
        record = TriggerRecord(k, SAVEPOINT, now_ms, "request", path, False, None, self.run.generation)
        assert self.records.create_trigger(record)
        end = {"origin": self.run.origin, "position": self.position + ROWS, "barrier": k}
        self._write("offsets", self.batch + 1, f"v1\n{json.dumps(end)}\n")
        self._replay(end)

    def rows(self) -> list[tuple[int, int, int]]:
        """What a reader of the Delta table sees."""
        table = DeltaTable(self._out, storage_options=delta_rs_options(self._out, self.config.storage_options()))
        found = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY row").read_all()
        return [tuple(row.values()) for row in pa.table(found).to_pylist()]

    def expected(self) -> list[tuple[int, int, int]]:
        return [(row, row % KEYS, row // KEYS + 1) for row in range(self.position)]
