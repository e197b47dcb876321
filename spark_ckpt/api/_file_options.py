"""Options of Spark's readers of files for source ``files``: by another name, as it is anyhow, or refused. Driver."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.errors import ConfigError

_OURS = {"recursivefilelookup": "recursive", "delimiter": "sep"}
_TEXTS = ("json", "csv")
_BAD_RECORDS = {"failfast": "fail", "dropmalformed": "skip"}
_ALL = "parquet orc json csv text"
_ANY = None
"""Whatever its value: it has no say in what is read."""

_AS_IT_IS: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    (_ALL, "latestFirst fileNameOnly ignoreCorruptFiles", ("false",)),
    (_ALL, "cleanSource", ("off",)),
    (_ALL, "maxCachedFiles discardCachedInputRatio sourceArchiveDir basePath compression", _ANY),
    ("parquet orc", "mergeSchema", ("false",)),
    ("parquet orc", "inferSchema encoding charset lineSep multiLine locale", _ANY),
    ("parquet", "datetimeRebaseMode int96RebaseMode", ("corrected", "exception")),
    ("json csv text", "mergeSchema", _ANY),
    ("json csv text", "lineSep", ("\n",)),
    ("json csv text", "encoding charset", ("utf-8", "utf8")),
    ("text", "wholetext", ("false",)),
    ("text", "inferSchema multiLine locale", _ANY),
    ("json csv", "inferSchema", ("false",)),
    ("json csv", "samplingRatio inferTimestamp preferDate maxMalformedLogPerPartition", _ANY),
    ("json csv", "locale", ("en-us",)),
    ("json", "multiLine", ("false",)),
    ("json", "primitivesAsString prefersDecimal dropFieldIfAllNull useUnsafeRow ignoreNullFields", _ANY),
    ("json", "allowComments allowUnquotedFieldNames allowNumericLeadingZero allowNumericLeadingZeros", ("false",)),
    ("json", "allowBackslashEscapingAnyCharacter allowUnquotedControlChars", ("false",)),
    ("json", "allowNonNumericNumbers allowSingleQuotes", ("true",)),
    ("csv", "maxColumns", ("20480",)),
    ("csv", "maxCharsPerColumn", ("-1",)),
    ("csv", "unescapedQuoteHandling", ("stop_at_delimiter",)),
    ("csv", "escapeQuotes quoteAll", _ANY),
)
"""Formats, options of Spark's that the source does not have, and the values that say what it does anyhow."""

_WITH_BAD_RECORDS: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    ("csv", "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace", ("false",)),
    ("csv", "escape", ('"',)),
    ("csv", "emptyValue", ("",)),
    ("csv", "nanValue", ("nan",)),
    ("csv", "positiveInf", ("inf",)),
    ("csv", "negativeInf", ("-inf",)),
)
"""As above, of what goes with option ``mode`` only: where ``badRecords`` is given in its place."""

_NO_SAY_WITH_A_SCHEMA = ("mergeschema", "inferschema")

_INSTEAD = {
    "latestfirst": "files are read in the order in which they are found, so that none is left behind",
    "filenameonly": "a file is known by its path; one of the same name in another folder is another",
    "cleansource": "remove or move files yourself, once a completed checkpoint covers them",
    "ignorecorruptfiles": "badRecords=skip, or a folder for what cannot be read",
    "modifiedbefore": "Spark's streams do not allow it, either: give a pathGlobFilter, or a glob as the path",
    "modifiedafter": "Spark's streams do not allow it, either: give a pathGlobFilter, or a glob as the path",
    "mergeschema": "give .schema(...): the first file tells it otherwise",
    "inferschema": "give .schema(...)",
    "multiline": "one JSON object a line is read; mapInPandas or a Python streaming DataSource can read others",
    "dateformat": "it goes with option mode; or read the column as a string, and F.to_date(column, format) behind it",
    "timestampformat": "it goes with option mode; or read a string, and F.to_timestamp(column, format) behind it",
    "timestampntzformat": "read the column as a string, and F.to_timestamp_ntz(column, format) behind it",
    "escape": "with badRecords a quote within quotes is written twice; others are read with option mode",
    "encoding": "files are UTF-8",
    "charset": "files are UTF-8",
    "linesep": "lines end with \\n or \\r\\n",
    "wholetext": "a row is a line",
    "locale": "numbers and times are written as in en-US",
    "datetimerebasemode": "days are those of the proleptic Gregorian calendar",
    "int96rebasemode": "days are those of the proleptic Gregorian calendar",
}
"""What works in place of other values."""


def files_options(
    file_format: str, given: Mapping[str, str], has_schema: bool = False, mode: str | None = None
) -> dict[str, str]:
    """Options of source ``files`` for those that Spark has for ``file_format``. Raises ``ConfigError``.

    ``has_schema``: the schema is given, so nothing is to be found out about it. ``mode``: of json and csv where neither
    ``mode`` nor ``badRecords`` is given.
    """
    named = {name.lower() for name in given}
    own_rules = "badrecords" in named or (mode is None and "mode" not in named)
    same = {
        o.lower(): values
        for formats, names, values in (*_AS_IT_IS, *(_WITH_BAD_RECORDS if own_rules else ()))
        if file_format in formats.split()
        for o in names.split()
    }
    found = {"fileFormat": file_format}
    for name, value in given.items():
        key = name.lower()
        if key == "mode" and file_format not in _TEXTS:
            found["badRecords"] = _bad_records(file_format, value)
        elif key in same or (key in _INSTEAD and not _is_read(file_format, key, own_rules)):
            if not (key in _NO_SAY_WITH_A_SCHEMA and has_schema):
                _check_same(file_format, name, value, same.get(key, ()))
        else:
            found[_OURS.get(key, name)] = value
    if file_format not in _TEXTS or own_rules:
        return found
    if file_format == "csv" and not named.isdisjoint({"header"}) and "enforceschema" not in named:
        found["enforceSchema"] = "true"
    return found if "mode" in named else {**found, "mode": str(mode)}


def _is_read(file_format: str, key: str, own_rules: bool) -> bool:
    """Whether source ``files`` has that option itself, for this format."""
    if key == "multiline":
        return file_format == "csv"
    if own_rules:
        return False
    return key in ("dateformat", "timestampformat") or (key == "escape" and file_format == "csv")


def _check_same(file_format: str, name: str, value: str, values: tuple[str, ...] | None) -> None:
    if values is None or value.lower() in values:
        return
    instead = _INSTEAD.get(name.lower(), "Spark itself reads such files by readStream.spark(spark.readStream...)")
    expected = f"expected {' or '.join(map(repr, values))}, which is how files are read here" if values else "not there"
    raise ConfigError(f"reader option {name} of {file_format}: {expected}, found {value!r}; {instead}")


def _bad_records(file_format: str, mode: str) -> str:
    if mode.lower() not in _BAD_RECORDS:
        raise ConfigError(
            f"reader option mode of {file_format}: expected FAILFAST or DROPMALFORMED (of json and csv PERMISSIVE, "
            f"too), found {mode!r}; leave it out, or keep what cannot be read in a folder with option badRecords"
        )
    return _BAD_RECORDS[mode.lower()]
