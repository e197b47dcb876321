"""What becomes of each class of node in a plan that Spark has analysed: one table. Pure.

The translation looks here what to call, the page docs/design/front-door.md shows this table, and a test walks the
classes of Spark's own jars and fails on one that no row names. A new node is a row here and a small module.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from spark_ckpt.execution.lineage import Leaves

_COMPUTED = (Leaves.FUNCTION, Leaves.FORM, Leaves.TYPE, Leaves.SETTING)


class How(Enum):
    ROW_BY_ROW = "row by row"
    """Looks at each row alone: in Arrow where all its expressions have a counterpart there, else in Spark."""
    NAMES = "names only"
    """Says how columns may be called, or advises Spark's planner: no rows change."""
    RULE = "Spark's rule"
    """A rule of Spark's writes it as other nodes, in front of the translation."""
    OPERATOR = "operator"
    """Keeps state, or works on a whole batch."""
    SOURCE = "source"
    """Rows begin here."""
    STATIC = "static"
    """Part of a table that a stream is joined with; Spark keeps it."""
    ABSENT = "absent"
    """No analysed query that can be streamed has it."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Entry:
    """``nodes``: classes, with spaces between, or patterns of names: what fits one, and no row names itself, is in no
    analysed query. ``by``: the handler, or Spark's rule. ``says``: for the page, and for who is refused: why, and what
    to write. ``written``: what makes such a node in PySpark and SQL, for the page. ``leaves``: why its rows may leave
    Arrow.
    """

    nodes: str
    how: How
    by: str = ""
    says: str = ""
    written: str = ""
    leaves: tuple[Leaves, ...] = ()

    def refusal(self, kind: str) -> str:
        """What is told of a node of this ``kind``: how users write it, and what the row says."""
        return f"{kind} ({self.written}): {self.says}" if self.written else f"{kind}: {self.says}"


LEDGER = (
    Entry(
        "Project",
        How.ROW_BY_ROW,
        "projection",
        "columns are computed for data rows only; windows in Arrow",
        "`select`, `selectExpr`, `withColumn`, `withColumnRenamed`, `drop`, `toDF`, `fillna`, `replace`, `to`",
        _COMPUTED,
    ),
    Entry(
        "Filter",
        How.ROW_BY_ROW,
        "filter",
        "control rows pass; of a number of rows it says how many are kept",
        "`where`, `filter`, `dropna`, HAVING, QUALIFY",
        _COMPUTED,
    ),
    Entry(
        "Generate",
        How.ROW_BY_ROW,
        "row by row",
        "data rows are multiplied, control rows come once",
        "`explode`, `posexplode`, `inline`, `stack`, LATERAL VIEW",
        (Leaves.OPERATION,),
    ),
    Entry(
        "Repartition RepartitionByExpression RebalancePartitions",
        How.ROW_BY_ROW,
        "row by row",
        "Spark moves rows; the place of a control row means nothing",
        "`repartition`, `repartitionByRange`, `coalesce`",
        (Leaves.OPERATION,),
    ),
    Entry(
        "SubqueryAlias View PipeOperator ResolvedHint",
        How.NAMES,
        "names only",
        "columns are known by their ids",
        "`alias`, `hint`, views, `|>`",
    ),
    Entry(
        "EventTimeWatermark",
        How.ROW_BY_ROW,
        "watermark",
        "rows are numbered with their watermark's stream",
        "`withWatermark`",
    ),
    Entry(
        "UpdateEventTimeWatermarkColumn",
        How.ROW_BY_ROW,
        "output times",
        "the event time of what a processor puts out",
        "`eventTimeColumnName` of `transformWithState`",
    ),
    Entry(
        "Sample",
        How.ROW_BY_ROW,
        "sample",
        "rows are drawn anew with each batch",
        "`sample`, `sampleBy`, TABLESAMPLE",
        (Leaves.OPERATION,),
    ),
    Entry(
        "Expand",
        How.ROW_BY_ROW,
        "expand",
        "grouping sets, UNPIVOT, windows; control rows come once",
        "`rollup`, `cube`, `groupingSets`, `unpivot`, sliding `window`",
        (Leaves.OPERATION,),
    ),
    Entry(
        "Join",
        How.ROW_BY_ROW,
        "join",
        "a stream with a table; of two streams it is an operator, whose rows wait for each other",
        "`join`, `crossJoin`, `IN`, `EXISTS`",
        (Leaves.TABLE, *_COMPUTED),
    ),
    Entry(
        "LateralJoin",
        How.ROW_BY_ROW,
        "lateral join",
        "with a table, or what a generator makes of the row",
        "`lateralJoin`, LATERAL",
        (Leaves.TABLE,),
    ),
    Entry(
        "MapInArrow MapInPandas",
        How.ROW_BY_ROW,
        "map rows",
        "the function sees data rows only",
        "`mapInArrow`, `mapInPandas`",
    ),
    Entry(
        "AttachDistributedSequence",
        How.ROW_BY_ROW,
        "numbers",
        "the rows of a batch get numbers",
        "`zipWithIndex`",
        (Leaves.WHOLE,),
    ),
    Entry(
        "CollectMetrics",
        How.ROW_BY_ROW,
        "metrics",
        "`observe` measures data rows only",
        "`observe`",
        (Leaves.OPERATION,),
    ),
    Entry(
        "Sort", How.ROW_BY_ROW, "sort", "whole results of output mode complete", "`orderBy`, `sort`", (Leaves.WHOLE,)
    ),
    Entry("GlobalLimit", How.OPERATOR, "limit", "counts rows over time, or those of each whole result", "`limit`"),
    Entry("LocalLimit", How.NAMES, "limit", "Spark puts it under `GlobalLimit`", "`limit`"),
    Entry(
        "FlatMapGroupsInPandasWithState",
        How.OPERATOR,
        "function with state",
        "`applyInPandasWithState`",
        "`groupBy().applyInPandasWithState`",
    ),
    Entry(
        "TransformWithStateInPandas TransformWithStateInPySpark",
        How.OPERATOR,
        "processor",
        "a table for each state variable",
        "`groupBy().transformWithState`, `transformWithStateInPandas`",
    ),
    Entry(
        "FlatMapGroupsInPandas FlatMapGroupsInArrow",
        How.ROW_BY_ROW,
        "batch groups",
        "`applyInPandas`, `applyInArrow`: the groups of a batch; the function sees data rows only",
        "`groupBy().applyInPandas`, `applyInArrow`",
        (Leaves.WHOLE,),
    ),
    Entry(
        "FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow",
        How.ROW_BY_ROW,
        "batch cogroups",
        "the groups that two streams, or a stream and a table, have in a batch",
        "`groupBy().cogroup(...).applyInPandas`, `applyInArrow`",
        (Leaves.WHOLE,),
    ),
    Entry(
        "Union", How.ROW_BY_ROW, "union", "the barriers of all sides are aligned behind it", "`union`, `unionByName`"
    ),
    Entry(
        "Aggregate",
        How.OPERATOR,
        "aggregate",
        "keyed state under `uid(...)`",
        "`groupBy().agg`, `count`, `pivot`, `describe`, `subtract`",
    ),
    Entry(
        "Deduplicate DeduplicateWithinWatermark",
        How.OPERATOR,
        "deduplicate",
        "keeps keys",
        "`dropDuplicates`, `distinct`, `dropDuplicatesWithinWatermark`",
    ),
    Entry(
        "Distinct",
        How.OPERATOR,
        "distinct",
        "a rule of Spark's writes it as an aggregation of all columns",
        "SELECT DISTINCT, UNION",
    ),
    Entry(
        "Window",
        How.OPERATOR,
        "ranks",
        "`row_number()`, `rank()` and `dense_rank()` that are filtered to the first rows of each key",
        "`row_number().over(...)` with a filter",
    ),
    # --- what rules of Spark's write as others
    Entry("WithCTE CTERelationDef CTERelationRef", How.RULE, "InlineCTE", "each use of a WITH is built anew", "WITH"),
    Entry(
        "Intersect Except",
        How.OPERATOR,
        "set operation",
        "a rule of Spark's writes it as a join of distinct rows",
        "`intersect`, `exceptAll`",
    ),
    # --- where rows begin
    Entry(
        "StreamingRelationV2 StreamingRelation",
        How.SOURCE,
        "spark stream",
        "a stream that Spark itself reads rides under barriers",
        "`spark.readStream`",
    ),
    Entry(
        "LocalRelation LogicalRDD ExternalRDD LogicalRelation DataSourceV2Relation HiveTableRelation "
        "InMemoryRelation OneRowRelation Range ResolvedInlineTable EmptyRelation",
        How.STATIC,
        says="a table; a stream is joined with it",
        written="`spark.read`, `createDataFrame`, `range`, `table`",
    ),
    # --- refused
    Entry(
        "LimitAll Offset Tail",
        How.REFUSED,
        says="a stream has no end that rows could be counted from: rank rows of each key by row_number() and a filter",
        written="`offset`, `tail`, LIMIT ALL",
    ),
    Entry(
        "AsOfJoin NearestByJoin DomainJoin OrderedJoin",
        How.REFUSED,
        says="write the join by a range of time and a row_number() that is filtered to 1",
        written="`nearestByJoin`, as-of joins",
    ),
    Entry(
        "UnionLoop UnionLoopRef",
        How.REFUSED,
        says="a recursive WITH over a stream would not end: compute the recursion over a table and join it",
        written="WITH RECURSIVE",
    ),
    Entry(
        "ScriptTransformation",
        How.REFUSED,
        says="Spark would give control rows to the script: write mapInArrow, which sees data rows only",
        written="TRANSFORM ... USING",
    ),
    Entry(
        "Transpose SequentialStreamingUnion Pivot PythonWorkerLogs",
        How.REFUSED,
        says="it needs all rows at once, which a stream never has",
        written="`transpose`, `pivot` without values",
    ),
    Entry(
        "Zip",
        How.REFUSED,
        says="Spark would pair control rows too: write one `select` of all the columns",
        written="`zip`",
    ),
    Entry(
        "BinBy",
        How.REFUSED,
        says="Spark would scale the values of control rows: return the bins as an array from a function, explode it",
        written="BIN BY",
    ),
    Entry(
        "MapPartitionsExternalUDF",
        How.REFUSED,
        says="Spark would give control rows to the function: write mapInArrow, which sees data rows only",
        written="functions of other languages",
    ),
    Entry(
        "AppendColumns* CoGroup DeserializeToObject FlatMapGroupsInR* FlatMapGroupsWithState MapElements "
        "MapGroups MapPartitions MapPartitionsInR* SerializeFromObject TransformWithState TypedFilter",
        How.REFUSED,
        says="an operation of Scala's or R's Datasets: control rows have no object. Write it in PySpark or SQL",
        written="Datasets of Scala and R",
    ),
    Entry(
        "SQLTableFunction SQLFunctionNode",
        How.REFUSED,
        says="write the query of the function in its place, as a temporary view or in WITH",
        written="table functions that CREATE FUNCTION made",
    ),
    # --- in no analysed query of a stream
    Entry(
        "AutoCdcInto Call CommandResult CreateTable InsertInto* MergeRows MultiResult Write*",
        How.ABSENT,
        says="a command, and no query",
    ),
    Entry(
        "*ParameterizedQuery *Reference *Unresolved* CurrentNamespace$ DataFrameDropColumns DummyExpressionHolder "
        "ExecuteImmediateQuery "
        "MetricViewPlaceholder NamedStreamingRelation RelationChanges RelationTimeTravel Resolved* Subquery "
        "TemporaryViewRelation Unpivot WithWindowDefinition",
        How.ABSENT,
        says="the analyser puts something else in its place",
    ),
    Entry(
        "*EvalPython* DataSourceV2ScanRelation LogicalQueryStage MemoryPlan NonGroupingAggregateReference "
        "OffsetHolder ReturnAnswer ScanBuilderHolder StreamingExecutionRelation StreamingDataSourceV2* "
        "WindowGroupLimit",
        How.ABSENT,
        says="the optimizer or the execution makes it, behind the analysis",
    ),
    Entry("*Statement ErrorCondition ExceptionHandler", How.ABSENT, says="a statement of an SQL script, and no query"),
)

NEW_IN_4_3 = frozenset({"AutoCdcInto", "BinBy", "MapPartitionsExternalUDF", "Zip"})
"""The nodes that Spark 4.2 does not have."""

ONLY_IN_4_0 = frozenset({"ExecuteImmediateQuery", "TransformWithStateInPandas"})

_UNKNOWN = Entry("", How.REFUSED, says="a kind of operation that came with a newer Spark than this library knows")
_BY_NODE = {node: entry for entry in LEDGER for node in entry.nodes.split()}


def entry_of(node: str) -> Entry:
    """The row of a class of node. One that no row names is refused."""
    return _BY_NODE.get(name_of(node) or "", _UNKNOWN)


def name_of(node: str) -> str | None:
    """What names a class of node in the ledger: itself, or else the first pattern that it fits."""
    return node if node in _BY_NODE else next((name for name in _BY_NODE if fnmatchcase(node, name)), None)


def ledger_table() -> str:
    """All of the ledger for docs/design/front-door.md, in Markdown."""
    lines = ["| nodes of Spark's plan | what becomes of them | | leaves Arrow for |", "|---|---|---|---|"]
    for entry in LEDGER:
        names = ", ".join(f"`{node}`" for node in sorted(entry.nodes.split()))
        leaves = ", ".join(why.name.lower() for why in entry.leaves)
        lines.append(f"| {names} | {_how(entry)} | {entry.says} | {leaves} |")
    return "\n".join(lines) + "\n"


def written_table() -> str:
    """What users write, for docs/methods.md, in Markdown."""
    lines = ["| you write | what becomes of it | |", "|---|---|---|"]
    for entry in LEDGER:
        if entry.how is not How.ABSENT:
            lines.append(f"| {entry.written.replace('|', '&#124;')} | {_how(entry)} | {entry.says} |")
    return "\n".join(lines) + "\n"


def _how(entry: Entry) -> str:
    return f"{entry.how.value}: `{entry.by}`" if entry.how is How.RULE else entry.how.value
