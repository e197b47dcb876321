"""Columns of Arrow as JSON, as Spark's ``to_json`` writes them: the one writer of JSON for all sinks. Any process.

Timestamps have all six digits of the second, those with a zone are in UTC (``2020-01-31T12:00:00.000000Z``): as of
``to_json`` with ``timestampFormat`` ``yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX`` in a session of UTC. Spark's own default cuts
them to milliseconds. Vectorised: no Python object a row, but for binary values and for texts with control characters.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.expressions.printed_times import day_texts, moment_texts
from spark_ckpt.formats.float_texts import SPECIAL, float_texts

_SPECIAL: Final = {arrows: f'"{javas}"' for arrows, javas in SPECIAL.items()}
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES: Final = str.maketrans({**{chr(c): f"\\u{c:04X}" for c in range(0x20)}, **_SHORT})


def check_json(name: str, kind: pa.DataType) -> None:
    """Raises ``InvalidInputError`` for a column ``name`` whose ``kind`` no JSON can be made of."""
    if pt.is_duration(kind) or pt.is_interval(kind):
        raise InvalidInputError(
            f"column '{name}' has type {kind} in it, an interval, of which JSON has no text; cast it to string"
        )
    if pt.is_map(kind) and (pt.is_nested(kind.key_type) or _is_binary(kind.key_type)):
        raise InvalidInputError(
            f"column '{name}' has type {kind} in it, a map whose keys have no text in JSON; make texts of the keys, "
            "F.transform_keys(...), or a list of the entries, F.map_entries(...)"
        )
    for i in range(kind.num_fields):
        check_json(name, kind.field(i).type)


def json_texts(column: pa.Array | pa.ChunkedArray, nulls: bool = True) -> Any:
    """Each value of ``column`` as JSON, ``null`` for null; an array or a chunked array as ``column`` is.

    Without ``nulls``, members of structs that are null are left out, as ``to_json`` does.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([json_texts(chunk, nulls) for chunk in column.chunks], pa.string())
    return pc.fill_null(_texts(column, nulls), "null")


def json_name(name: str) -> str:
    """A member's name in quotes."""
    return f'"{name.translate(_ESCAPES)}"'


def _texts(values: pa.Array, nulls: bool) -> pa.Array:
    """Null where ``values`` are."""
    kind = values.type
    if pt.is_dictionary(kind):
        return _texts(values.dictionary_decode(), nulls)
    if pt.is_struct(kind):
        return _masked(_objects(values, nulls), values)
    if pt.is_map(kind):
        return _masked(_maps(values, nulls), values)
    if pt.is_nested(kind):
        return _masked(_lists(values, nulls), values)
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind):
        return values.cast(pa.string())
    if pt.is_floating(kind):
        return float_texts(values, _SPECIAL)
    if pt.is_null(kind):
        return values.cast(pa.string())
    return _quoted(_bare(values))


def _bare(values: pa.Array) -> pa.Array:
    """What stands between the quotes."""
    kind = values.type
    if pt.is_date(kind):
        return day_texts(values)
    if pt.is_timestamp(kind):
        texts = moment_texts(values, "T")
        return texts if kind.tz is None else pc.binary_join_element_wise(texts, "Z", "")
    if pt.is_time(kind):
        return pc.ascii_rtrim(pc.ascii_rtrim(values.cast(pa.time64("us")).cast(pa.string()), "0"), ".")
    if _is_binary(kind):
        return pa.array([None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()], pa.string())
    return _escaped(values.cast(pa.string()))


def _escaped(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        return pa.array([None if t is None else t.translate(_ESCAPES) for t in texts.to_pylist()], pa.string())
    return pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')


def _objects(values: pa.StructArray, nulls: bool) -> pa.Array:
    members: list[pa.Array] = []
    for n, field in enumerate(values.type):
        column = values.field(n)
        named = pc.binary_join_element_wise(f",{json_name(field.name)}:", json_texts(column, nulls), "")
        members.append(named if nulls else pc.if_else(column.is_valid(), named, ""))
    if not members:
        return pa.array(["{}"] * len(values), pa.string())
    inside = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
    return pc.binary_join_element_wise("{", inside, "}", "")


def _lists(values: pa.Array, nulls: bool) -> pa.Array:
    sizes = pc.fill_null(pc.list_value_length(values), 0)
    return _joined("[", json_texts(pc.list_flatten(values), nulls), sizes, "]")


def _maps(values: pa.MapArray, nulls: bool) -> pa.Array:
    entries = pa.ListArray.from_arrays(
        values.offsets, pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
    )
    valid = values.is_valid()
    sizes = pc.if_else(valid, pc.list_value_length(entries), 0)
    flat = pc.list_flatten(pc.if_else(valid, entries, pa.scalar(None, entries.type)))
    texts = pc.binary_join_element_wise(_keys(flat.field("key")), ":", json_texts(flat.field("value"), nulls), "")
    return _joined("{", texts, sizes, "}")


def _keys(keys: pa.Array) -> pa.Array:
    """As Spark writes keys: what it holds of them, which is a number of a date and a time."""
    kind = keys.type
    if pt.is_date(kind):
        keys = keys.cast(pa.date32()).cast(pa.int32())
    elif pt.is_timestamp(kind):
        keys = keys.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pt.is_time(kind):
        keys = keys.cast(pa.time64("ns")).cast(pa.int64())
    return _quoted(float_texts(keys) if pt.is_floating(keys.type) else _escaped(keys.cast(pa.string())))


def _joined(opening: str, texts: pa.Array, sizes: pa.Array, closing: str) -> pa.Array:
    """``texts`` in lists of ``sizes``, with commas between."""
    ends = pc.cumulative_sum(sizes.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    inside = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return pc.binary_join_element_wise(opening, inside, closing, "")


def _masked(texts: pa.Array, values: pa.Array) -> pa.Array:
    return texts if not values.null_count else pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))
