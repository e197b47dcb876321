"""Protobuf, by a descriptor set as ``protoc --include_imports --descriptor_set_out`` writes it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.formats._protobuf_registry import head_of
from spark_ckpt.formats._schema_registry import SchemaRegistry, unwrapped
from spark_ckpt.formats.base import Decoded, Decoder, Encoder, one_by_one, python_values

_D = FieldDescriptor
_PLAIN = {
    _D.CPPTYPE_BOOL: pa.bool_(), _D.CPPTYPE_INT32: pa.int32(), _D.CPPTYPE_INT64: pa.int64(),
    _D.CPPTYPE_FLOAT: pa.float32(), _D.CPPTYPE_DOUBLE: pa.float64(), _D.CPPTYPE_ENUM: pa.string(),
    # Wider than in Spark, where the largest of them come out negative.
    _D.CPPTYPE_UINT32: pa.int64(), _D.CPPTYPE_UINT64: pa.decimal128(20, 0),
}  # fmt: skip
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


class ProtobufDecoder(Decoder):
    """``descriptors``: the descriptor set; ``message``: the full name of one of its messages. ``in_wire_format``:
    behind a registry's head, whose id is passed over, as the descriptors say what is there."""

    def __init__(self, descriptors: bytes, message: str, in_wire_format: bool) -> None:
        self._descriptors, self._message, self._in_wire_format = descriptors, message, in_wire_format
        self.type = _struct(message_class(descriptors, message).DESCRIPTOR, ())

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        made = message_class(self._descriptors, self._message)

        def read(record: bytes) -> dict[str, Any]:
            data = _behind_indexes(unwrapped(record)[1]) if self._in_wire_format else record
            try:
                return _value_of(made.FromString(data))
            except (DecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"not a {self._message}: {error}") from None

        return one_by_one(records, self.type, read)


class ProtobufEncoder(Encoder):
    """Struct values as messages; a null field is one that is not set. Fields of the message that the struct lacks stay
    unset, and a field that only the struct has is refused. With a registry in its wire format, under ``subject``."""

    def __init__(
        self,
        kind: pa.DataType,
        descriptors: bytes,
        message: str,
        registry: SchemaRegistry | None = None,
        subject: str = "",
    ) -> None:
        self._descriptors, self._message = descriptors, message
        self._registry, self._subject = registry, subject
        if not pt.is_struct(kind):
            raise ConfigError(f"valueFormat protobuf: expected a struct, found {kind}")
        _check(kind, message_class(descriptors, message).DESCRIPTOR)

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        made, head, found = message_class(self._descriptors, self._message), self._head(), []
        for value in python_values(values, "protobuf"):
            message = made()
            try:
                found.append(None if value is None else head + _filled(message, value).SerializeToString())
            except (TypeError, ValueError, EncodeError) as error:
                raise InvalidInputError(f"expected a value that {self._message} can hold, found {error}") from None
        return pa.array(found, pa.binary())

    def _head(self) -> bytes:
        if self._registry is None:
            return b""
        return head_of(self._registry, self._subject, self._descriptors, self._message)


@functools.lru_cache(maxsize=64)
def message_class(descriptors: bytes, name: str) -> type[Message]:
    """Raises ``ConfigError`` for what is no descriptor set or lacks the message."""
    try:
        pool = descriptor_pool.DescriptorPool()
        given = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        files = {file.name: file for file in given}
        for file in given:
            _add(pool, files, file.name)
    except (DecodeError, TypeError) as error:
        raise ConfigError(
            "option 'valueDescriptorFile': expected what protoc --include_imports --descriptor_set_out writes, "
            f"found {error}"
        ) from None
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        there = ", ".join(sorted(".".join(filter(None, (f.package, m.name))) for f in given for m in f.message_type))
        raise ConfigError(f"option 'valueMessageName': expected one of {there}, found '{name}'") from None


def _add(pool: descriptor_pool.DescriptorPool, files: dict[str, Any], name: str) -> None:
    """What a file imports goes first, whatever the order in the set."""
    file = files.pop(name, None)
    if file is not None:
        for imported in file.dependency:
            _add(pool, files, imported)
        pool.Add(file)


def _struct(message: Descriptor, outer: tuple[str, ...]) -> pa.StructType:
    if message.full_name in outer:
        raise ConfigError(f"valueFormat protobuf: expected no message that contains itself, found {message.full_name}")
    inner = (*outer, message.full_name)
    return pa.struct([(field.name, _type(field, inner)) for field in message.fields])


