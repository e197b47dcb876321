"""Values of one column as bytes and back: JSON, Avro, Protobuf and text, for sources and sinks of messages."""

from __future__ import annotations
