"""Which of a query's filters and computed columns run in Python, on Arrow batches, with Spark's results. Driver.

Spark's analysed plan of an operation has every column resolved and every cast and evaluation mode written out. A tree
all of whose functions :mod:`spark_ckpt.expressions` has, for these types, is sent to the executors; else the operation
stays in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from zoneinfo import available_timezones

import pyarrow as pa
from pyspark.sql import types as T

from spark_ckpt.execution.java_classes import attribute_id, is_a, items_of, seq_items
from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.execution.refused_types import has_repeated_fields
from spark_ckpt.expressions import rules
from spark_ckpt.expressions.tree import Call, Input, Literal, Tree
from spark_ckpt.formats.from_json import FromJson
from spark_ckpt.plan.analysed._json_in_arrow import (
    CONFS,
    OF_TEXTS,
    JsonSession,
    all_fields,
    has_moments,
    json_reading,
    pruned,
    text_reading,
)
from spark_ckpt.plan.analysed._nodes import type_of
from spark_ckpt.runtime.expressions import Compute, Keep
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_type
from spark_ckpt.state.ipc import nullable_type
from spark_ckpt.types import CONTROL_COLUMNS

JavaObject = Any

_REPLACED = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
_WRAPPINGS = ("Alias", "KnownNotNull", "KnownNullable")
_ZONED = (
    "DateFormatClass", "FromUnixTime", "GetTimestamp", "Hour", "Minute", "Second", "TimestampAddInterval",
    "ToUnixTimestamp",
    "TruncTimestamp", "UnixTimestamp",
)  # fmt: skip
_OF_PATTERNS = ("DateFormatClass", "FromUnixTime", "GetTimestamp", "ToUnixTimestamp", "UnixTimestamp")
_FAILS_ON_ERROR = ("Abs", "GetTimestamp", "ToUnixTimestamp", "UnaryMinus", "UnixTimestamp")


Found = TypeVar("Found")


class StaysError(Exception):
    """``leaves``: the reason in the ledger's words."""

    def __init__(self, why: str, leaves: Leaves = Leaves.FORM) -> None:
        super().__init__(why)
        self.leaves = leaves

    def stays(self) -> Stays:
        return Stays(self.leaves, str(self))


def sure(found: Found | str) -> Found:
    """What was found for Python. Raises ``StaysError`` if it is a text, of what runs in Spark only."""
    if isinstance(found, str):
        raise StaysError(f"{found} runs in Spark only")
    return found


@dataclass(frozen=True)
class RowColumns:
    """Of the rows that an expression reads: Spark's ids, and types."""

    ids: list[int]
    types: list[T.DataType | pa.DataType]


def kept(condition: JavaObject, columns: RowColumns, session: Any) -> Operation:
    """Rows for which ``condition`` is true, and control rows. The control columns are the last of ``columns``. Raises
    ``StaysError`` where it runs in Spark only."""
    is_control = Call("IsNotNull", (Input(len(columns.ids) - 1, pa.binary()),), pa.bool_())
    passed = Call("Or", (is_control, Trees(columns, session).tree(condition)), pa.bool_())
    return Keep(checked(passed, "LEGACY"))


def computed(found: Sequence[JavaObject], columns: RowColumns, session: Any) -> Operation:
    """The columns ``found``, and the control columns, which are the last of ``columns``. Raises
    ``StaysError`` where one runs in Spark only."""
    trees, width = Trees(columns, session), len(columns.ids) - 2
    control = [(name, trees.column(width + at)) for at, name in enumerate(CONTROL_COLUMNS)]
    return Compute([*((str(e.name()), trees.tree(e)) for e in found), *control])