def _type(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_one(entry["key"], outer), _one(entry["value"], outer))
    return pa.list_(_one(field, outer)) if field.is_repeated else _one(field, outer)


def _one(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == _D.CPPTYPE_MESSAGE:
        known = {_TIMESTAMP: pa.timestamp("us", "UTC"), _DURATION: pa.duration("us")}
        return known.get(field.message_type.full_name) or _struct(field.message_type, outer)
    if field.cpp_type == _D.CPPTYPE_STRING:
        return pa.binary() if field.type == _D.TYPE_BYTES else pa.string()
    return _PLAIN[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _value_of(message: Message) -> dict[str, Any]:
    """As Spark's ``from_protobuf``: what is not set, in proto3 also what is zero, is null; lists and maps are empty."""
    found: dict[str, Any] = {f.name: [] if f.is_repeated else None for f in message.DESCRIPTOR.fields}
    for field, value in message.ListFields():
        if _is_map(field):
            item = field.message_type.fields_by_name["value"]
            found[field.name] = [(key, _plain(item, value[key])) for key in value]
        elif field.is_repeated:
            found[field.name] = [_plain(field, v) for v in value]
        else:
            found[field.name] = _plain(field, value)
    return found


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == _D.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type != _D.CPPTYPE_MESSAGE:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1000
    if field.message_type.full_name == _DURATION:
        return value.seconds * 1_000_000 + value.nanos // 1000
    return _value_of(value)


def _behind_indexes(data: bytes) -> bytes:
    """Without the places of the message in its file: how many, each a zigzag varint; 0 stands for the first message."""
    count, at = _varint(data, 0)
    for _ in range(count >> 1):
        _, at = _varint(data, at)
    return data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(data) and shift < 64:
        found |= (data[at] & 127) << shift
        if data[at] < 128:
            return found, at + 1
        at, shift = at + 1, shift + 7
    raise ValueError("expected the places of the message behind the schema's id")


def _check(kind: pa.StructType, message: Descriptor) -> None:
    """Whether each field of the struct is one of the message and of its type."""
    for f in kind:
        field = message.fields_by_name.get(f.name)
        expected = None if field is None else _type(field, ())
        if field is None or expected is None:
            raise ConfigError(f"valueFormat protobuf: message {message.full_name} has no field '{f.name}'")
        if pt.is_struct(expected) and pt.is_struct(f.type):
            _check(f.type, field.message_type)
        elif not _fits(f.type, expected):
            raise ConfigError(
                f"valueFormat protobuf: expected {expected} for field '{f.name}' of {message.full_name}, found {f.type}"
            )


def _fits(kind: pa.DataType, expected: pa.DataType) -> bool:
    number = pt.is_integer(kind) and (pt.is_integer(expected) or pt.is_decimal(expected))
    nested = pt.is_nested(kind) and kind.id == expected.id
    return kind == expected or number or (pt.is_floating(kind) and pt.is_floating(expected)) or nested


def _filled(message: Message, value: dict[str, Any]) -> Message:
    for field in message.DESCRIPTOR.fields:
        found = value.get(field.name)
        if found is not None:
            _set(message, field, found)
    return message


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        item = field.message_type.fields_by_name["value"]
        for key, v in value:
            if item.cpp_type == _D.CPPTYPE_MESSAGE:
                _put(target[key], item, v)
            else:
                target[key] = _number(item, v)
    elif field.is_repeated and field.cpp_type == _D.CPPTYPE_MESSAGE:
        for v in value:
            _put(target.add(), field, v)
    elif field.is_repeated:
        target.extend(_number(field, v) for v in value)
    elif field.cpp_type == _D.CPPTYPE_MESSAGE:
        target.SetInParent()
        _put(target, field, value)
    else:
        setattr(message, field.name, _number(field, value))


def _put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type.full_name == _TIMESTAMP:
        message.FromDatetime(value)
    elif field.message_type.full_name == _DURATION:
        message.FromTimedelta(value if isinstance(value, timedelta) else timedelta(microseconds=value))
    else:
        _filled(message, value)


def _number(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == _D.CPPTYPE_ENUM:
        return field.enum_type.values_by_name[value].number if value in field.enum_type.values_by_name else int(value)
    return int(value) if field.cpp_type in (_D.CPPTYPE_UINT64, _D.CPPTYPE_UINT32) else value
