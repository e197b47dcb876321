"""JSON as Spark's ``from_json`` reads it in mode PERMISSIVE: what cannot be read is null, and kept as text beside."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats._json_decode import JsonDecoder
from spark_ckpt.formats._json_slow import read_what_fits
from spark_ckpt.formats._schema_registry import unwrapped
from spark_ckpt.formats.base import Decoded, Decoder


class PermissiveJsonDecoder(Decoder):
    """As :class:`JsonDecoder`, but no record is bad: fields that fit are there, others are null. If ``kind`` has a
    field ``corrupt``, that is the record's text then, and null where all was read."""

    def __init__(self, kind: pa.StructType, corrupt: str, in_wire_format: bool = False) -> None:
        self.type = kind
        self._at = kind.get_field_index(corrupt)
        self._in_wire_format = in_wire_format
        if self._at >= 0 and not pt.is_string(kind.field(self._at).type):
            raise ConfigError(
                f"option 'valueSchema': The column `{corrupt}` for corrupt records must have the nullable STRING type, "
                f"but got {kind.field(self._at).type}"
            )
        self._plain = JsonDecoder(pa.struct([f for f in kind if f.name != corrupt]), in_wire_format)

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        found = self._plain.decode(records)
        texts: dict[int, bytes] = {at: self._inside(records[at] or b"") for at in found.bad}
        values = self._with_what_fits(found.values, texts) if texts else found.values
        if self._at < 0:
            return Decoded(values)
        said = [texts[at].decode(errors="replace") if at in texts else None for at in range(len(records))]
        columns = [values.field(n) for n in range(values.type.num_fields)]
        columns.insert(self._at, pa.array(said, pa.string()))
        return Decoded(pa.StructArray.from_arrays(columns, fields=list(self.type), mask=values.is_null()))

    def _with_what_fits(self, values: pa.StructArray, texts: dict[int, bytes]) -> pa.StructArray:
        kind = self._plain.type
        places = {at: len(values) + n for n, at in enumerate(texts)}
        read = pa.array([read_what_fits(text, kind) for text in texts.values()], kind)
        index = [places.get(at, at) for at in range(len(values))]
        return pa.concat_arrays([values, read]).take(pa.array(index, pa.int64()))

    def _inside(self, record: bytes) -> bytes:
        """Without a registry's head, where there is one."""
        try:
            return unwrapped(record)[1] if self._in_wire_format else record
        except ValueError:
            return record
