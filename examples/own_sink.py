"""A sink of one's own: an outbox of JSON documents in SQLite, which shows a checkpoint's rows whole or not at all.

    python -m examples.own_sink

streams payments from files into it. One sees rows that are staged and invisible, the checkpoint that shows them, and a
second start that goes on. The sink passes `spark_ckpt.testing.sink_conformance` (tests/examples/test_own.py).
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import CommitPermit, Committable, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.errors import ConfigError, CorruptStorageError, InvalidInputError

TABLE = """CREATE TABLE IF NOT EXISTS staged (
    stage TEXT, line INT, document TEXT, job TEXT, sink TEXT, checkpoint INT, PRIMARY KEY (stage, line))"""
VIEW = """CREATE VIEW IF NOT EXISTS outbox AS
    SELECT document FROM staged WHERE checkpoint IS NOT NULL ORDER BY checkpoint, stage, line"""


@contextmanager
def transaction(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db, db:
        db.execute("BEGIN IMMEDIATE")
        yield db


class OutboxWriter(SinkWriter):
    """Executor: a stage, which is the rows of one task between two barriers."""

    def __init__(self, path: str, ctx: WriterContext) -> None:
        self.path, self.ctx, self.rows = path, ctx, list[Any]()

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    def prepare_commit(self) -> Sequence[bytes]:
        ctx = self.ctx  # its attempt makes the name unique, what is ahead of that puts stages in order
        stage = f"{ctx.epoch:08}-{ctx.batch:08}-{ctx.partition:04}-{ctx.attempt}"
        rows = [(stage, i, json.dumps(row), ctx.job, ctx.sink) for i, row in enumerate(self.rows)]
        with transaction(self.path) as db:
            db.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?, NULL)", rows)
        return [stage.encode()] if rows else []  # all that any process needs to commit or abort it later

    def close(self) -> None: ...


class OutboxSink(TwoPhaseSink):
    """A stage is visible if it belongs to a checkpoint."""

    OPTIONS: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        given = {name.lower(): value for name, value in options.items()}
        if set(given) != {"path"}:
            raise ConfigError(f"sink outbox: expected the option path, found {', '.join(given)}")
        self.path = given["path"]

    def validate(self, schema: pa.Schema) -> None:
        refused = [f"{f.name} {f.type}" for f in schema if f.type not in (pa.int64(), pa.float64(), pa.string())]
        if refused:
            raise InvalidInputError(f"sink outbox: expected long, double and string columns, found {refused}")
        with transaction(self.path) as db:
            db.execute(TABLE)
            db.execute(VIEW)

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return OutboxWriter(self.path, ctx)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        # One transaction shows the rows and remembers that it did. Stopped before its end, nothing has happened, and
        # the next start commits; stopped behind it, the next start finds the stages of this checkpoint, and is done.
        stages = {c.data.decode() for c in committables}
        key = (permit.checkpoint, permit.job, committables[0].sink)
        with transaction(self.path) as db:
            known = db.execute("SELECT stage FROM staged WHERE checkpoint = ? AND job = ? AND sink = ?", key)
            done = {stage for (stage,) in known}
            if done and done != stages:
                raise InvalidInputError(f"checkpoint {permit.checkpoint} of {permit.job} is here with other contents")
            for stage in stages - done:
                show = "UPDATE staged SET checkpoint = ? WHERE stage = ? AND checkpoint IS NULL"
                if not db.execute(show, (permit.checkpoint, stage)).rowcount:
                    raise CorruptStorageError(f"stage {stage} is missing from {self.path}; nothing was committed")

    def abort(self, committables: Sequence[Committable]) -> None:
        with transaction(self.path) as db:
            for c in committables:
                db.execute("DELETE FROM staged WHERE stage = ? AND checkpoint IS NULL", (c.data.decode(),))

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        with transaction(self.path) as db:
            found = db.execute("SELECT DISTINCT stage FROM staged WHERE job = ? AND checkpoint IS NULL", (job,))
            lost = [stage for (stage,) in found if stage.encode() not in {c.data for c in keep}]
            db.executemany("DELETE FROM staged WHERE stage = ?", [(stage,) for stage in lost])
        return lost


def documents(path: str, table: str = "outbox") -> list[Any]:
    with transaction(path) as db:
        return [json.loads(text) for (text,) in db.execute(f"SELECT document FROM {table}")]


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="own-sink-"))
    path = f"{folder}/outbox.db"
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.ckpt.dir", f"{folder}/checkpoints")
    spark.conf.set("spark.ckpt.initialDelay", "1h")  # checkpoints where this example asks for them, and at the end
    spark.conf.set("spark.ckpt.interval", "1h")
    (folder / "input").mkdir()
    reader = spark_ckpt.enable(spark).readStream.format("files").option("fileFormat", "json")
    payments = reader.schema("id long, customer string, amount double").load(f"{folder}/input")
    writer = payments.writeStream.format(OutboxSink).option("path", path).queryName("payments")

    def pay(first: int, end: int) -> None:
        rows = [json.dumps({"id": i, "customer": "abc"[i % 3], "amount": i / 4}) for i in range(first, end)]
        (folder / "input" / f"{first}.json").write_text("\n".join(rows))

    query = writer.start()
    for first in (0, 1_000):
        pay(first, first + 1_000)
        while len(documents(path, "staged")) < first + 1_000:
            time.sleep(0.1)
        print(f"{len(documents(path, 'staged')):,} rows are in the database, {len(documents(path)):,} visible")
        if first == 0:
            print(f"checkpoint {query.checkpoint()}: {len(documents(path)):,} visible")
    query.stop()
    pay(2_000, 2_500)
    writer.trigger(availableNow=True).start().awaitTermination()
    print(f"stopped and started again, with 500 more: {len(documents(path)):,} visible")
    once = sorted(d["id"] for d in documents(path)) == list(range(2_500))
    print("exactly once" if once else "WRONG")


if __name__ == "__main__":
    main()
