"""Avro, by fastavro: one record of one schema in each value, with or without the wire format of a registry."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.types as pt
from fastavro.schema import SchemaParseException

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.formats._schema_registry import Registered, SchemaRegistry, unwrapped, wrapped
from spark_ckpt.formats.base import Decoded, Decoder, Encoder, one_by_one, python_values

_PLAIN = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(), "null": pa.null(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}
_TO_AVRO: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


class AvroDecoder(Decoder):
    """``schema`` is what readers see, Avro's JSON; without a registry it is what was written, too."""

    def __init__(self, schema: str, registry: SchemaRegistry | None) -> None:
        self._schema, self._registry = schema, registry
        self.type = arrow_type(parsed(schema))

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        reader = parsed(self._schema)
        plain = _to_arrow(self.type)
        return one_by_one(records, self.type, lambda record: plain(self._read(record, reader)))

    def _read(self, record: bytes, reader: Any) -> Any:
        writer = reader
        if self._registry is not None:
            schema_id, record = unwrapped(record)
            writer = parsed(self._registry.schema(schema_id))
        stream = io.BytesIO(record)
        try:
            found = fastavro.schemaless_reader(stream, writer, None if writer is reader else reader)
        except Exception as error:  # noqa: BLE001 - bytes of any kind make it raise errors of any kind
            raise ValueError(f"not of the schema: {type(error).__name__} {error}") from None
        if stream.read(1):
            raise ValueError(f"{len(record) - stream.tell() + 1} bytes behind the record")
        return found


class AvroEncoder(Encoder):
    """By ``schema``, or by one made of the column's type; with a registry in its wire format, under ``subject``."""

    def __init__(self, kind: pa.DataType, schema: str | None, registry: SchemaRegistry | None, subject: str) -> None:
        self._schema = schema or json.dumps(avro_schema(kind, evolves=registry is not None))
        self._registry, self._subject = registry, subject
        expected = arrow_type(parsed(self._schema))
        if schema is not None and not _same(expected, kind):
            raise ConfigError(
                f"option 'valueSchema': expected a schema for values of type {kind}, found one of {expected}"
            )

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        schema, plain = parsed(self._schema), _of_arrow(values.type)
        schema_id = None if self._registry is None else _registered(self._registry, self._subject, self._schema)
        found = []
        for value in python_values(values, "avro"):
            stream = io.BytesIO()
            if value is not None:
                try:
                    fastavro.schemaless_writer(stream, schema, plain(value))
                except (ValueError, TypeError, KeyError, OverflowError) as error:
                    raise InvalidInputError(f"expected a value of the Avro schema, found {error}") from None
            data = None if value is None else stream.getvalue()
            found.append(data if data is None or schema_id is None else wrapped(schema_id, data))
        return pa.array(found, pa.binary())


@functools.lru_cache(maxsize=256)
def parsed(schema: str) -> Any:
    """Raises ``ConfigError`` for what is no schema of Avro."""
    try:
        return fastavro.parse_schema(json.loads(schema))
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"option 'valueSchema': expected Avro's JSON, found {type(error).__name__}: {error}"
        ) from None


@functools.lru_cache(maxsize=256)
def _registered(registry: SchemaRegistry, subject: str, schema: str) -> int:
    return registry.register(subject, Registered(schema))


def arrow_type(schema: Any, names: Mapping[str, Any] | None = None) -> pa.DataType:
    """The type that Spark's ``from_avro`` has for a parsed schema. Raises ``ConfigError`` for what it has none for.

    ``names`` are the named types around it, but for those that ``schema`` stands in.
    """
    if isinstance(schema, list):
        return _union(schema, names or {})
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _named(schema, names or {})
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind in ("record", "error"):
        known = {k: v for k, v in (schema.get("__named_schemas") or names or {}).items() if k != schema["name"]}
        return pa.struct([(f["name"], arrow_type(f["type"], known)) for f in schema["fields"]])
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], names))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], names))
    return _PLAIN[kind] if isinstance(kind, str) and kind in _PLAIN else arrow_type(kind, names)


