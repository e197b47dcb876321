"""Spark's ``mode`` of readers of text, for source ``files``. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats.formats import CORRUPT
from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources._options import choice, text

PERMISSIVE = "permissive"
_BAD_RECORDS = {"failfast": FAIL, "dropmalformed": SKIP}
_COLUMN = "columnNameOfCorruptRecord"

MODE_OPTIONS = {
    "mode": choice(PERMISSIVE, *_BAD_RECORDS).means(
        "json and csv only. Spark's: FAILFAST is `badRecords=fail`, DROPMALFORMED `skip`. PERMISSIVE: what cannot be "
        "read is null, and the record's text is in the column for corrupt records, if the schema has it."
    ),
    _COLUMN: text().means(f"With mode PERMISSIVE: the name of that column, `{CORRUPT}` without it."),
}


def with_bad_records(given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with ``mode`` as option ``badRecords``; PERMISSIVE stays. Raises ``ConfigError`` for what does not go
    together, and passes over values that are none, which are refused elsewhere."""
    names = {name.lower(): name for name in given}
    column, found = names.get(_COLUMN.lower()), names.get("mode")
    mode = given[found].lower() if found is not None else PERMISSIVE if column is not None else None
    if mode is None:
        return dict(given)
    kind = str(given.get(names.get("fileformat", ""), "")).lower()
    if kind not in ("json", "csv"):
        raise ConfigError(
            f"source 'files': expected {found or column} with fileFormat json or csv only, found fileFormat {kind}; "
            "option badRecords is for all"
        )
    if "badrecords" in names:
        raise ConfigError(
            "source 'files': expected mode (or columnNameOfCorruptRecord) or badRecords, found both; leave one out"
        )
    if mode not in _BAD_RECORDS:
        return {"mode": mode, _COLUMN: CORRUPT, **given}
    if column is not None:
        raise ConfigError(f"source 'files': columnNameOfCorruptRecord goes with mode PERMISSIVE, found {mode.upper()}")
    return {**{name: value for name, value in given.items() if name != found}, "badRecords": _BAD_RECORDS[mode]}


def check_permissive(parsed: Mapping[str, Any], schema: pa.Schema) -> None:
    """Raises ``ConfigError`` for a schema that mode PERMISSIVE cannot keep to."""
    if parsed["mode"] != PERMISSIVE:
        return
    corrupt = parsed[_COLUMN]
    at = schema.get_field_index(corrupt)
    if at >= 0 and not pt.is_string(schema.field(at).type):
        raise ConfigError(
            f"The column `{corrupt}` for corrupt records must have the nullable STRING type, but got "
            f"{schema.field(at).type}"
        )
    if schema.names == [corrupt]:
        raise ConfigError(f"mode PERMISSIVE: expected a column beside `{corrupt}` in the schema, found none")
    bytes_in = [f.name for f in schema if parsed["fileFormat"] == "json" and "binary" in str(f.type)]
    if bytes_in:
        raise ConfigError(
            f"mode PERMISSIVE of json: expected no binary in the schema, found it in {', '.join(bytes_in)}; read it as "
            "a string, and use unbase64"
        )
    required = [f.name for f in schema if not f.nullable]
    if required:
        raise ConfigError(
            f"mode PERMISSIVE makes null of what cannot be read: expected columns that may be null, found NOT NULL "
            f"for {', '.join(required)}; leave it out, or use badRecords"
        )