class Trees:
    """Translates expressions over rows of these columns."""

    def __init__(self, columns: RowColumns, session: Any) -> None:
        self._places = {column: i for i, column in enumerate(columns.ids)}
        self._types = columns.types
        self._gateway = session.sparkContext._gateway
        self._time_parser = str(session.conf.get("spark.sql.legacy.timeParserPolicy")).upper()
        self._session = session
        self._common: dict[str, Tree] = {}
        """What Spark computes once for several places, by its id."""

    def tree(self, e: JavaObject) -> Tree:
        name = str(e.nodeName())
        if name in _WRAPPINGS:
            return self.tree(e.child())
        if name == "AttributeReference":
            return self._input(e)
        if name == "Literal":
            return _literal(e)
        if name == "CommonExpressionRef":
            return self._common[str(e.id().toString())]
        if name == "With":
            self._common |= {str(d.id().toString()): self.tree(d.child()) for d in items_of(e.defs())}
            return self.tree(e.child())
        if name in OF_TEXTS.values():
            return self._of_json(name, e)
        if is_a(e, _REPLACED):
            return self.tree(e.replacement())
        if name == "NaNvl":
            first, second = (self.tree(part) for part in seq_items(e.children()))
            return checked(Call("If", (Call("IsNaN", (first,), pa.bool_()), second, first), arrow_type(e)), "LEGACY")
        if not rules.known(name):
            raise StaysError(f"{e.prettyName()} runs in Spark only", Leaves.FUNCTION)
        if name == "JsonToStructs":
            return self._from_json(e, self._json_reading(e))
        if name == "GetStructField" and _bare(e.child()).nodeName() == "JsonToStructs":
            return self._from_json_field(e, _bare(e.child()))
        return self._call(name, e)

    def _from_json(self, e: JavaObject, reading: FromJson) -> Call:
        return Call("JsonToStructs", (self._json(e.child()),), reading.type, reading.mode.fails, reading)

    def _json(self, text: JavaObject) -> Tree:
        """Bytes that are no UTF-8 are read as such."""
        text = _bare(text)
        return self.tree(text.child() if _is_of_bytes(text) else text)

    def _of_json(self, name: str, e: JavaObject) -> Tree:
        text, *others = seq_items(e.children())
        given = [self.tree(other) for other in others]
        reading = sure(text_reading(name, given, lambda: json_session(self._session)))
        return Call(name, (self._json(text),), arrow_type(e), False, reading)

    def _json_reading(self, e: JavaObject) -> FromJson:
        if any(f.metadata for f in all_fields(T._parse_datatype_json_string(e.schema().json()))):
            raise StaysError("from_json with metadata in its schema")
        kind, options = arrow_type(e), self._json_options(e)
        where = options.get("timeZone", str(e.timeZoneId().get()))
        where = zone(where) if has_moments(kind) else "UTC"
        return sure(json_reading(kind, options, where, json_session(self._session)))

    def _from_json_field(self, e: JavaObject, of: JavaObject) -> Tree:
        reading, at = self._json_reading(of), int(e.ordinal())
        one = sure(pruned(reading, at, self._json_options(of)))
        struct = self._from_json(of, reading if one is None else one)
        place = at if one is None else 0
        return Call("GetStructField", (struct,), struct.type.field(place).type, False, place)

    def _json_options(self, e: JavaObject) -> dict[str, str]:
        as_java = self._gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava
        return {str(name): str(value) for name, value in dict(as_java(e.options())).items()}

    def _input(self, e: JavaObject) -> Tree:
        place = self._places.get(attribute_id(e))
        if place is None:
            raise StaysError(f"{e.name()} is not a column of these rows", Leaves.UNKNOWN)
        return self.column(place)

    def column(self, place: int) -> Input:
        """The column at ``place``."""
        kind = self._types[place]
        return Input(place, kind if isinstance(kind, pa.DataType) else arrow_kind(kind))

    def _call(self, name: str, e: JavaObject) -> Tree:
        children = seq_items(e.valExprs()) if name == "CreateNamedStruct" else seq_items(e.children())
        if name == "Round":
            children = children[:1]
        if name == "CreateNamedStruct" and any(_is_json_field(child) for child in children):
            raise StaysError("a struct of fields of from_json runs in Spark only")
        if name == "Like" and str(e.escapeChar()) != "\\":
            raise StaysError("like with ESCAPE runs in Spark only")
        if name in _OF_PATTERNS and self._time_parser != "CORRECTED":
            raise StaysError(f"spark.sql.legacy.timeParserPolicy is {self._time_parser}", Leaves.SETTING)
        parts, mode = tuple(map(self.tree, children)), _mode(name, e)
        if name == "UnaryMinus" and isinstance(parts[0], Literal) and pa.types.is_duration(parts[0].type):
            return Literal(-parts[0].value, parts[0].type)
        return checked(Call(name, parts, arrow_type(e), False, _option(name, e, mode)), mode)


