"""How a chunk of whole records of a text file becomes Arrow (JSON lines, CSV, plain lines).

Whether a record is good depends on that record alone, never on its neighbours or on where a batch happened to end: a
chunk that does not parse into exactly one row a record is parsed again in smaller pieces.
"""

from __future__ import annotations

import io
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.types as pt

from spark_ckpt.arrow_types import wide_decimals
from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._bad_records import MalformedFileError, OtherHeader
from spark_ckpt.sources._convert import conform
from spark_ckpt.sources._local_times import instants
from spark_ckpt.sources._text_records import TextFormat, content_ends, for_arrow, quotes_before

_ZONE = r"\d:\d\d.*(?:Z|z|[+-]\d{2}(?::?\d{2})?)$"
_FINER_THAN_MICROS = r"(\.\d{6})\d+"


def check_schema(kind: str, schema: pa.Schema, by_sparks_rules: bool = False) -> None:
    """Raises ``ConfigError`` for a column type that the format cannot hold."""
    if kind == "text":
        if [f.type for f in schema] != [pa.string()]:
            raise ConfigError(
                "Text data source supports only a single column of type string, and you have "
                f"{', '.join(f'{f.name} {f.type}' for f in schema)}"
            )
        return
    for field in schema:
        if kind == "csv" and pt.is_nested(field.type):
            allowed = "plain types only"
        elif kind == "json" and by_sparks_rules and not _read_by_sparks_rules(field.type):
            allowed = "no intervals, and maps with strings as keys"
        elif kind == "json" and not by_sparks_rules and not _json_type(field.type):
            allowed = "no maps (those are read with option mode) and no intervals"
        else:
            continue
        raise ConfigError(
            f"fileFormat {kind} cannot hold column '{field.name}' of type {field.type}: expected {allowed}"
        )


