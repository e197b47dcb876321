"""Records of JSON, as a source of messages has them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats._json_plain import Rules
from spark_ckpt.formats._json_reader import JsonReader, decoded, with_texts
from spark_ckpt.formats._schema_registry import unwrapped
from spark_ckpt.formats.base import Decoded, Decoder


class JsonDecoder(Decoder):
    """An object a record, of ``kind``, a struct. A record that is empty or blank is null, as in Spark.
    ``in_wire_format``: behind a registry's head, whose schema is not looked at.

    Mode PERMISSIVE, if ``corrupt`` is given: no record is bad, fields that fit are there, others are null. If ``kind``
    has a field of that name, it is the record's text then, and null where all was read. Mode FAILFAST else."""

    def __init__(
        self, kind: pa.StructType, in_wire_format: bool = False, corrupt: str | None = None, rules: Rules | None = None
    ) -> None:
        self.type = kind
        self._in_wire_format, self._permissive = in_wire_format, corrupt is not None
        self._at = kind.get_field_index(corrupt) if corrupt is not None else -1
        if self._at >= 0 and not pt.is_string(kind.field(self._at).type):
            raise ConfigError(
                f"The column `{corrupt}` for corrupt records must have the nullable STRING type, but got "
                f"{kind.field(self._at).type}"
            )
        self._reader = JsonReader(pa.struct([f for f in kind if f.name != corrupt]), rules or Rules())

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        inner, bad = _behind_heads(records) if self._in_wire_format else (records, {})
        found = self._reader.read(pa.array(inner, pa.binary()))
        bad = found.bad | bad
        if not self._permissive:
            return Decoded(_without(found.rows, bad), bad)
        return Decoded(self._with_texts(found.rows, {at: decoded(inner[at] or b"") for at in bad}))

    def _with_texts(self, rows: pa.StructArray, said: dict[int, str]) -> pa.StructArray:
        if self._at < 0:
            return rows
        texts = pa.array([said.get(at) for at in range(len(rows))], pa.string())
        return with_texts(rows, self._at, texts, self.type)


def _without(rows: pa.StructArray, bad: dict[int, str]) -> pa.StructArray:
    if not bad:
        return rows
    return rows.take(pa.array([None if at in bad else at for at in range(len(rows))], pa.int64()))


def _behind_heads(records: Sequence[bytes | None]) -> tuple[list[bytes | None], dict[int, str]]:
    """What has no head stays, to be read as nothing."""
    inner: list[bytes | None] = []
    bad: dict[int, str] = {}
    for at, record in enumerate(records):
        try:
            inner.append(None if record is None else unwrapped(record)[1])
        except ValueError as error:
            inner.append(record)
            bad[at] = str(error)
    return inner, bad
