"""What the report says around its figures."""

from __future__ import annotations

TITLES = {
    "keyed": "Keyed count and sum, 1 M rows a batch",
    "pandas": "The same, against one Python call a key",
    "peers": "The same, against Flink and Bytewax",
    "filtered": "Keyed count and sum behind a filter and a computed column",
    "windowed": "Count and sum in tumbling windows",
    "answers": "Streaming operators: whether the engines answer the same",
    "aggregates": "groupBy.agg: count, sum and max",
    "windows": "Windows: count and sum of each key",
    "session_windows": "Session windows",
    "deduplication": "De-duplication",
    "joins": "Joins: with a static table, and of two streams",
    "topn": "Top-N: the first three rows of each key",
    "sessions": "A per-key session function through applyInPandasWithState",
    "processors": "A StatefulProcessor, a call a key",
    "stateless": "No state: a filter into a Delta table, exactly once",
    "small": "Small batches: 1 K rows, 1 K keys",
    "operated": "Seen while it runs: everything on against off",
    "skew": "Skewed keys: 1 M keys, 1 M rows a batch",
    "latency": "End-to-end latency: from an event's time in Kafka to a row in Kafka, PostgreSQL and Delta",
    "cluster": "A standalone cluster with two executors of one core",
    "state": "Large state",
    "snapshot": "A snapshot against a raw Parquet write",
    "savepoints": "Savepoints of large state",
    "curves": "Cost curves",
}
SIDES = {
    "ours": "spark_ckpt",
    "spark": "Spark (RocksDB)",
    "jvm": "Spark JVM groupBy.agg (RocksDB)",
    "pandas": "Spark, a call a key in Python (RocksDB)",
}

NOTES = {
    "keyed": "Ours takes a checkpoint every 5 s; Spark has its own, every batch. Two turns each.",
    "pandas": (
        "`applyInPandasWithState` is sampled at 1 M keys: a batch touches 20 K of them, each once, because all of them "
        "would take half an hour; it never gets to store 1 M keys either, which is in its favour."
    ),
    "peers": (
        "Slopes between two sizes in rows, so that start-up and the first touch of keys do not count, except PyFlink "
        "and Bytewax with 1 M keys, whose slopes are between two sizes that both bring new keys. Every engine may hold "
        "rows back for about a second: Flink in mini-batches, ours in larger batches than in the other sections. Ours "
        "ran before and after them: the mean."
    ),
    "processors": (
        "`transformWithState` on both, the same processor; of 1 M keys, plain Spark is sampled: 10 K of them a batch. "
        "What is left of ours is one call a key: about 2 us of a core for rows, 0.9 of it the processor, and 100 "
        'for DataFrames, of which `frame["v"].sum()` and `pd.DataFrame({...})` in the processor take 65.'
    ),
    "filtered": (
        "`where` and `withColumn` are written as for Spark. Ours runs them in Arrow, next to the source "
        "(docs/expressions.md); before, with rows going through the JVM, it had 0.61 and 5.4 times the JVM's rate."
    ),
    "windowed": (
        "Ours groups by the key and an expression for the window's start; the JVM by `window(ts, '10 seconds')`. State "
        "is not dropped on either side."
    ),
    "answers": (
        "12 K rows of 200 keys through each query: how many rows come out, once updates and changes are applied, and "
        "whether they are equal, row by row. Of windows those that all engines have closed by the end."
    ),
    "aggregates": "1 M rows a batch, as in the next sections; on plain Spark and ours the same lines of PySpark.",
    "windows": (
        "Tumbling windows of 10 s, and such that slide by 5 s, so that each row is in two. Event time moves on by 10 s "
        "with each batch of 1 M rows, with a watermark of 10 s: with 1 M keys each batch opens and closes a window of "
        "each. Flink's are window functions (`TUMBLE`, `HOP`)."
    ),
    "session_windows": "With a gap of 5 s; event time as for windows. Flink's is the window function `SESSION`.",
    "deduplication": (
        "By key and event time, and by key within the watermark; event time moves on by 10 s every 2 M rows. Flink's "
        "keeps the first row (`ROW_NUMBER() OVER (... ORDER BY proctime) = 1`), with a time-to-live of the state of "
        "1 min and 10 s: it has no de-duplication whose state ends with the watermark, so the second is only a "
        "neighbour."
    ),
    "joins": (
        "Half of the keys have a row in the static table, which has as many as there are keys; Flink joins it as a "
        "versioned table as of each row's time, because it has no static one. A moment of the join of two streams has "
        "each key once on each side; plain Spark reads the source once for each side; Flink's is an interval join. The "
        "static joins were measured again, all three engines in one run, when ours came into Python; the joins of two "
        "streams are those of the run before."
    ),
    "topn": (
        "Plain Spark has no `row_number()` on streams, so there is nothing of its to compare with. Flink's is "
        "`ROW_NUMBER() OVER (PARTITION BY k ORDER BY price DESC, v) ... <= 3` with the place as a column; ours is "
        '`groupBy("k").topN(3, F.desc("price"), "v", rank="place")`. Both tell changes, ours those of a whole batch.'
    ),
    "sessions": "Plain Spark is sampled at 8 K keys a batch, of the same 100 K.",
    "stateless": (
        "Same source, rows, tasks. The plain sink writes a Parquet file a task and batch, and commits nothing."
    ),
    "small": "Ours with a checkpoint every 5 s.",
    "operated": (
        "On: `spark.ckpt.metrics.port` scraped every second, `spark.ckpt.otel` with an SDK that exports every 5 s, "
        "`spark.ckpt.log.format=json`, and `spark-ckpt ui` with its pages of the list and of the job reloaded every "
        "3 s, all on the two cores that the query has."
    ),
    "skew": "Zipf 1.2 gives the most frequent of 1 M keys 19% of the rows.",
    "latency": (
        'JSON events of 1,000 keys in a Kafka topic of two partitions; `groupBy("k").agg(count, sum)`; ours writes '
        "the updated rows into Kafka, PostgreSQL (by key) and Delta (appended) under one checkpoint, Flink SQL into "
        "Kafka alone (`upsert-kafka`, exactly once). Producer, broker, PostgreSQL, engine and those who watch share "
        "the same two cores. Fifty events a second are probes: each has a key of its own, so one row of it appears in "
        "each sink, and it is known when the event was due and checked that nothing else is in the row. Times are "
        "those at which a consumer with `read_committed` gets the row, a SELECT by key every 5 ms finds it, and the "
        'file of the Delta version with it got its name (looked up afterwards). "All three" is the last of them, for '
        "each event. The time of an event is when it was due, so a producer that is late counts as latency, too. 90 s "
        "of warm-up, as a JVM compiles for more than a minute what each batch runs, then 30 s, of a job that was just "
        "started in a session that runs one after the other. Flink runs without mini-batches. At the end of a run of "
        "ours count and sum over all keys in PostgreSQL are those of all events, or the run counts as failed."
    ),
    "savepoints": (
        "Two long columns and a key, filled with 2 M rows a batch, and ten more batches of 100 K rows. Raw is pyarrow "
        "with its defaults, for the same rows in as many files, two files at a time, without a sync to the disk. A "
        "savepoint is no link to the job's files: live rows are read, written again without those that are dead, and "
        "synced. A restore links the savepoint's files into the job's folder and reads what a batch touches, so its "
        "figures are until the first batch of 100 K keys is through, beyond that of a fresh start of the same query, "
        "and all rows read into this process by `ckpt.state`. The migration multiplies a column; Spark does the same "
        "to the raw files. The import is of the checkpoint of a plain Spark query (RocksDB), and raw is Spark's own "
        "reader of that state into Parquet. Each start twice, in turns: the quicker one. The run of November 28 shared "
        "the machine with other work (load 5 to 12): a fresh start took longer than a restore, so the difference of "
        "the two is not known."
    ),
    "cluster": ("Master, worker and two executor JVMs on the same two cores; executors share nothing but the disk."),
    "state": (
        "Filled with 2 M rows a batch; then batches that touch 1 K, 10 K, 1 M and 100 K keys, spread evenly over all. "
        "Then a checkpoint, a stop, and a start at a new Spark location with a new cache folder in the same session; "
        "pages of the state files may still be in the system's cache."
    ),
}