def json_session(session: Any) -> JsonSession:
    confs = {name: str(session.conf.get(name, default) or "") for name, default in CONFS.items()}
    return JsonSession(confs, int(session.sparkContext._gateway.jvm.java.lang.Runtime.version().feature()) >= 19)


def _is_of_bytes(text: JavaObject) -> bool:
    return str(text.nodeName()) == "Cast" and str(text.child().dataType()) == "BinaryType"


def _bare(e: JavaObject) -> JavaObject:
    while str(e.nodeName()) in _WRAPPINGS:
        e = e.child()
    return e


def _is_json_field(e: JavaObject) -> bool:
    e = _bare(e)
    return str(e.nodeName()) == "GetStructField" and str(_bare(e.child()).nodeName()) == "JsonToStructs"


def checked(call: Call, mode: str) -> Tree:
    """``call`` in Spark's ``mode``, ``ANSI``, ``LEGACY`` or ``TRY``. Raises ``StaysError`` if it is not for Python."""
    call = rules.shortened(call)
    refused = rules.refused(call) or (rules.trying(call) if mode == "TRY" else None)
    if refused:
        raise StaysError(refused)
    return rules.folded(rules.checking(call, mode))


def _option(name: str, e: JavaObject, mode: str) -> Any:
    if name in _ZONED or (name == "Cast" and "TimestampType" in (str(e.dataType()), str(e.child().dataType()))):
        return zone(str(e.timeZoneId().get()))
    if name == "GetStructField":
        return int(e.ordinal())
    if name == "Cast":
        return mode == "ANSI"
    if name == "Size":
        return -1 if e.legacySizeOfNull() else None
    if name in ("ElementAt", "GetArrayItem"):
        return bool(e.failOnError())
    if name == "Round":
        if str(e.scale().nodeName()) != "Literal":
            raise StaysError("round by something other than a constant")
        return int(e.scale().value())
    return None


@lru_cache
def zone(name: str) -> str:
    """Java has names of zones that nobody else has."""
    if name not in available_timezones():
        raise StaysError(f"the time zone {name} is Spark's only", Leaves.SETTING)
    return name


def _mode(name: str, e: JavaObject) -> str:
    """``ANSI``, ``LEGACY`` or ``TRY``."""
    if name in _FAILS_ON_ERROR:
        return "ANSI" if e.failOnError() else "LEGACY"
    return str(e.evalMode().toString()) if name in rules.MODES else "LEGACY"


def arrow_type(e: JavaObject) -> pa.DataType:
    return arrow_kind(type_of(e))


def arrow_kind(kind: T.DataType) -> pa.DataType:
    """Raises ``StaysError`` for what Arrow, or this package, has not."""
    if isinstance(kind, T.StringType) and kind.simpleString() != "string":
        raise StaysError(f"{kind.simpleString()} is compared in Spark only", Leaves.TYPE)
    if has_repeated_fields(kind):
        raise StaysError(f"{kind.simpleString()} has a name twice", Leaves.TYPE)
    try:
        return nullable_type(to_arrow_type(kind))  # as rows have it: runtime/stateless.py, arrow_schema
    except Exception as e:
        raise StaysError(f"Arrow has no {kind.simpleString()}", Leaves.TYPE) from e


def _literal(e: JavaObject) -> Literal:
    kind, value = arrow_type(e), e.value()
    if value is None or isinstance(value, bool | int | float | str):
        return Literal(value, kind)
    if pa.types.is_string(kind):
        return Literal(str(value.toString()), kind)
    if pa.types.is_decimal(kind):
        return Literal(value.toJavaBigDecimal(), kind)
    raise StaysError(f"a literal of type {kind}", Leaves.TYPE)
