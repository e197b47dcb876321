"""JSON as Spark reads it: in Arrow where the result is the same, one by one elsewhere."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.types as pt

from spark_ckpt.formats._json_bytes import has_exponents, has_minus_zero, has_odd_words
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats._json_scanner import MOST_OF_NAME, JsonError
from spark_ckpt.formats._json_times import as_numbers, with_times
from spark_ckpt.formats._json_values import PartialError, row_reader
from spark_ckpt.formats.base import SHOWN_REASON

_FEW = 32
"""So few records, one of which Arrow refuses, are read one by one."""
_ROW = re.compile(r"in row (\d+)")
_NUMBERS = re.compile(r"Column\(/([^)]*)\) changed from string to number")
_NEAR = 256
_LONG = 1000
"""Shorter records have no number and no depth that Spark's parser refuses."""
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=)?$"
_LONG_NAME = re.compile(rb'"[^"]{%d}' % MOST_OF_NAME)
_NO_CHARACTER = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""Half of a pair of surrogates, which Java replaces as one."""


@dataclass
class Texts:
    """What was read of some texts: a row each, and of those that are not as they should be why."""

    rows: pa.StructArray
    bad: dict[int, str] = field(default_factory=dict)


class JsonReader:
    """Texts to rows of ``kind``, a struct; fields that are missing are null, and what the struct lacks is passed over.
    A text without anything is null. Of a bad one what can be read is there. Any process; picklable."""

    def __init__(self, kind: pa.StructType, rules: Rules) -> None:
        self.type, self.rules = kind, rules
        self._physical = _physical(kind)
        self._numbers: set[str] = set()
        self._tries = self._failures = self._blocks = self._blocks_failed = 0
        self._row: Callable[[str], dict[str, Any] | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_row": None}

    def read(self, texts: pa.Array) -> Texts:
        """``texts`` are binary or strings, null for null."""
        texts = texts if pt.is_binary(texts.type) else texts.cast(pa.binary())
        there = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)
        if pc.all(there).as_py() is not False:
            return self._all(texts)
        found = self._all(texts.filter(there))
        places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
        at = pc.indices_nonzero(there).to_pylist()
        return Texts(found.rows.take(places), {at[n]: why for n, why in found.bad.items()})

    def whole(self, data: bytes, count: int) -> pa.StructArray | None:
        """The rows of ``count`` lines, each of which begins and ends as an object does and is not long; None if one of
        them is bad or is to be read otherwise than in Arrow."""
        if self._physical is None or (self._blocks_failed > 8 and self._blocks_failed * 2 > self._blocks):
            return None
        self._blocks += 1
        try:
            if not data.isascii():
                data.decode()
            return self._made(_parsed(data, count, self._physical))
        except UnicodeDecodeError:
            pass
        except pa.ArrowInvalid as error:
            misfit = _NUMBERS.search(str(error))
            if misfit and self._with_numbers(misfit[1]):
                return self.whole(data, count)
        self._blocks_failed += 1
        return None

    def _all(self, texts: pa.BinaryArray) -> Texts:
        """In pieces as large as Arrow reads, and the others one by one."""
        found: list[Texts] = []
        pending = [(0, len(texts))]
        while pending:
            low, high = pending.pop()
            part = texts[low:high]
            rows = self._fast(part)
            if isinstance(rows, pa.StructArray):
                found.append(Texts(rows))
            elif high - low <= _FEW or self._physical is None:
                slowly = self._slowly(part)
                found.append(Texts(slowly.rows, {low + at: why for at, why in slowly.bad.items()}))
            elif rows is None:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
            else:
                odd = low + rows
                # Others are as far away, and each piece is looked at again for each of them.
                step = max(_NEAR, 2 * rows)
                later = [(at, min(at + step, high)) for at in range(odd + 1, high, step)]
                pending += [*reversed(later), (odd, odd + 1), *([(low, odd)] if rows else [])]
        if not found:
            return self._slowly(texts)
        bad = {at: why for one in found for at, why in one.bad.items()}
        return Texts(pa.concat_arrays([one.rows for one in found]) if len(found) > 1 else found[0].rows, bad)

    def _fast(self, texts: pa.BinaryArray) -> pa.StructArray | int | None:
        """None if Arrow does not read them as Spark does; a number: that of the first one of those, if it is told."""
        if self._physical is None or (len(texts) <= _FEW and self._often_odd()):
            return None
        self._tries += 1
        try:
            return self._in_arrow(texts, self._physical)
        except pa.ArrowInvalid as error:
            misfit = _NUMBERS.search(str(error))
            if misfit and self._with_numbers(misfit[1]):
                return self._fast(texts)
            self._failures += 1
            row = _ROW.search(str(error))
            return int(row[1]) if row and int(row[1]) < len(texts) else None

    def _often_odd(self) -> bool:
        return self._failures > 8 and self._failures * 2 > self._tries

    def _with_numbers(self, path: str) -> bool:
        """Whole numbers where the strings at ``path`` are numbers; once: what else is there is read slowly."""
        names = path.split("/")
        if path in self._numbers or not _is_string(self.type, names):
            self._physical = _replaced(self._physical, names, None)
            return False
        self._numbers.add(path)
        self._physical = _replaced(self._physical, names, pa.int64())
        return True

    def _slowly(self, texts: pa.BinaryArray) -> Texts:
        read = self._row = self._row or row_reader(self.type, self.rules)
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for at, text in enumerate(texts.to_pylist()):
            try:
                rows.append(read(decoded(text)))
            except PartialError as partial:
                rows.append(partial.value)
                bad[at] = str(partial)[:SHOWN_REASON]
            except JsonError as error:
                rows.append({})
                bad[at] = str(error)[:SHOWN_REASON]
        return Texts(with_times(pa.array(rows, as_numbers(self.type)), self.type), bad)

    def _in_arrow(self, texts: pa.BinaryArray, physical: pa.StructType) -> pa.StructArray:
        """Raises ``pyarrow.ArrowInvalid`` if any record is bad or is to be read otherwise."""
        return self._made(in_arrow(texts, physical))

    def _made(self, table: pa.Table) -> pa.StructArray:
        columns = [table.column(f.name).combine_chunks() for f in self.type]
        arrays = [self._converted(c, f.type) for c, f in zip(columns, self.type, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))

    def _converted(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        if array.type.equals(kind):
            return array
        if pt.is_struct(kind):
            arrays = [self._converted(array.field(n), f.type) for n, f in enumerate(kind)]
            return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=array.is_null())
        if pt.is_list(kind):
            values = self._converted(array.values, kind.value_type)
            return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
        if pt.is_decimal(kind) or pt.is_string(kind):
            return array.cast(kind)
        if pt.is_binary(kind):
            return _from_base64(array)
        found = self.rules.times.all(array, kind)
        if found is None:
            raise pa.ArrowInvalid("a text that is no time")
        return found


def in_arrow(texts: pa.BinaryArray, kind: pa.StructType) -> pa.Table:
    """Objects as Arrow reads them. Raises ``pyarrow.ArrowInvalid`` if one is bad, or Spark may read it otherwise."""
    table = _parsed(_lines(texts), len(texts), kind)
    table.validate(full=True)  # the JSON reader lets invalid UTF-8 through
    return table


def _parsed(data: bytes, count: int, kind: pa.StructType) -> pa.Table:
    """Lines, each of which begins and ends as an object. Raises as :func:`in_arrow`, but not for what is no UTF-8."""
    chars = np.frombuffer(data, np.uint8)
    if has_minus_zero(chars) or has_odd_words(data, chars):
        raise pa.ArrowInvalid("an odd number")
    if "decimal" in str(kind) and has_exponents(chars):
        raise pa.ArrowInvalid("a decimal with an exponent")
    table = pa_json.read_json(
        io.BytesIO(data),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )
    if table.num_rows != count:
        raise pa.ArrowInvalid(f"{table.num_rows} objects in {count} records")
    return table


def _lines(texts: pa.BinaryArray) -> bytes:
    """One object a line. Raises ``pyarrow.ArrowInvalid`` for what Arrow takes otherwise than Spark, or crashes on."""
    like_objects = pc.match_substring_regex(texts, r"^[ \t\r\n]*\{(?s:.*)\}[ \t\r\n]*$")
    if pc.all(like_objects).as_py() is not True:
        # Arrow crashes on "null". And as between an end and a beginning no object goes on, as many objects as records
        # are one each.
        raise pa.ArrowInvalid("a record that is no object")
    if pc.any(pc.greater(pc.binary_length(texts), _LONG)).as_py() and not _all_within_limits(texts):
        raise pa.ArrowInvalid("a record deeper, or with longer numbers or names, than Spark reads")
    if pc.any(pc.match_substring(texts, "\n")).as_py():
        # Between values a tab is blank as well, and in a string neither may stand.
        texts = pc.replace_substring(texts, "\n", "\t")
    one = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    data: bytes = pc.binary_join(one, b"\n")[0].as_py()
    return data


def _all_within_limits(texts: pa.BinaryArray) -> bool:
    depth = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    digits = pc.match_substring_regex(texts, r"[0-9.eE+-]{990}[0-9.eE+-]{10}")
    if pc.max(depth).as_py() >= _LONG or pc.any(digits).as_py():
        return False
    large = texts.filter(pc.greater(pc.binary_length(texts), MOST_OF_NAME))
    return not any(_LONG_NAME.search(text) for text in large.to_pylist())


def _from_base64(texts: pa.StringArray) -> pa.BinaryArray:
    """Raises ``pyarrow.ArrowInvalid`` for what Spark may read otherwise."""
    if pc.all(pc.match_substring_regex(texts, _BASE64)).as_py() is False:
        raise pa.ArrowInvalid("not plainly base64")
    return pa.array([None if text is None else b64decode(text) for text in texts.to_pylist()], pa.binary())


def with_texts(rows: pa.StructArray, at: int, texts: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """``rows`` as ``kind``, with the texts of what could not be read as field ``at``."""
    columns = [rows.field(n) for n in range(rows.type.num_fields)]
    columns.insert(at, texts)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=rows.is_null())


def decoded(text: bytes) -> str:
    """UTF-8, and where it is none the characters that Java puts there."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return _NO_CHARACTER.sub("\ufffd".encode(), text).decode(errors="replace")


