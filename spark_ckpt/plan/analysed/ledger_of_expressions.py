"""What becomes of the kinds of expressions that matter to a stream: one table. Pure.

The translation asks here which generators, ranks and aggregates there are, and takes the texts of its refusals from
here. docs/methods.md shows this table. A test walks the classes of Spark's own jars that are generators, aggregate
functions, window functions, sub-queries, functions in Python or not deterministic, and fails on one that no row names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from spark_ckpt.execution.lineage import Leaves


class Where(Enum):
    ARROW = "in Arrow"
    SPARK = "in Spark"
    OPERATOR = "operator"
    ABSENT = "absent"
    """No analysed query of a stream has it."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Kind:
    """``classes``: of Catalyst, with spaces between. ``by``: what the translation knows the row by. ``says``: for the
    page, and for who is refused: why, and what to write."""

    classes: str
    where: Where
    says: str
    written: str = ""
    by: str = ""


_COUNT_EACH = "count the values by themselves, groupBy(..., 'v').count()"
_RANKS = "percentile_approx and percentile_disc, which are exact here, give ranks"
_DISTINCT = "approx_count_distinct keeps a sketch of its own, count(DISTINCT v) the values"
_ELEMENTS = "aggregate the elements, of select('k', F.posexplode('v')).groupBy('k', 'pos')"
_AGGREGATE = "refused aggregate"