class TextParser:
    """Parses records into batches of ``schema``. ``header`` are the file's column names, in order, if it has them.

    Raises ``MalformedFileError`` if the header does not fit the schema.
    """

    def __init__(self, fmt: TextFormat, schema: pa.Schema, header: list[str] | None) -> None:
        self._fmt = fmt
        self._schema = schema
        own = [name for name in schema.names if name != fmt.corrupt]
        by_position = header is None or _by_position(fmt, header, own)
        self.names = own if by_position else _matched(header or [], schema)
        self.other_header = _other_header(header, own) if header is not None and by_position else None
        """Where the header does not say what the values are read as."""
        self._physical = pa.schema(
            [pa.field(f.name, _physical_type(fmt.kind, f.type)) for f in schema] if fmt.sparks is None else []
        )

    def expected(self) -> str:
        if self._fmt.kind == "text":
            return "a line of UTF-8"
        form = "one JSON object a line" if self._fmt.kind == "json" else f"{len(self.names)} values a record"
        return f"{form} for columns ({', '.join(f'{f.name} {f.type}' for f in self._schema)})"

    def parse(self, data: bytes, records: int) -> pa.RecordBatch:
        """The rows of ``data``, which holds ``records`` records. Raises ``pyarrow.ArrowInvalid`` if any is bad."""
        if self._fmt.kind == "text":
            return self._lines(data)
        if self._fmt.kind == "csv" and self._odd_quotes(data):
            raise pa.ArrowInvalid("a quote is not closed; if values may hold line breaks, set multiLine=true")
        table = self._json(data) if self._fmt.kind == "json" else self._csv(data)
        if table.num_rows != records:
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {records} record(s)")
        batches = table.combine_chunks().to_batches()
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        read = _with_texts_read(batches[0], self._schema, self._fmt.zone)
        batch = conform(read, self._schema, fill_missing=True)
        require_values(batch)
        return batch

    def _lines(self, data: bytes) -> pa.RecordBatch:
        text = pa.array(data.splitlines(), pa.binary()).cast(pa.string())
        return pa.RecordBatch.from_arrays([text], schema=self._schema)

    def _json(self, data: bytes) -> pa.Table:
        if data.lstrip(b" \t\r\n").startswith(b"null"):
            raise pa.ArrowInvalid("null is no object")  # the JSON reader crashes on one in front
        table = pa_json.read_json(
            io.BytesIO(data),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=self._physical, unexpected_field_behavior="ignore"),
        )
        table.validate(full=True)  # the JSON reader lets invalid UTF-8 through
        return table

    def _csv(self, data: bytes) -> pa.Table:
        wanted = [name for name in self._schema.names if name in self.names]
        data = for_arrow(data)
        return pa_csv.read_csv(
            io.BytesIO(data),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self.names),
            parse_options=pa_csv.ParseOptions(
                delimiter=self._fmt.sep, quote_char=self._fmt.quote, newlines_in_values=self._fmt.multi_line
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=self._physical,
                include_columns=wanted,
                null_values=[self._fmt.null_value],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _odd_quotes(self, data: bytes) -> bool:
        if self._fmt.quote.encode() not in data:
            return False
        _, ends = content_ends(data, self._fmt)
        counts = np.diff(quotes_before(np.frombuffer(data, dtype=np.uint8), ends, self._fmt), prepend=0)
        return bool((counts % 2).any())


def require_values(batch: pa.RecordBatch) -> None:
    """Raises ``pyarrow.ArrowInvalid`` if a column that must not be null is."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f"column '{field.name}' must not be null")


def _by_position(fmt: TextFormat, header: list[str], own: list[str]) -> bool:
    if fmt.sparks is None or fmt.sparks.by_position is None:
        return False
    if not fmt.sparks.by_position and _other_header(header, own):
        raise MalformedFileError(f"with enforceSchema=false the header has to name {own}, and it names {header}")
    return True


def _other_header(header: list[str], own: list[str]) -> OtherHeader | None:
    pairs = enumerate(zip_longest(header, own, fillvalue=""), 1)
    return next((OtherHeader(n, mine) for n, (name, mine) in pairs if name.lower() != mine.lower()), None)


def _matched(header: list[str], schema: pa.Schema) -> list[str]:
    """The header with names spelt as the schema spells them."""
    spelling = {name.lower(): name for name in reversed(schema.names)}
    exact = set(schema.names)
    names = [name if name in exact else spelling.get(name.strip().lower(), name) for name in header]
    known = [name for name in names if name in exact]
    if not known or len(set(known)) < len(known):
        raise MalformedFileError(f"the header names {header}, which does not name each of {schema.names} once")
    return names


def _physical_type(kind: str, kind_of: pa.DataType) -> pa.DataType:
    """What the parser reads for a column; the rest is a cast."""
    if pt.is_timestamp(kind_of) or (kind == "csv" and pt.is_decimal(kind_of)):
        return pa.string()
    return kind_of if kind == "csv" else _json_type(kind_of)


def _json_type(wanted: pa.DataType) -> pa.DataType | None:
    """Days, which the JSON reader takes for numbers, and times are read as texts. None for what it cannot read."""
    if pt.is_date(wanted) or pt.is_timestamp(wanted):
        return pa.string()
    if pt.is_struct(wanted):
        fields = [(field.name, _json_type(field.type)) for field in wanted]
        return pa.struct(fields) if all(kind for _, kind in fields) else None
    if pt.is_list(wanted):
        inner = _json_type(wanted.value_type)
        return pa.list_(inner) if inner else None
    if pt.is_map(wanted) or pt.is_duration(wanted) or pt.is_interval(wanted):
        return None
    return wide_decimals(wanted)


def _read_by_sparks_rules(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return all(_read_by_sparks_rules(field.type) for field in kind)
    if pt.is_map(kind):
        return bool(pt.is_string(kind.key_type)) and _read_by_sparks_rules(kind.item_type)
    if pt.is_list(kind):
        return _read_by_sparks_rules(kind.value_type)
    return _json_type(kind) is not None


def _with_texts_read(batch: pa.RecordBatch, schema: pa.Schema, zone: str) -> pa.RecordBatch:
    columns = [
        _read_text(c, schema.field(n).type, zone) for n, c in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _read_text(column: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """``column`` with its texts of times and decimals, also inside of structs and lists, as ``target`` has them."""
    if pt.is_decimal(target) and pt.is_string(column.type):
        return pc.utf8_trim_whitespace(column).cast(wide_decimals(target))
    if pt.is_timestamp(target) and pt.is_string(column.type):
        return _timestamps(column, target, zone)
    if pt.is_struct(target) and pt.is_struct(column.type):
        parts = [_read_text(column.field(n), field.type, zone) for n, field in enumerate(target)]
        return pa.StructArray.from_arrays(parts, names=[f.name for f in target], mask=column.is_null())
    if pt.is_list(target) and pt.is_list(column.type):
        values = _read_text(column.values, target.value_type, zone)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    return column


def _timestamps(text: pa.Array, target: pa.DataType, zone: str) -> pa.Array:
    """ISO 8601 to microseconds. With a zone where the target has one; what has none is what the clock of ``zone``
    showed."""
    text = pc.replace_substring_regex(text, pattern=_FINER_THAN_MICROS, replacement=r"\1")
    plain = pa.timestamp(target.unit)
    if target.tz is None:
        return text.cast(plain)
    zoned = pc.match_substring_regex(text, pattern=_ZONE)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, text, nothing).cast(target)
    return pc.coalesce(with_zone, instants(pc.if_else(zoned, nothing, text).cast(plain), zone).cast(target))
