"""What the report says around its figures."""

from __future__ import annotations

TITLES = {
    "keyed": "Keyed count and sum, 1 M rows a batch",
    "pandas": "The same, against one Python call a key",
    "peers": "The same, against Flink and Bytewax",
    "filtered": "Keyed count and sum behind a filter and a computed column",
    "windowed": "Count and sum in tumbling windows",
    "queries": "PySpark's own operators, the same lines on both",
    "sessions": "A per-key session function through applyInPandasWithState",
    "processors": "A StatefulProcessor, a call a key",
    "stateless": "No state: a filter into a Delta table, exactly once",
    "small": "Small batches: 1 K rows, 1 K keys",
    "skew": "Skewed keys: 1 M keys, 1 M rows a batch",
    "cluster": "A standalone cluster with two executors of one core",
    "state": "Large state",
    "snapshot": "A snapshot against a raw Parquet write",
    "curves": "Cost curves",
}
SIDES = {
    "ours": "spark_ckpt",
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
        "Most of ours is the user's function and the making of its rows or DataFrames, key by key, so the aims are "
        "missed. Measured later than the others, on another AMD EPYC."
    ),
    "filtered": (
        "`where` and `withColumn` are written as for Spark. Ours runs them in Arrow, next to the source "
        "(docs/expressions.md); before, with rows going through the JVM, it had 0.61 and 5.4 times the JVM's rate. "
        "This section was measured later than the others, on a slower machine (Intel; they on an AMD EPYC)."
    ),
    "windowed": (
        "Ours groups by the key and an expression for the window's start; the JVM by `window(ts, '10 seconds')`. State "
        "is not dropped on either side."
    ),
    "queries": (
        "1 M rows a batch over 10 K or 1 M keys. Event time moves on by 10 s every 2 M rows, with a watermark of 10 s, "
        "so windows close and state ends on both sides. A batch of the join of two streams has each key once on each "
        "side, at one moment; plain Spark reads the source once for each side."
    ),
    "sessions": "Plain Spark is sampled at 8 K keys a batch, of the same 100 K.",
    "stateless": (
        "Same source, rows, tasks. The plain sink writes a Parquet file a task and batch, and commits nothing."
    ),
    "small": "Ours with a checkpoint every 5 s.",
    "skew": "Zipf 1.2 gives the most frequent of 1 M keys 19% of the rows.",
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
- Bytewax: two processes with one worker each, recovery partitions on the local disk, a snapshot every 5 s. Written
  twice: each row an item, as its tutorials do, and with a block of 65,536 rows first added up by key with numpy,
  which leaves little for Bytewax to do. The aim is shown against both.
- Peak memory is the sum of private resident memory over the engine's processes, sampled twice a second. Mapped files
  do not count, because the system takes their pages back when it needs them. What a forked process shares with its
  parent counts in both. A session is reused within a section, so a JVM may still hold the heap of its largest run
  before.

Again: `make bench` (about an hour on 2 cores; it makes an environment a peer in `.bench/`, which needs 2 GB), or
`make bench ONLY=keyed,small` for single sections."""
