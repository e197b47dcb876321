"""Options of Spark's readers of files for source ``files``: by another name, as it is anyhow, or refused. Driver."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.errors import ConfigError

_OURS = {"recursivefilelookup": "recursive", "delimiter": "sep"}
_TEXTS = ("json", "csv")
_BAD_RECORDS = {"failfast": "fail", "dropmalformed": "skip"}
FILE_FORMATS = ("csv", "json", "orc", "parquet", "text")
"""Of Spark's formats, those that source ``files`` reads."""
_ALL = " ".join(FILE_FORMATS)
_ANY = None
"""Whatever its value: it has no say in what is read."""

_AS_IT_IS: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    (_ALL, "latestFirst fileNameOnly ignoreCorruptFiles", ("false",)),
    (_ALL, "cleanSource", ("off",)),
    (_ALL, "maxCachedFiles discardCachedInputRatio sourceArchiveDir basePath compression", _ANY),
    ("parquet orc", "mergeSchema", ("false",)),
    ("parquet orc", "inferSchema encoding charset lineSep multiLine locale", _ANY),
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
    ("csv", "columnPruning", ()),
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

_NEVER_BY_SPARK = ("cleansource", "modifiedbefore", "modifiedafter", *_NO_SAY_WITH_A_SCHEMA)
"""Spark's streams refuse these as well; or move and delete files behind their own batches, which a job that goes on
from an earlier checkpoint reads again."""
OURS_ALONE = ("badrecords", "changedfiles", "discoveryinterval", "lanes", "maxrowspertrigger", "maxsplitbytes",
              "recursive", "sinklog", "timezone")  # fmt: skip
"""Options that Spark does not know, or knows by another name."""
_CHARACTERS = ("quote", "escape", "comment", "chartoescapequoteescaping")

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
    "linesep": "lines end with \\n, \\r\\n or \\r",
    "wholetext": "a row is a line",
    "columnpruning": "a record is read whole, whatever columns are selected",
    "locale": "numbers and times are written as in en-US",
}
"""What works in place of other values."""


class OnlySparkReadsError(ConfigError):
    """Source ``files`` does not read such files, and Spark's own source does."""


def files_options(
    file_format: str, given: Mapping[str, str], has_schema: bool = False, mode: str | None = None
) -> dict[str, str]:
    """Options of source ``files`` for those that Spark has for ``file_format``.

    Raises ``ConfigError``; ``OnlySparkReadsError`` if Spark's own source reads what is asked for.

    ``has_schema``: the schema is given, so nothing is to be found out about it. ``mode``: of json and csv where neither
    ``mode`` nor ``badRecords`` is given.
    """
    named = {name.lower() for name in given}
    own_rules = "badrecords" in named or (mode is None and "mode" not in named)
    as_it_is = _as_it_is(file_format, own_rules)
    if has_schema:
        as_it_is |= dict.fromkeys(_NO_SAY_WITH_A_SCHEMA, _ANY)
    if _mode(given, mode) == "permissive" and not own_rules:
        as_it_is["columnpruning"] = _ANY
    found = {"fileFormat": file_format}
    only_spark: OnlySparkReadsError | None = None
    for name, value in given.items():
        try:
            found |= _option(file_format, name, value, as_it_is, own_rules)
        except OnlySparkReadsError as e:  # what nobody reads is told first
            only_spark = e
    if only_spark is not None:
        raise only_spark
    if file_format not in _TEXTS or own_rules:
        return found
    if file_format == "csv" and "header" in named and "enforceschema" not in named:
        found["enforceSchema"] = "true"
    return found if "mode" in named else {**found, "mode": str(mode)}


def _mode(given: Mapping[str, str], otherwise: str | None) -> str | None:
    found = next((value for name, value in given.items() if name.lower() == "mode"), otherwise)
    return found and found.lower()


def _option(
    file_format: str, name: str, value: str, as_it_is: Mapping[str, tuple[str, ...] | None], own_rules: bool
) -> dict[str, str]:
    """What the source is told of one option: nothing of what it does anyhow. Raises as :func:`files_options`."""
    key = name.lower()
    if key == "mode" and file_format not in _TEXTS:
        return {"badRecords": _bad_records(file_format, value)}
    if key in as_it_is or (key in _INSTEAD and not _is_read(file_format, key, own_rules)):
        _require_as_it_is(file_format, name, value, as_it_is.get(key, ()))
        return {}
    if file_format == "csv" and _has_other_characters(key, value):
        raise OnlySparkReadsError(f"reader option {name} of csv: expected one ASCII character, found {value!r}")
    return {_OURS.get(key, name): value}


def _as_it_is(file_format: str, own_rules: bool) -> dict[str, tuple[str, ...] | None]:
    """Options that say what is done anyhow, if they have one of these values."""
    return {
        o.lower(): values
        for formats, names, values in (*_AS_IT_IS, *(_WITH_BAD_RECORDS if own_rules else ()))
        if file_format in formats.split()
        for o in names.split()
    }


def _is_read(file_format: str, key: str, own_rules: bool) -> bool:
    """Whether source ``files`` has that option itself, for this format."""
    if key == "multiline":
        return file_format == "csv"
    if own_rules:
        return False
    return key in ("dateformat", "timestampformat") or (key == "escape" and file_format == "csv")


def _require_as_it_is(file_format: str, name: str, value: str, values: tuple[str, ...] | None) -> None:
    """Raises ``OnlySparkReadsError`` for a ``value`` that source ``files`` does not have, and ``ConfigError`` if
    Spark's own source must not have it, either."""
    if values is None or value.lower() in values:
        return
    key = name.lower()
    instead = _INSTEAD.get(key, "Spark itself reads such files by readStream.spark(spark.readStream...)")
    expected = f"expected {' or '.join(map(repr, values))}, which is how files are read here" if values else "not there"
    said = f"reader option {name} of {file_format}: {expected}, found {value!r}; {instead}"
    raise (ConfigError if key in _NEVER_BY_SPARK else OnlySparkReadsError)(said)


def _has_other_characters(key: str, value: str) -> bool:
    """Spark takes texts for ``sep``, and one character of any alphabet for others."""
    if key in ("sep", "delimiter"):
        return value != "\\t" and (len(value) != 1 or not value.isascii())
    return key in _CHARACTERS and len(value) == 1 and not value.isascii()


def _bad_records(file_format: str, mode: str) -> str:
    if mode.lower() not in _BAD_RECORDS:
        raise ConfigError(
            f"reader option mode of {file_format}: expected FAILFAST or DROPMALFORMED (of json and csv PERMISSIVE, "
            f"too), found {mode!r}; leave it out, or keep what cannot be read in a folder with option badRecords"
        )
    return _BAD_RECORDS[mode.lower()]
