"""Methods of PySpark's DataFrame that a checkpointed stream does not have -> what to write instead. Driver."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.plan.plan_check import SAMPLE

_SUB_QUERY = (
    "no stream may be in a sub-query, of Spark's neither. One over a static DataFrame goes into the stream's where, "
    'select and withColumn: stream.where(F.col("k").isin(static.select("k"))), static.where(...).exists(), '
    'static.agg(F.max("v")).scalar()'
)
_RESULT = "a stream is no table: write it to a sink and read that (in a notebook, the sink memory)"
_FEWER = f'filter row by row, as with {SAMPLE} or where("id < 100")'
_STATISTIC = (
    "it gives a result back, as no stream does: agg(F.percentile_approx(...)), agg(F.corr(...)) and "
    "agg(F.covar_samp(...)) are streams, and so are describe and summary"
)
_WRITTEN = "write to a sink with writeStream, one of your own perhaps"
_COMMON = "where(F.struct(...).isin(static)); Spark's streams begin with it and refuse it at their start"
_KEPT = "a stream is not kept; its checkpoints are the job's (query.checkpoint(), query.savepoint(path))"

WAYS: Mapping[str, str] = {
    **dict.fromkeys(("exists", "scalar"), _SUB_QUERY),
    **dict.fromkeys(("collect", "count", "first", "head", "isEmpty", "show", "tail", "take"), _RESULT),
    **dict.fromkeys(("toArrow", "toLocalIterator", "toPandas"), _RESULT),
    **dict.fromkeys(("approxQuantile", "corr", "cov"), _STATISTIC),
    "freqItems": 'the values that are frequent are the first of groupBy("v").count()',
    "offset": _FEWER,
    **dict.fromkeys(("cache", "checkpoint", "localCheckpoint", "persist"), _KEPT),
    **dict.fromkeys(("foreach", "foreachPartition"), _WRITTEN),
    **dict.fromkeys(
        ("pandas_api", "plot", "rdd"), "what it makes is of all rows; writeStream.foreachBatch has batches"
    ),
    **dict.fromkeys(("intersect", "intersectAll"), _COMMON),
    **dict.fromkeys(("crosstab", "transpose"), "the columns of a stream are fixed, before any row has come"),
    "asTable": "it hands the rows to a table function, barriers among them; mapInPandas and mapInArrow have all rows",
    "exceptAll": (
        "Spark's streams take the other side off anew with each batch, and put out all copies so far; "
        'subtract(static), or join(static, on, "left_anti"), leave rows out'
    ),
    "executionInfo": "query.explain() and query.statistics() are about the running query",
    "inputFiles": "files are found as they come; the source knows which it has read by its checkpoints",
    "metadataColumn": "only what Spark itself reads has such columns: ckpt.readStream.spark(...) of a stream with them",
    "nearestByJoin": "it multiplies rows, barriers among them; a join by a condition, or cogroup with applyInPandas",
    "randomSplit": 'withColumn("r", F.rand()), and where on it for each part',
    **dict.fromkeys(("mergeInto", "write", "writeTo"), "write with writeStream"),
    "zip": 'both sides are projections of one stream: select("*", ...) with the columns of the other one',
    "toJSON": 'select(F.to_json(F.struct("id", "v")))',
}

AS_ARGUMENT = (
    "a stream cannot be handed to a method of a plain Spark DataFrame, or to a function of PySpark: call the method on "
    'the stream, as in stream.join(static, "k"), where static.join(stream, "k", "right") is '
    'stream.join(static, "k", "left"), and stream.union(other) with other from ckpt.readStream, too'
)
"""What classic PySpark asks for is the attribute ``_jdf``, or ``_get_object_id``."""