def _named(name: str, names: Mapping[str, Any]) -> pa.DataType:
    if name not in names:
        raise ConfigError(f"option 'valueSchema': expected no type that contains itself, found '{name}'")
    return arrow_type(names[name], {k: v for k, v in names.items() if k != name})


def _union(branches: list[Any], names: Mapping[str, Any]) -> pa.DataType:
    found = [arrow_type(b, names) for b in branches if b != "null"]
    if len(found) == 1:
        return found[0]
    for widest in ([pa.int32(), pa.int64()], [pa.float32(), pa.float64()]):
        if len(found) == 2 and all(f in widest for f in found):
            return widest[1]
    raise ConfigError(
        f"option 'valueSchema': expected unions of null and one type, found {json.dumps(branches)[:200]}; give a "
        "reader's schema with one type there"
    )


def avro_schema(kind: pa.DataType, name: str = "topLevelRecord", evolves: bool = False) -> Any:
    """A schema for ``kind``, every field nullable, with the names that Spark's ``to_avro`` gives.

    ``evolves``: fields are null by default, which Spark's are not, so that by a later schema with more of them what
    was written by this one can be read: registries refuse it otherwise.
    """
    if kind in _TO_AVRO:
        return _TO_AVRO[kind]
    if pt.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pt.is_struct(kind):
        fields = [_avro_field(f.name, avro_schema(f.type, f"{name}_{f.name}", evolves), evolves) for f in kind]
        return {"type": "record", "name": name, "fields": fields}
    if pt.is_map(kind) and pt.is_string(kind.key_type):
        return {"type": "map", "values": [avro_schema(kind.item_type, f"{name}_value", evolves), "null"]}
    if pt.is_list(kind):
        return {"type": "array", "items": [avro_schema(kind.value_type, f"{name}_element", evolves), "null"]}
    raise ConfigError(f"valueFormat avro cannot hold a value of type {kind}; cast it, or leave it out")


def _avro_field(name: str, kind: Any, evolves: bool) -> dict[str, Any]:
    """A default is of a union's first type."""
    return (
        {"name": name, "type": ["null", kind], "default": None} if evolves else {"name": name, "type": [kind, "null"]}
    )


def _same(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether values of ``b`` can be written as ``a``: the same names and kinds, fields in any order."""
    if pt.is_struct(a) and pt.is_struct(b):
        theirs = {f.name: f.type for f in b}
        return all(f.name in theirs and _same(f.type, theirs[f.name]) for f in a)
    if pt.is_list(a) and pt.is_list(b):
        return _same(a.value_type, b.value_type)
    if pt.is_map(a) and pt.is_map(b):
        return _same(a.item_type, b.item_type)
    return a == b or (pt.is_integer(a) and pt.is_integer(b)) or (pt.is_floating(a) and pt.is_floating(b))


def _to_arrow(kind: pa.DataType) -> Callable[[Any], Any]:
    """What fastavro gives -> what Arrow takes for ``kind``."""
    if pt.is_struct(kind):
        parts = [(f.name, _to_arrow(f.type)) for f in kind]
        return lambda v: None if v is None else {name: part(v.get(name)) for name, part in parts}
    if pt.is_map(kind):
        item = _to_arrow(kind.item_type)
        return lambda v: None if v is None else [(key, item(x)) for key, x in v.items()]
    if pt.is_list(kind):
        element = _to_arrow(kind.value_type)
        return lambda v: None if v is None else [element(x) for x in v]
    if pt.is_string(kind):
        return lambda v: None if v is None else str(v)  # UUIDs among them
    return lambda v: v


def _of_arrow(kind: pa.DataType) -> Callable[[Any], Any]:
    """What Arrow gives -> what fastavro takes: maps come as pairs."""
    if pt.is_struct(kind):
        parts = [(f.name, _of_arrow(f.type)) for f in kind]
        return lambda v: None if v is None else {name: part(v[name]) for name, part in parts}
    if pt.is_map(kind):
        item = _of_arrow(kind.item_type)
        return lambda v: None if v is None else {key: item(x) for key, x in v}
    if pt.is_list(kind):
        element = _of_arrow(kind.value_type)
        return lambda v: None if v is None else [element(x) for x in v]
    return lambda v: v
