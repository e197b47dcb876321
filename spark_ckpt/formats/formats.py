"""``valueFormat`` and what belongs to it: which decoder and which encoder the options ask for. Driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats._json_decode import JsonDecoder
from spark_ckpt.formats._json_encode import JsonEncoder
from spark_ckpt.formats._schema_registry import SchemaRegistry
from spark_ckpt.formats.base import Decoder, Encoder, TextDecoder, TextEncoder
from spark_ckpt.formats.json_texts import check_json

FORMATS = ("avro", "json", "protobuf", "string")
CORRUPT = "_corrupt_record"
"""What Spark calls the column for corrupt records where nobody says otherwise."""
_NEEDS = {"avro": "fastavro", "protobuf": "google.protobuf"}


@dataclass(frozen=True)
class FormatSpec:
    """What the options say. ``schema``: Avro's JSON; ``descriptors``: what the descriptor file holds; ``subject``: in
    the registry, where there is one; ``corrupt``: the field for the text of what cannot be read, in mode PERMISSIVE."""

    format: str
    schema: str | None = None
    descriptors: bytes | None = None
    message: str | None = None
    registry: SchemaRegistry | None = None
    subject: str = ""
    corrupt: str | None = None

    def decoder(self, kind: pa.DataType | None = None) -> Decoder:
        """``kind`` is the type to read, for json. Raises ``ConfigError`` for what is missing or does not fit, and as
        the registry does if the schema is there."""
        _require_package(self.format)
        if self.format == "string":
            return TextDecoder()
        if self.format == "json":
            if kind is None or not pt.is_struct(kind):
                raise ConfigError("valueFormat json needs option 'valueSchema', such as 'id long, name string'")
            return JsonDecoder(kind, self.registry is not None, self.corrupt)
        if self.format == "avro":
            from spark_ckpt.formats._avro import AvroDecoder

            return AvroDecoder(self.schema or self._registered(), self.registry)
        from spark_ckpt.formats._protobuf import ProtobufDecoder

        return ProtobufDecoder(*self._described(), self.registry is not None)

    def encoder(self, kind: pa.DataType) -> Encoder:
        """For values of ``kind``. Raises ``ConfigError`` or ``InvalidInputError`` for types that the format or the
        schema cannot hold."""
        _require_package(self.format)
        if self.format == "string":
            if not (pt.is_string(kind) or pt.is_binary(kind)):
                raise ConfigError(f"valueFormat string: expected a value of type string or binary, found {kind}")
            return TextEncoder()
        if self.format == "json":
            check_json("value", kind)
            return JsonEncoder()
        if self.format == "avro":
            from spark_ckpt.formats._avro import AvroEncoder

            return AvroEncoder(kind, self.schema, self.registry, self.subject)
        from spark_ckpt.formats._protobuf import ProtobufEncoder

        return ProtobufEncoder(kind, *self._described(), self.registry, self.subject)

    def _registered(self) -> str:
        if self.registry is None:
            raise ConfigError("valueFormat avro needs option 'valueSchema', Avro's JSON, or 'schemaRegistryUrl'")
        try:
            return self.registry.latest(self.subject)
        except ValueError as error:
            raise ConfigError(f"option 'schemaRegistryUrl': {error}; give option 'valueSchema'") from None

    def _described(self) -> tuple[bytes, str]:
        if self.descriptors is None or self.message is None:
            raise ConfigError(
                "valueFormat protobuf needs options 'valueDescriptorFile', as protoc --include_imports "
                "--descriptor_set_out writes it, and 'valueMessageName'"
            )
        return self.descriptors, self.message


def registry_of(options: Mapping[str, str | None]) -> SchemaRegistry | None:
    """By options ``schemaRegistryUrl``, ``schemaRegistryUser``, ``schemaRegistryPassword``. Raises ``ConfigError``."""
    url = options.get("schemaRegistryUrl")
    if url is None:
        return None
    if "@" in url.split("//", 1)[-1].split("/", 1)[0]:
        raise ConfigError(
            "option 'schemaRegistryUrl': expected a URL without user and password, which are options "
            "schemaRegistryUser and schemaRegistryPassword"
        )
    return SchemaRegistry(url, options.get("schemaRegistryUser"), options.get("schemaRegistryPassword"))


def _require_package(name: str) -> None:
    package = _NEEDS.get(name)
    try:
        there = package is None or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        raise ConfigError(f"valueFormat {name} needs a Python package: pip install 'spark-ckpt[{name}]'")
