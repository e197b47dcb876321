"""Which node of Spark's plans each relation of the client becomes: by it the ledger is read. Pure but for PySpark."""

from __future__ import annotations

NODES = {
    "Project": "Project", "WithColumns": "Project", "WithColumnsRenamed": "Project", "Drop": "Project",
    "ToDF": "Project", "ToSchema": "Project", "NAFill": "Project", "NAReplace": "Project",
    "Filter": "Filter", "NADrop": "Filter",
    "SubqueryAlias": "SubqueryAlias", "Hint": "ResolvedHint",
    "Repartition": "Repartition", "RepartitionByExpression": "RepartitionByExpression",
    "WithWatermark": "EventTimeWatermark", "Unpivot": "Expand", "Join": "Join",
    "MapPartitions": "MapInPandas", "CollectMetrics": "CollectMetrics", "Sort": "Sort", "Limit": "GlobalLimit",
    "ApplyInPandasWithState": "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark": "TransformWithStateInPySpark",
    "TransformWithStateInPandas": "TransformWithStateInPySpark",
    "SetOperation": "Union", "Aggregate": "Aggregate", "Deduplicate": "Deduplicate",
    "LateralJoin": "LateralJoin", "GroupMap": "FlatMapGroupsInPandas", "CoGroupMap": "FlatMapCoGroupsInPandas",
    "StatDescribe": "Generate", "StatSummary": "Generate",
    "Sample": "Sample", "Offset": "Offset", "Tail": "Tail", "AsOfJoin": "AsOfJoin", "NearestByJoin": "NearestByJoin",
    "Transpose": "Transpose", "Zip": "Zip", "DataSource": "StreamingRelationV2", "Read": "StreamingRelationV2",
}  # fmt: skip
"""Relations that an operation of PySpark's makes of a stream -> the class of Spark's node."""

NOT_OF_STREAMS = {
    "a table": (
        "CachedRemoteRelation", "ChunkedCachedLocalRelation", "CommonInlineUserDefinedDataSource",
        "CommonInlineUserDefinedTableFunction", "LocalRelation", "Parse", "Range", "UnresolvedTableValuedFunction",
    ),
    "the client does not know which rows Spark draws; write where(F.rand() < F.when(...))": ("StatSampleBy",),
    "changes of a table, which Spark itself reads": ("RelationChanges",),
    "it needs all rows at once, which a stream never has": (
        "StatApproxQuantile", "StatCorr", "StatCov", "StatCrosstab", "StatFreqItems", "HtmlString", "ShowString",
    ),
    "a command, and no query": (
        "AnalyzeTable", "CacheTable", "ClearCache", "CreateDatabase", "CreateTable", "CurrentCatalog",
        "CurrentDatabase", "DatabaseExists", "DropDatabase", "DropGlobalTempView", "DropTable", "DropTempView",
        "DropView",
        "FunctionExists", "GetCreateTableString", "GetDatabase", "GetFunction", "GetTable", "GetTableProperties",
        "IsCached", "ListCatalogs", "ListColumns", "ListDatabases", "ListFunctions", "ListPartitions", "ListTables",
        "ListViews", "RecoverPartitions", "RefreshByPath", "RefreshTable", "SetCurrentCatalog", "SetCurrentDatabase",
        "TableExists", "TruncateTable", "UncacheTable",
    ),
}  # fmt: skip
"""Why a stream does not go through them -> relations."""

TEXTS = ("CachedRelation", "SQL", "WithRelations")
"""Text that the server parses: the client does not know what is in it. ``spark.sql`` is a cached one."""
_SET_OPERATIONS = {"intersect": "Intersect", "except": "Except"}


def node_of(relation: object) -> str | None:
    """The class of Spark's node; None: this relation is none that a stream goes through."""
    kind = type(relation).__name__
    if kind == "SetOperation":
        return _SET_OPERATIONS.get(str(vars(relation)["set_op"]), "Union")
    if kind == "Deduplicate" and vars(relation)["within_watermark"]:
        return "DeduplicateWithinWatermark"
    return NODES.get(kind)


def why_not(relation: object) -> str:
    """Why a stream does not go through a relation that becomes no node of the ledger."""
    kind = type(relation).__name__
    found = (why for why, kinds in NOT_OF_STREAMS.items() if kind in kinds)
    return next(found, "an operation that came with a newer Spark than this library knows")
