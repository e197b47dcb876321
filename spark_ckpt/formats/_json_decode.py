"""JSON as Spark's ``from_json`` reads it, FAILFAST: in Arrow where the result is the same, one by one elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.types as pt

from spark_ckpt.formats._json_slow import read_record
from spark_ckpt.formats._schema_registry import unwrapped
from spark_ckpt.formats.base import Decoded, Decoder, one_by_one

_ZONE = r"[T ]\d.*(?:Z|[+-]\d{2}:?\d{2})$"
_PLAIN_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?$"
_PLAIN_DATE = r"^\d{4}-\d{2}-\d{2}$"
_BLANK = b" \t\r\n"
_FEW = 32
"""So few records, one of which Arrow refuses, are read one by one."""


class JsonDecoder(Decoder):
    """An object a record, of ``kind``, a struct. Fields that are missing are null, and what the struct lacks is passed
    over. A record that is empty or blank is null, as in Spark. ``in_wire_format``: behind a registry's head, whose
    schema is not looked at."""

    def __init__(self, kind: pa.StructType, in_wire_format: bool = False) -> None:
        self.type = kind
        self._in_wire_format = in_wire_format
        self._physical = _physical(kind)

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        if not self._in_wire_format:
            return self._objects(records)
        inner, bad = _behind_heads(records)
        found = self._objects(inner)
        return Decoded(found.values, found.bad | bad)

    def _objects(self, records: Sequence[bytes | None]) -> Decoded:
        there = [at for at, record in enumerate(records) if record is not None and record.strip(_BLANK)]
        found = [records[at] for at in there]
        parts = self._decoded([record for record in found if record is not None])
        if len(there) == len(records):
            return parts
        places = {at: n for n, at in enumerate(there)}
        index = pa.array([places.get(at) for at in range(len(records))], pa.int64())
        return Decoded(parts.values.take(index), {there[n]: why for n, why in parts.bad.items()})

    def _decoded(self, records: list[bytes]) -> Decoded:
        if self._physical is None or not records:
            return self._slowly(records)
        try:
            return Decoded(self._in_arrow(records, self._physical))
        except pa.ArrowInvalid:
            pass
        if len(records) <= _FEW:
            return self._slowly(records)
        middle = len(records) // 2
        first, second = self._decoded(records[:middle]), self._decoded(records[middle:])
        bad = first.bad | {middle + at: why for at, why in second.bad.items()}
        return Decoded(pa.concat_arrays([first.values, second.values]), bad)

    def _slowly(self, records: list[bytes]) -> Decoded:
        return one_by_one(records, self.type, lambda record: read_record(record, self.type))

    def _in_arrow(self, records: list[bytes], physical: pa.StructType) -> pa.StructArray:
        """Raises ``pyarrow.ArrowInvalid`` if any record is bad or is to be read otherwise."""
        if not all(record.startswith(b"{") or record.strip(_BLANK).startswith(b"{") for record in records):
            # Arrow crashes on "null". And as each record begins an object, as many objects as records are one each.
            raise pa.ArrowInvalid("a record that is no object")
        data = b"\n".join(records)
        if data.count(b"\n") >= len(records):
            # Between values a tab is blank as well, and in a string neither may stand.
            data = b"\n".join(record.replace(b"\n", b"\t") for record in records)
        table = pa_json.read_json(
            io.BytesIO(data),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=pa.schema(list(physical)), unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # the JSON reader lets invalid UTF-8 through
        if table.num_rows != len(records):
            raise pa.ArrowInvalid(f"{table.num_rows} objects in {len(records)} records")
        columns = [table.column(field.name).combine_chunks() for field in self.type]
        arrays = [_converted(c, field.type) for c, field in zip(columns, self.type, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


def _behind_heads(records: Sequence[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    inner: list[bytes | None] = []
    bad: dict[int, str] = {}
    for at, record in enumerate(records):
        try:
            inner.append(None if record is None else unwrapped(record)[1])
        except ValueError as error:
            inner.append(None)
            bad[at] = str(error)
    return inner, bad


def _physical(kind: pa.DataType) -> pa.DataType | None:
    """What Arrow's JSON reader is told to read: times as text. None for what it does not read as Spark does."""
    if pt.is_timestamp(kind) or pt.is_date(kind):
        return pa.string()
    if pt.is_struct(kind):
        fields = [(field.name, _physical(field.type)) for field in kind]
        return pa.struct(fields) if fields and all(inner for _, inner in fields) else None
    if pt.is_list(kind):
        inner = _physical(kind.value_type)
        return pa.list_(inner) if inner else None
    plain = pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_string(kind)
    return kind if plain else None


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pt.is_struct(kind):
        arrays = [_converted(array.field(n), field.type) for n, field in enumerate(kind)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=array.is_null())
    if pt.is_list(kind):
        values = _converted(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    return _times(array, kind)


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Only what is written in full; Spark takes more, and so does the slow way."""
    pattern = _PLAIN_DATE if pt.is_date(kind) else _PLAIN_TIME
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise pa.ArrowInvalid("a time that is not written in full")
    if pt.is_date(kind):
        return texts.cast(kind)
    zoned = pc.match_substring_regex(texts, _ZONE)
    if kind.tz is None:
        if pc.any(zoned).as_py():
            raise pa.ArrowInvalid("a time with a zone")
        return texts.cast(kind)
    nothing = pa.scalar(None, pa.string())
    plain = pc.if_else(zoned, nothing, texts).cast(pa.timestamp(kind.unit)).cast(kind)
    return pc.coalesce(pc.if_else(zoned, texts, nothing).cast(kind), plain)
