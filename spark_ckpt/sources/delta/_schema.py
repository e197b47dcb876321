"""A Delta table's columns as Spark's, and what this source can read. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.delta._actions import Metadata, Protocol
from spark_ckpt.sources.delta._changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

READER_FEATURES = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
     "vacuumProtocolCheck")
)  # fmt: skip
"""What a table may ask of who reads it. Features of writers alone change nothing for a reader."""

_COORDINATED = ("delta.coordinatedCommits.commitCoordinator-preview", "delta.coordinatedCommits.commitCoordinator")
_CHANGE_FIELDS = ((CHANGE_TYPE, StringType()), (COMMIT_VERSION, LongType()), (COMMIT_TIMESTAMP, TimestampType()))


def check_readable(protocol: Protocol, shown: str) -> None:
    """Raises ``InvalidInputError`` naming what the table needs and this source does not have."""
    unknown = sorted(protocol.reader_features - READER_FEATURES)
    if protocol.reader_version > 3 or unknown:
        needs = f"table feature(s) {', '.join(unknown)}" if unknown else f"reader version {protocol.reader_version}"
        raise InvalidInputError(
            f"[DELTA_UNSUPPORTED_FEATURES_FOR_READ] {shown} needs {needs}, which source 'delta' does not have: "
            f"expected reader version 3 at most and of features {', '.join(sorted(READER_FEATURES))}. Drop the feature "
            "(ALTER TABLE ... DROP FEATURE), or stream a copy of the table"
        )


def check_metadata(metadata: Metadata, changes: bool, shown: str) -> None:
    """Raises ``InvalidInputError`` if its commits are elsewhere, or it records no changes and they are asked for."""
    coordinated = [name for name in _COORDINATED if name in metadata.configuration]
    if coordinated:
        raise InvalidInputError(
            f"{shown} has {coordinated[0]}: its newest commits are known to a catalog and not to its log, which is "
            "what source 'delta' reads; drop the feature coordinatedCommits"
        )
    if changes and not metadata.records_changes:
        raise InvalidInputError(
            f"[DELTA_MISSING_CHANGE_DATA] {shown} records no change data: expected the table property "
            "delta.enableChangeDataFeed=true, found it off. Set it with ALTER TABLE ... SET TBLPROPERTIES and begin "
            "behind that version (startingVersion), or leave readChangeFeed out"
        )


def stream_schema(metadata: Metadata, changes: bool, shown: str) -> StructType:
    """The columns of a stream of the table, all nullable; those of its change data feed behind them."""
    try:
        columns = _nullable(StructType.fromJson(json.loads(json.dumps(metadata.schema))))
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"{shown} has a column of a type that Spark does not have: {error}") from None
    assert isinstance(columns, StructType)
    columns = StructType([f for f in columns if not isinstance(f.dataType, NullType)])  # as Spark: no file has them
    if not changes:
        return columns
    taken = [name for name, _ in _CHANGE_FIELDS if name in columns.fieldNames()]
    if taken:
        raise InvalidInputError(
            f"{shown} has column(s) {', '.join(taken)}, which its change data feed has, too; rename them"
        )
    return StructType([*columns, *(StructField(name, kind) for name, kind in _CHANGE_FIELDS)])


def _nullable(kind: DataType) -> DataType:
    """Of what is noted about columns, with comments alone: the rest is Delta's own, or for whoever wrote the table, as
    is the delay of a watermark, which would be taken for one here."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType), metadata=_comment(f)) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def _comment(field: StructField) -> dict[str, Any]:
    return {name: value for name, value in field.metadata.items() if name == "comment"}


def same_columns(a: Metadata, b: Metadata) -> bool:
    """Whether files of both are read the same way: names, types, partition columns, and names in files."""
    return (shape(a.schema), a.partition_columns, a.mapping) == (shape(b.schema), b.partition_columns, b.mapping)


def shape(kind: Any) -> Any:
    """Of a type in Delta's JSON: what rows are read by, and no comments, nullability or marks of identity columns."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return [(f["name"], physical_name(f), field_id(f), shape(f["type"])) for f in kind["fields"]]
    return [(name, shape(kind[name])) for name in ("elementType", "keyType", "valueType") if name in kind]


def differences(a: Metadata, b: Metadata) -> str:
    """Of the top columns, for a message."""
    before, after = ({f["name"]: shape(f["type"]) for f in m.schema["fields"]} for m in (a, b))
    told = [f"column {name} is gone" for name in before if name not in after]
    told += [f"column {name} is new" for name in after if name not in before]
    told += [f"column {name} has another type" for name in before if name in after and before[name] != after[name]]
    return ", ".join(told) or "its columns are stored in another way"


def physical_name(field: Mapping[str, Any]) -> str:
    """What a column of Delta's JSON is called in files and partition values."""
    name: str = (field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"])
    return name


def field_id(field: Mapping[str, Any]) -> int | None:
    found = (field.get("metadata") or {}).get("delta.columnMapping.id")
    return None if found is None else int(found)