KINDS_OF_EXPRESSIONS = (
    # --- functions of users
    Kind(
        "PythonUDF",
        Where.SPARK,
        "called for data rows only",
        "`udf`, `pandas_udf` and `arrow_udf`, of rows, columns and iterators",
    ),
    Kind("ApplyFunctionExpression ScalaUDF", Where.SPARK, "computed for data rows only", "functions of Java"),
    Kind(
        "PythonUDTF UnresolvedPolymorphicPythonUDTF FunctionTableSubqueryArgumentExpression",
        Where.REFUSED,
        "a Python table function would get control rows, too, so none can be joined with a stream. Let a function give "
        "an array of structs, and spread that: "
        'stream.select("*", F.inline(F.udf(words, "array<struct<word string, n int>>")("text")))',
        "Python table functions (UDTF), in FROM and behind LATERAL",
    ),
    Kind(
        "PythonUDAF",
        Where.REFUSED,
        "Spark's streams have no aggregate functions in Python: keep what you need with applyInArrowWithState or "
        "applyInPandasWithState, or compute it of collect_list",
        "`pandas_udf` and `arrow_udf` as aggregates",
        _AGGREGATE,
    ),
    Kind(
        "ScalaAggregator ScalaUDAF V2Aggregator",
        Where.REFUSED,
        "its state is an object of the JVM: keep what you need with applyInArrowWithState or applyInPandasWithState",
        "aggregates of Java and of catalogs",
        _AGGREGATE,
    ),
    # --- generators
    Kind(
        "Explode PosExplode Inline",
        Where.SPARK,
        "a control row has one element",
        "`explode`, `posexplode`, `inline` and their forms with `_outer`",
        "elements",
    ),
    Kind("Stack", Where.SPARK, "as `inline` of an array of structs", "`stack`"),
    Kind("JsonTuple", Where.SPARK, "one row of each", "`json_tuple`"),
    Kind(
        "Collations JsonTable SQLKeywords Unnest UserDefinedGenerator VariantExplode",
        Where.REFUSED,
        "expected explode, posexplode, inline, stack or json_tuple, found a generator that makes no row, or several, "
        "of a control row. Make an array of the elements, and explode that: of a variant, "
        'F.explode(F.col("v").cast("array<variant>"))',
        "`variant_explode`, `json_table`, `unnest`, `collations`, `sql_keywords`",
    ),
    # --- windows
    Kind(
        "RowNumber Rank DenseRank",
        Where.OPERATOR,
        "filtered to the first rows of each key",
        "`row_number`, `rank`, `dense_rank`",
        "rank",
    ),
    Kind(
        "CounterDiff CounterDiffWithStartTime CumeDist EWM Lag Lead NTile NthValue NullIndex PercentRank",
        Where.REFUSED,
        "a stream has row_number(), rank() and dense_rank() of windows over rows, filtered to the first of each key. "
        'For running values of a key write groupBy("k").aggregate(emit="rows", orderBy="t", total=agg.sum("v")); for '
        "what looks at other rows, transformWithState; over spans of time, groupBy(F.window(...))",
        "`lag`, `lead`, `ntile` and others, and aggregates, with OVER",
        "other window",
    ),
    Kind("TimeWindow WindowTime", Where.ARROW, "the rows get their windows", "`window`, `window_time`"),
    Kind("SessionWindow", Where.OPERATOR, "sessions merge by their gap", "`session_window`"),
    # --- aggregates
    Kind(
        "AnyValue ApproximatePercentile Average BitAndAgg BitOrAgg BitXorAgg BitmapAndAgg BitmapConstructAgg "
        "BitmapOrAgg BoolAnd BoolOr CollectList CollectSet Corr Count CountIf CovPopulation CovSample First "
        "HyperLogLogPlusPlus Kurtosis Last ListAgg Max MaxBy MaxMinByK Median Min MinBy Mode Percentile "
        "PercentileCont PercentileDisc Product RegrAvgX RegrAvgY RegrCount RegrIntercept RegrR2 RegrSXX "
        "RegrSXY RegrSYY RegrSlope Skewness StddevPop StddevSamp Sum VariancePop VarianceSamp",
        Where.OPERATOR,
        "kept by key, also with DISTINCT and FILTER",
        "[aggregate functions](aggregates.md)",
    ),
    Kind("PivotFirst", Where.OPERATOR, "as `first` of each value", "`pivot`"),
    Kind(
        "ApproxTopK ApproxTopKAccumulate ApproxTopKCombine",
        Where.REFUSED,
        f"{_COUNT_EACH}, and topN",
        "`approx_top_k`",
        _AGGREGATE,
    ),
    Kind(
        "CollectUnion",
        Where.REFUSED,
        "collect the elements, of select('k', F.explode('v')).groupBy('k').agg(F.collect_set('col'))",
        "`collect_union`",
        _AGGREGATE,
    ),
    Kind("CountMinSketchAgg", Where.REFUSED, _COUNT_EACH, "`count_min_sketch`", _AGGREGATE),
    Kind(
        "HistogramNumeric",
        Where.REFUSED,
        "count buckets, groupBy(..., F.width_bucket('v', low, high, n)).count()",
        "`histogram_numeric`",
        _AGGREGATE,
    ),
    Kind(
        "HllSketchAgg HllUnionAgg ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg "
        "TupleIntersectionAggDouble TupleIntersectionAggInteger TupleSketchAggDouble TupleSketchAggInteger "
        "TupleUnionAggDouble TupleUnionAggInteger",
        Where.REFUSED,
        _DISTINCT,
        "sketches of distinct values (`hll_`, `theta_`, `tuple_`)",
        _AGGREGATE,
    ),
    Kind(
        "KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat",
        Where.REFUSED,
        _RANKS,
        "sketches of ranks (`kll_`)",
        _AGGREGATE,
    ),
    Kind("Measure", Where.REFUSED, "write out what the metric view measures", "`measure`", _AGGREGATE),
    Kind(
        "SchemaOfVariantAgg",
        Where.REFUSED,
        "read values with a schema, by from_json or variant_get",
        "`schema_of_variant_agg`",
        _AGGREGATE,
    ),
    Kind("VectorAvg VectorSum", Where.REFUSED, _ELEMENTS, "`vector_avg`, `vector_sum`", _AGGREGATE),
    # --- sub-queries
    Kind(
        "ScalarSubquery ListQuery Exists",
        Where.SPARK,
        "of tables: for data rows only. Spark refuses one of a stream, and one that Spark computes by an aggregation "
        "of the stream is refused here",
        "a query as a value, IN, EXISTS",
    ),
    Kind("LateralSubquery", Where.SPARK, "over a table, or what a generator makes of the row", "LATERAL"),
    # --- not deterministic
    Kind(
        "MonotonicallyIncreasingID Rand RandStr Randn Shuffle SparkPartitionID Uniform Uuid",
        Where.SPARK,
        "made for each batch, and anew where a batch is repeated behind a failure",
        "`rand`, `uuid`, `shuffle`, `monotonically_increasing_id`, `spark_partition_id`",
    ),
    Kind(
        "CurrentBatchTimestamp CurrentDate CurrentTime CurrentTimestamp CurrentTimestampNanos LocalTimestamp Now",
        Where.SPARK,
        "the time of each batch",
        "`current_timestamp`, `current_date`, `now`",
    ),
    Kind("CallMethodViaReflection", Where.SPARK, "called for data rows only", "`reflect`, `java_method`"),
    Kind(
        "InputFileBlockLength InputFileBlockStart InputFileName",
        Where.SPARK,
        "of `format('parquet')` and Spark's other names of file formats, whose files Spark reads; refused of others",
        "`input_file_name`, `input_file_block_start`",
    ),
    # --- in no analysed query of a stream
    Kind(
        "ApproxCountDistinctForIntervals BloomFilterAggregate ComplexTypedAggregateExpression "
        "DynamicPruningSubquery InSubqueryExec PrettyPythonUDF ReplicateRows RegrReplacement "
        "SimpleTypedAggregateExpression",
        Where.ABSENT,
        "the optimizer, Datasets of Scala or a message of Spark's has it",
    ),
    Kind(
        "CollectFrequentItems CollectTopK PandasCovar PandasKurtosis PandasMode PandasProduct PandasSkewness "
        "PandasStddev PandasVariance",
        Where.ABSENT,
        "pandas on Spark and statistics have it, which take no streams",
    ),
    Kind("GeneratorOuter UnresolvedGenerator", Where.ABSENT, "the analyser puts something else in its place"),
)