HOW = """## How it is measured

- One process an engine, started once a section; within a section the engines take turns. Warm-up batches are left
  out.
- Spark engines run without a pause between batches for a fixed time, so rows/s counts the wall clock of all measured
  batches, those with a checkpoint too; the median batch is over the same batches. All sinks but the stateless ones
  throw rows away.
- All Spark engines read the same Python source: row *i* has the key `i * 2654435761 % keys` and the value *i*.
- Ours: `spark.ckpt.interval=5s` and otherwise the defaults, HDFS-backed state store provider; plain Spark: RocksDB with
  changelog checkpoints. Two shuffle partitions, `local[2]`, Arrow batches of 65,536 rows. On a local disk ours sets
  Spark's checkpoint file manager that starts no processes (docs/design/speed-of-checkpoints.md); plain Spark has its
  default.
- The keyed workloads group a source by its own column, so ours chains source and pack stage. In the section with
  a filter, that and the computed column run there, too.
- Flink: a sequence made and keyed on the JVM, parallelism 2, object reuse, hashmap state (faster here than RocksDB),
  incremental checkpoints every 5 s to the local disk, 1 GiB managed memory. SQL with 10 K keys: mini-batches of 200 K
  rows or 1 s and two-phase aggregation (faster than 50 K, 1 M and 5 M rows); with 1 M keys: none (0.8 M rows/s; with
  5 K to 5 M rows 0.7 to 0.4 M); blackhole sink. PyFlink: a `KeyedProcessFunction` with one `ValueState`, process mode
  (thread mode was slower), bundles of 100 K rows or 1 s, a state cache for all keys, Arrow batches of 10 K, discarding
  sink.
- Streaming operators: for each query one engine behind the other, ours and plain Spark for 4 to 8 s behind their
  warm-up, Flink with as many rows as it takes 4 s for. Flink's two readers take every other row each, so that both are
  at the same event time. A run that fails or takes more than four minutes is named as such.
- Bytewax: two processes with one worker each, recovery partitions on the local disk, a snapshot every 5 s. Written
  twice: each row an item, as its tutorials do, and with a block of 65,536 rows first added up by key with numpy,
  which leaves little for Bytewax to do. The aim is shown against both.
- Peak memory is the sum of private resident memory over the engine's processes, sampled twice a second. Mapped files
  do not count, because the system takes their pages back when it needs them. What a forked process shares with its
  parent counts in both. A session is reused within a section, so a JVM may still hold the heap of its largest run
  before.

Again: `make bench` (an hour and a quarter on 2 cores; it makes an environment a peer in `.bench/`, which needs 2 GB),
or `make bench ONLY=keyed,small` for single sections, `ONLY=queries` for the streaming operators; `BENCH_ARGS=--resume`
leaves out what the same commit has measured. The section on latency starts a Kafka broker and PostgreSQL; Maven fetches
Flink's connector for Kafka."""