def _physical(kind: pa.DataType) -> pa.DataType | None:
    """What Arrow's JSON reader is told to read: times as text. None for what it does not read as Spark does."""
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_binary(kind):
        return pa.string()
    if pt.is_struct(kind):
        fields = [(f.name, _physical(f.type)) for f in kind]
        return pa.struct(fields) if fields and all(inner for _, inner in fields) else None
    if pt.is_list(kind):
        inner = _physical(kind.value_type)
        return pa.list_(inner) if inner else None
    if pt.is_decimal(kind):
        return pa.decimal256(76, kind.scale)  # whose cast finds what has too many digits
    plain = pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_string(kind)
    return kind if plain else None


def _is_string(kind: pa.DataType, path: list[str]) -> bool:
    """Whether the field there is one."""
    for name in path:
        at = kind.get_field_index(name) if pt.is_struct(kind) else -1
        if at < 0:
            return False
        kind = kind.field(at).type
    return bool(pt.is_string(kind))


def _replaced(kind: Any, path: list[str], by: pa.DataType | None) -> Any:
    """``kind`` with ``by`` at ``path``, the names of fields; None: with the string that was there."""
    at = kind.get_field_index(path[0]) if pt.is_struct(kind) else -1
    if at < 0:
        return kind
    inner = kind.field(at).type
    before = pa.string() if pt.is_int64(inner) else inner
    new = _replaced(inner, path[1:], by) if len(path) > 1 else by or before
    return pa.struct([f.with_type(new) if n == at else f for n, f in enumerate(kind)])
