"""Option ``valueFormat``: column ``value`` is a struct, or a text, and the sink makes the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats.base import Encoder
from spark_ckpt.formats.formats import FORMATS, FormatSpec, registry_of
from spark_ckpt.sinks._options import SinkOption, SinkOptions
from spark_ckpt.storage.filesystem import file_of_option

DECLARED = (
    SinkOption(
        "valueFormat",
        f"one of {', '.join(FORMATS)}",
        "What the sink makes of column `value`: a struct, or with `string` a text. Without it, it is bytes or a text.",
        choices=FORMATS,
    ),
    SinkOption("valueSchema", "Avro's JSON", "avro only. Without it, one is made of the type of `value`."),
    SinkOption(
        "valueDescriptorFile",
        "a file, local or any fsspec URL",
        "protobuf only. What `protoc --include_imports --descriptor_set_out` writes; tasks read it, too.",
    ),
    SinkOption("valueMessageName", "the full name of a message", "protobuf only. Which of its messages."),
    SinkOption(
        "schemaRegistryUrl",
        "a URL of http or https",
        "avro and protobuf only. Confluent's wire format; subject `<topic>-value`.",
    ),
    SinkOption("schemaRegistryUser", meaning="Of the registry, where it asks for one."),
    SinkOption("schemaRegistryPassword", meaning="Of the registry. Never shown."),
)
_OF_REGISTRY = ("schemaRegistryUrl", "schemaRegistryUser", "schemaRegistryPassword")


@dataclass(frozen=True)
class ValueFormat:
    """``given``: the options, by name; they may hold a password."""

    name: str
    given: Mapping[str, str | None] = field(repr=False)

    def encoder(self, kind: pa.DataType, topic: str | None, storage: Mapping[str, Any]) -> Encoder:
        """For column ``value`` of ``kind``. Any process. Raises ``ConfigError`` for what does not fit."""
        registry = registry_of(self.given)
        if registry is not None and topic is None:
            raise ConfigError("option 'schemaRegistryUrl' needs option 'topic', whose name is in the schema's subject")
        file = self.given["valueDescriptorFile"]
        descriptors = None if file is None else file_of_option("valueDescriptorFile", file, storage)
        subject = "" if topic is None else f"{topic}-value"
        spec = FormatSpec(
            self.name, self.given["valueSchema"], descriptors, self.given["valueMessageName"], registry, subject
        )
        return spec.encoder(kind)


def value_format(parsed: SinkOptions) -> ValueFormat | None:
    """None if values are to be written as they are. Raises ``ConfigError`` for options that do not go together."""
    given = {o.name: parsed.text(o.name) for o in DECLARED[1:]}
    if parsed.text("valueFormat") is None:
        name = None
        own: tuple[str, ...] = ()
    else:
        name = parsed.choice("valueFormat")
        own = {
            "avro": ("valueSchema", *_OF_REGISTRY),
            "protobuf": ("valueDescriptorFile", "valueMessageName", *_OF_REGISTRY),
        }.get(name, ())
    stray = sorted(o for o, value in given.items() if value is not None and o not in own)
    if stray:
        raise ConfigError(
            f"sink 'kafka': option(s) {', '.join(stray)} do not go with valueFormat {name or '(none)'}; leave them out"
        )
    return None if name is None else ValueFormat(name, given)
