"""Functions of JSON in Python, where what it makes of any text is sure to be Spark's. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as T

from spark_ckpt.expressions.time_texts import TimeTexts, readable_day, readable_moment
from spark_ckpt.expressions.tree import Literal, Tree
from spark_ckpt.formats import from_json
from spark_ckpt.formats.from_json import FromJson, JsonMode
from spark_ckpt.formats.get_json_object import GetJsonObject, JsonArrayLength, JsonObjectKeys, steps_of

CONFS = {
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": None,
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "true",
}
"""By which Spark reads JSON, with what Spark has for them. All but the name have to be that."""
_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
OF_TEXTS = {
    "get_json_object": "GetJsonObject", "json_array_length": "LengthOfJsonArray", "json_object_keys": "JsonObjectKeys",
}  # fmt: skip
"""Functions of a text and constants, and the classes of Spark's that they are."""
_PATTERNS = ("timestampFormat", "dateFormat")


@dataclass(frozen=True)
class JsonSession:
    """``confs``: those of ``CONFS`` that a session has. ``shortest``: its Java writes doubles as Java 19 does."""

    confs: Mapping[str, str]
    shortest: bool


def json_reading(kind: pa.DataType, options: Mapping[str, str], zone: str, session: JsonSession) -> FromJson | str:
    """How texts become ``kind``; or why that is left to Spark. ``zone`` is the expression's."""
    other = next(
        (k for k, v in CONFS.items() if k != _CORRUPT and session.confs.get(k, v or "").upper() != (v or "").upper()),
        None,
    )
    if other is not None:
        return f"from_json with {other}={session.confs[other]}"
    names = {name.lower(): name for name in from_json.OPTIONS}
    given = {names.get(name.lower(), name): value for name, value in options.items()}
    unknown = next((name for name in given if name not in from_json.OPTIONS), None)
    if unknown is not None:
        return f"from_json with option {unknown}"
    corrupt = given.get("columnNameOfCorruptRecord", session.confs.get(_CORRUPT) or "_corrupt_record")
    why = from_json.refused(kind, corrupt) or _refused_options(given)
    if why is not None:
        return why
    times = TimeTexts(given.get("timeZone", zone), given.get("timestampFormat"), given.get("dateFormat"))
    fails = given.get("mode", "PERMISSIVE").upper() == "FAILFAST"
    return FromJson(kind, JsonMode(fails, corrupt, times, session.shortest))


def text_reading(
    function: str, others: Sequence[Tree], session: Callable[[], JsonSession]
) -> GetJsonObject | JsonArrayLength | JsonObjectKeys | str:
    """What one of ``OF_TEXTS`` reads of a text; or why that is left to Spark. ``others``: what it takes beside it."""
    if function == OF_TEXTS["json_array_length"]:
        return JsonArrayLength()
    if function == OF_TEXTS["json_object_keys"]:
        return JsonObjectKeys()
    [path] = others
    if not isinstance(path, Literal) or not isinstance(path.value, str):
        return "get_json_object with a path that is no constant"
    if steps_of(path.value) is None:
        return f"get_json_object with the path {path.value!r}"
    return GetJsonObject(path.value, session().shortest)


def all_fields(kind: T.DataType) -> list[T.StructField]:
    """Those within fields, too."""
    if isinstance(kind, T.ArrayType):
        return all_fields(kind.elementType)
    found = list(kind.fields) if isinstance(kind, T.StructType) else []
    return found + [inner for f in found for inner in all_fields(f.dataType)]


def has_moments(kind: pa.DataType) -> bool:
    """Whether the time zone counts."""
    if pt.is_struct(kind):
        return any(has_moments(f.type) for f in kind)
    return has_moments(kind.value_type) if pt.is_list(kind) else pt.is_timestamp(kind)


def pruned(reading: FromJson, field: int, options: Mapping[str, str]) -> FromJson | str | None:
    """What Spark's optimizer makes of a ``reading`` of which one field is taken; None: the same."""
    if options or reading.type.num_fields == 1:
        return None
    if reading.type.field(field).name == reading.mode.corrupt:
        return "from_json for its column of corrupt records alone"
    return reading.only(field)


def _refused_options(given: Mapping[str, str]) -> str | None:
    if given.get("mode", "PERMISSIVE").upper() not in ("PERMISSIVE", "FAILFAST"):
        return f"from_json in mode {given['mode']}"
    timestamp, day = (given.get(name) for name in _PATTERNS)
    if timestamp is not None and not readable_moment(timestamp):
        return f"from_json with timestampFormat {timestamp!r}"
    return f"from_json with dateFormat {day!r}" if day is not None and not readable_day(day) else None