NEW_IN_4_3 = frozenset(
    {"CollectUnion", "CounterDiff", "CounterDiffWithStartTime", "CurrentTimestampNanos", "JsonTable", "Unnest"}
)
"""What PySpark 4.2 has not."""

_UNKNOWN = Kind("", Where.REFUSED, "a kind of expression that came with a newer Spark than this library knows")
_BY_CLASS = {name: kind for kind in KINDS_OF_EXPRESSIONS for name in kind.classes.split()}


def kind_of_expression(name: str) -> Kind:
    """The row of a class of expression, of the kinds that the ledger is about. One that no row names is refused."""
    return _BY_CLASS.get(name, _UNKNOWN)


def classes_by(by: str) -> tuple[str, ...]:
    """The classes of the row that the translation knows so."""
    return next(tuple(kind.classes.split()) for kind in KINDS_OF_EXPRESSIONS if kind.by == by)


def says_of(by: str) -> str:
    return next(kind.says for kind in KINDS_OF_EXPRESSIONS if kind.by == by)


_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def refused_aggregates() -> dict[str, str]:
    """Aggregates by the names that SQL has for them, and what is there instead: for Spark Connect, whose client knows
    no classes. ``HllSketchAgg`` is ``hll_sketch_agg``; one has a name of its own."""
    found = {_WORDS.sub("_", c).lower(): k.says for c, k in _BY_CLASS.items() if k.by == _AGGREGATE}
    return {**found, "count_min_sketch": _COUNT_EACH}


def expressions_table() -> str:
    """What users write, for docs/methods.md, in Markdown."""
    lines = ["| expressions | where they run | |", "|---|---|---|"]
    for kind in KINDS_OF_EXPRESSIONS:
        if kind.where is not Where.ABSENT:
            lines.append(f"| {kind.written} | {kind.where.value} | {kind.says} |")
    return "\n".join(lines) + "\n"


def leaves_table() -> str:
    """Why rows leave Arrow, for docs/design/front-door.md."""
    lines = ["| | rows leave Arrow for Spark because of |", "|---|---|"]
    lines += [f"| {why.name.lower()} | {why.value} |" for why in Leaves]
    return "\n".join(lines) + "\n"
