"""Arrow schemas as Delta schema strings and back, for the types that occur in state."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.arrow_types import DELTA_NAMES, MAX_PRECISION
from spark_ckpt.errors import InvalidInputError

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_TO_DELTA = DELTA_NAMES | {pa.large_string(): "string", pa.large_binary(): "binary"}
_FROM_DELTA = {name: plain for plain, name in DELTA_NAMES.items()}


def to_delta_schema(schema: pa.Schema) -> str:
    """The Delta ``schemaString`` of ``schema``; every column is nullable. Driver, before the query starts.

    Raises ``InvalidInputError`` for a name or a type that a Delta table cannot have without column mapping.
    """
    return json.dumps(_struct(list(schema), ""), separators=(",", ":"))


def from_delta_schema(schema_string: str) -> pa.Schema:
    """The Arrow schema of a ``schemaString`` that :func:`to_delta_schema` made."""
    return pa.schema(list(_arrow(json.loads(schema_string))))


def table_features(schema: pa.Schema) -> list[str]:
    """Delta table features that ``schema`` needs."""
    return ["timestampNtz"] if _has_local_times(pa.struct(list(schema))) else []


def _has_local_times(arrow: pa.DataType) -> bool:
    if pt.is_timestamp(arrow):
        return arrow.tz is None
    return any(_has_local_times(arrow.field(i).type) for i in range(arrow.num_fields))


def describe_columns(schema_string: str) -> str:
    """Names and types, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in from_delta_schema(schema_string))


_SPARK_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


def column_types(schema_string: str) -> dict[str, str]:
    """Each column's type as Spark writes it: ``bigint``, ``array<struct<a:int>>``."""
    return {f["name"]: _in_spark(f["type"]) for f in json.loads(schema_string)["fields"]}


def _in_spark(kind: Any) -> str:
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        fields = (f"{f['name']}:{_in_spark(f['type'])}" for f in kind["fields"])
        return f"struct<{','.join(fields)}>"
    if kind["type"] == "array":
        return f"array<{_in_spark(kind['elementType'])}>"
    return f"map<{_in_spark(kind['keyType'])},{_in_spark(kind['valueType'])}>"


def _struct(fields: list[pa.Field], where: str) -> dict[str, Any]:
    seen: dict[str, str] = {}
    for field in fields:
        _check_name(field.name, where, seen)
    return {
        "type": "struct",
        "fields": [
            {"name": f.name, "type": _delta(f.type, where + f.name), "nullable": True, "metadata": {}} for f in fields
        ],
    }


def _check_name(name: str, where: str, seen: dict[str, str]) -> None:
    if not name or _FORBIDDEN.search(name):
        raise InvalidInputError(
            f"Column {where + name!r} cannot be stored in a state table: expected a name that is not empty and has no"
            f" spaces, tabs, newlines or any of ,;{{}}()= . Rename it, e.g. with withColumnRenamed."
        )
    if name.lower() in seen:
        raise InvalidInputError(
            f"Columns {where + seen[name.lower()]!r} and {where + name!r} differ at most in case: expected names that"
            f" Spark can tell apart in a state table. Rename one of them."
        )
    seen[name.lower()] = name


def _delta(arrow: pa.DataType, where: str) -> Any:
    if arrow in _TO_DELTA:
        return _TO_DELTA[arrow]
    if pt.is_decimal(arrow) and arrow.precision <= MAX_PRECISION and arrow.scale >= 0:
        return f"decimal({arrow.precision},{arrow.scale})"
    if pt.is_timestamp(arrow) and arrow.unit == "us":
        return "timestamp"  # any zone: the stored instant is the same
    if pt.is_map(arrow):
        key, value = _delta(arrow.key_type, where + ".key"), _delta(arrow.item_type, where + ".value")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pt.is_list(arrow) or pt.is_large_list(arrow):
        return {"type": "array", "elementType": _delta(arrow.value_type, where + ".element"), "containsNull": True}
    if pt.is_struct(arrow):
        return _struct([arrow.field(i) for i in range(arrow.num_fields)], where + ".")
    raise InvalidInputError(
        f"Column {where!r} has type {arrow}, which a state table cannot store: expected one of"
        f" {', '.join(sorted(_FROM_DELTA))}, decimal, array, map, struct. Cast it, e.g. to string."
    )


def _arrow(delta: Any) -> Any:
    if isinstance(delta, str):
        if delta.startswith("decimal("):
            precision, scale = delta[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _FROM_DELTA[delta]
    if delta["type"] == "array":
        return pa.list_(_arrow(delta["elementType"]))
    if delta["type"] == "map":
        return pa.map_(_arrow(delta["keyType"]), _arrow(delta["valueType"]))
    return pa.struct([pa.field(f["name"], _arrow(f["type"])) for f in delta["fields"]])
