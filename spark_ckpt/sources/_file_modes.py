"""Spark's ``mode`` of readers of text, for source ``files``, and what goes with it. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ConfigError
from spark_ckpt.expressions.time_texts import readable_day, readable_moment
from spark_ckpt.formats.csv_splitter import CsvForm
from spark_ckpt.formats.csv_values import CsvWords
from spark_ckpt.formats.formats import CORRUPT
from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources._options import Option, anything, character_or_none, choice, flag, text
from spark_ckpt.sources._text_records import PERMISSIVE, SparkRules

_BAD_RECORDS = {"failfast": FAIL, "dropmalformed": SKIP}
_COLUMN = "columnNameOfCorruptRecord"


def _pattern(readable: Callable[[str], bool], example: str) -> Option:
    def parse(value: str) -> str:
        if not readable(value):
            raise ValueError(value)
        return value

    return Option(parse, f"a pattern such as {example}, with all digits of a year, month and day")


MODE_OPTIONS = {
    "mode": choice(PERMISSIVE, *_BAD_RECORDS).means(
        "json and csv only. With it, records are read by Spark's rules. PERMISSIVE: what cannot be read is null, and "
        "the record's text is in the column for corrupt records, if the schema has it; FAILFAST: such a one ends the "
        "query; DROPMALFORMED: it is left out."
    ),
    _COLUMN: text().means(f"With mode: the name of that column, `{CORRUPT}` without it."),
    "timestampFormat": _pattern(readable_moment, "yyyy-MM-dd HH:mm").means(
        "With mode. How times with a zone (`timestamp`) are written; without it as ISO 8601 and Spark's own."
    ),
    "dateFormat": _pattern(readable_day, "dd/MM/yyyy").means("With mode. How days are written."),
}

CSV_MODE_OPTIONS = {
    "escape": character_or_none("\\").means("csv, with mode. What stands in front of a quote within quotes."),
    "charToEscapeQuoteEscaping": character_or_none(None).means(
        "csv, with mode. What stands in front of an escape within quotes; the escape itself, unless it is the quote."
    ),
    "comment": character_or_none("").means("csv, with mode. Lines that begin with it are passed over."),
    "emptyValue": anything("").means("csv, with mode. What stands for nothing in quotes."),
    "ignoreLeadingWhiteSpace": flag().means("csv, with mode. Blanks in front of values count not."),
    "ignoreTrailingWhiteSpace": flag().means("csv, with mode. Blanks behind values count not."),
    "nanValue": anything("NaN").means("csv, with mode. A number that is none."),
    "positiveInf": anything("Inf").means("csv, with mode. An infinite number."),
    "negativeInf": anything("-Inf").means("csv, with mode. An infinite number below zero."),
    "enforceSchema": flag(None).means(
        "csv, with mode and header. Columns go by their places: true, whatever the header says; false, and another "
        "header ends the query. Without it they go by the names of the header."
    ),
}
_WITH_MODE = (*MODE_OPTIONS, *CSV_MODE_OPTIONS)


def with_mode(given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with ``mode`` and what it means as option ``badRecords``. Raises ``ConfigError`` for what does not go
    together, and passes over values that are none, which are refused elsewhere."""
    names = {name.lower(): name for name in given}
    found = [names[name.lower()] for name in _WITH_MODE if name.lower() in names]
    if not found:
        return dict(given)
    mode = given[names["mode"]].lower() if "mode" in names else PERMISSIVE if _COLUMN.lower() in names else None
    kind = str(given.get(names.get("fileformat", ""), "")).lower()
    if kind not in ("json", "csv"):
        raise ConfigError(
            f"source 'files': expected {found[0]} with fileFormat json or csv only, found fileFormat {kind}; "
            "option badRecords is for all"
        )
    if "badrecords" in names:
        raise ConfigError(
            f"source 'files': expected mode (and {found[0] if found[0] != 'mode' else _COLUMN}) or badRecords, found "
            "both; leave one out"
        )
    if mode is None:
        raise ConfigError(f"source 'files': {found[0]} goes with option mode, such as PERMISSIVE; found none")
    rest = {name: value for name, value in given.items() if name.lower() not in ("mode", _COLUMN.lower())}
    policy = {"badRecords": _BAD_RECORDS[mode]} if mode in _BAD_RECORDS else {}
    return {"mode": mode, _COLUMN: given.get(names.get(_COLUMN.lower(), ""), CORRUPT), **rest, **policy}


def rules_of(parsed: Mapping[str, Any]) -> SparkRules | None:
    """None where the rules are the source's own."""
    if parsed["mode"] is None:
        return None
    o = parsed
    form = CsvForm(
        sep=o["sep"],
        quote=o["quote"],
        escape=o["escape"],
        escape_of_escape=o["charToEscapeQuoteEscaping"] or None,
        comment=o["comment"],
        null_value=o["nullValue"],
        empty_value=o["emptyValue"],
        trim_left=o["ignoreLeadingWhiteSpace"],
        trim_right=o["ignoreTrailingWhiteSpace"],
    )
    words = CsvWords(o["nanValue"], o["positiveInf"], o["negativeInf"])
    patterns = o["timestampFormat"], o["dateFormat"]
    return SparkRules(o["mode"], o[_COLUMN], form, words, *patterns, by_position=o["enforceSchema"])


def check_rules(parsed: Mapping[str, Any], schema: pa.Schema) -> None:
    """Raises ``ConfigError`` for a schema that a mode cannot keep to."""
    if parsed["mode"] is None:
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
    required = [f.name for f in schema if not f.nullable]
    if required and parsed["mode"] == PERMISSIVE:
        raise ConfigError(
            f"mode PERMISSIVE makes null of what cannot be read: expected columns that may be null, found NOT NULL "
            f"for {', '.join(required)}; leave it out, or use badRecords"
        )
