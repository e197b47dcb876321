"""A Protobuf message in a schema registry: its file, what that imports, and the message's place in it."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from spark_ckpt.formats._schema_registry import Reference, Registered, SchemaRegistry, wrapped

_KNOWN = "google/protobuf/"
"""Files that every Protobuf has, and every registry."""


@functools.lru_cache(maxsize=256)
def head_of(registry: SchemaRegistry, subject: str, descriptors: bytes, message: str) -> bytes:
    """What stands in front of each record: a byte 0, the schema's id, and the places of ``message`` in its file.

    Registers the file that has the message under ``subject``, and files that it imports under their own names, where
    they are not yet. ``descriptors`` has them all. Raises as the registry does.
    """
    files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    file, places = next((f, found) for f in files.values() if (found := _places(f, message)) is not None)
    return wrapped(registry.register(subject, _registered(registry, files, file)), _indexes(places))


def _registered(
    registry: SchemaRegistry, files: dict[str, FileDescriptorProto], file: FileDescriptorProto
) -> Registered:
    """``file`` as Confluent's Python client registers it, too: in Base64, without what it says of its source."""
    references = tuple(_referred(registry, files, name) for name in file.dependency if not name.startswith(_KNOWN))
    plain = FileDescriptorProto.FromString(file.SerializeToString())
    plain.ClearField("source_code_info")
    text = base64.standard_b64encode(plain.SerializeToString(deterministic=True)).decode()
    return Registered(text, "PROTOBUF", references)


def _referred(registry: SchemaRegistry, files: dict[str, FileDescriptorProto], name: str) -> Reference:
    schema = _registered(registry, files, files[name])
    registry.register(name, schema)
    return Reference(name, name, registry.version(name, schema))


def _places(file: FileDescriptorProto, message: str) -> list[int] | None:
    """Where ``message`` is among its file's messages, and among those inside of one; None if it is elsewhere."""
    prefix = f"{file.package}." if file.package else ""
    if not message.startswith(prefix):
        return None
    places: list[int] = []
    inside = file.message_type
    for name in message.removeprefix(prefix).split("."):
        at = next((n for n, found in enumerate(inside) if found.name == name), None)
        if at is None:
            return None
        places.append(at)
        inside = inside[at].nested_type
    return places


def _indexes(places: list[int]) -> bytes:
    """How many, then each, as zigzag varints; a single 0 says that it is the file's first message."""
    if places == [0]:
        return b"\0"
    return b"".join(bytes(_varint(n << 1)) for n in (len(places), *places))


def _varint(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number
