"""Spark's function ``from_json`` over a column of texts."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.errors import ExpressionError
from spark_ckpt.expressions.time_texts import TimeTexts
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats._json_reader import JsonReader, with_texts

OPTIONS = ("mode", "columnNameOfCorruptRecord", "timestampFormat", "dateFormat", "timeZone")
"""Options that are known here."""


@dataclass(frozen=True)
class JsonMode:
    """``fails``: FAILFAST, else PERMISSIVE. ``corrupt``: the field for the text of what cannot be read, if the schema
    has it. ``shortest``: Spark's Java is 19 or newer, whose texts of doubles are shorter."""

    fails: bool
    corrupt: str
    times: TimeTexts
    shortest: bool


class FromJson:
    """Texts, or bytes that are UTF-8, to structs of ``kind``. Executor; made on the driver, picklable."""

    def __init__(self, kind: pa.StructType, mode: JsonMode) -> None:
        self.type, self.mode = kind, mode
        self._at = kind.get_field_index(mode.corrupt)
        rules = Rules(mode.times, as_written=False, shortest=mode.shortest)
        self._reader = JsonReader(pa.struct([f for f in kind if f.name != mode.corrupt]), rules)

    def column(self, texts: pa.Array) -> pa.StructArray:
        """A struct for each text, null for null and for one without anything. Raises ``ExpressionError`` with Spark's
        condition for a text that cannot be read, in mode FAILFAST."""
        found = self._reader.read(texts)
        if found.bad and self.mode.fails:
            at, why = next(iter(found.bad.items()))
            raise ExpressionError(
                f"[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] in from_json: {why} (text {at + 1} of a batch). "
                "Mode FAILFAST ends the query there; mode PERMISSIVE gives null for what cannot be read"
            )
        return found.rows if self._at < 0 else self._with_texts(found.rows, texts, list(found.bad))

    def _with_texts(self, rows: pa.StructArray, texts: pa.Array, bad: list[int]) -> pa.StructArray:
        kept = pa.nulls(len(rows), pa.string())
        if bad:
            unread = set(bad)
            index = pa.array([at if at in unread else None for at in range(len(rows))], pa.int64())
            kept = _as_strings(texts.take(index))
        return with_texts(rows, self._at, kept, self.type)

    def only(self, field: int) -> FromJson:
        """Of a single field, as Spark's optimizer makes it where nothing else is asked for."""
        return FromJson(pa.struct([self.type.field(field)]), self.mode)


def refused(kind: pa.DataType, corrupt: str) -> str | None:
    """Why texts are not read as ``kind`` in Python."""
    if not pt.is_struct(kind):
        return f"from_json as {kind} at the root"
    if [f.name for f in kind] in ([], [corrupt]):
        return "from_json without a field"
    if kind.get_field_index(corrupt) >= 0 and not pt.is_string(kind.field(corrupt).type):
        return f"from_json with a column {corrupt} that is no string"
    return _refused(kind)


def _refused(kind: pa.DataType) -> str | None:
    if pt.is_struct(kind):
        names = [f.name for f in kind]
        if not names or len(set(names)) < len(names):
            return "from_json with fields of one name, or none"
        return next(filter(None, (_refused(f.type) for f in kind)), None)
    if pt.is_map(kind) or pt.is_binary(kind) or pt.is_duration(kind) or pt.is_null(kind):
        return f"from_json with {kind}"
    return _refused(kind.value_type) if pt.is_list(kind) else None


def _as_strings(texts: pa.Array) -> pa.Array:
    """With the bytes that they have, as Spark keeps them."""
    if pt.is_string(texts.type):
        return texts
    return pc.cast(texts, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
