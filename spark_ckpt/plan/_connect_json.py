"""Functions of JSON from the plans of Spark Connect's client: see :mod:`spark_ckpt.plan._connect_trees`. Driver."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.expressions.tree import Call
from spark_ckpt.formats.from_json import FromJson
from spark_ckpt.plan._connect_asked import called
from spark_ckpt.plan._connect_trees import CallOf, Trees, Typed, qualified
from spark_ckpt.plan._in_arrow import StaysError, sure, zone
from spark_ckpt.plan._json_in_arrow import (
    CONFS,
    OF_TEXTS,
    JsonSession,
    all_fields,
    has_moments,
    json_reading,
    pruned,
    text_reading,
)

Expression = Any
_SHORTER = "2.0E23"
"""What Java writes since version 19 for a double that was ``1.9999999999999998E23`` before."""
_of_sessions: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def from_json(of: CallOf) -> Typed:
    text, *others = of.call.children
    part = _text(of.trees, text)
    reading = _reading(of)
    call = Call("JsonToStructs", (part.tree,), reading.type, reading.mode.fails, reading)
    return Typed(call, E.CallFunction(qualified("from_json"), [part.written, *others]))


def of_text(of: CallOf) -> Typed:
    """One of ``OF_TEXTS``."""
    text, *others = of.call.children
    part, function = _text(of.trees, text), OF_TEXTS[of.name]
    given = [of.trees.typed(other).tree for other in others]
    reading = sure(text_reading(function, given, of.trees.settings.json))
    call = Call(function, (part.tree,), of.trees.type(of.call), False, reading)
    return Typed(call, E.CallFunction(qualified(of.name), [part.written, *others]))


def one_field(struct: Typed, place: int) -> Call | None:
    """Of what ``from_json`` makes in the same expression, as Spark's optimizer has it; None of other structs."""
    made = struct.tree
    if not (isinstance(made, Call) and made.function == "JsonToStructs"):
        return None
    (part,), reading = made.parts, made.option
    one = sure(pruned(reading, place, _options(struct.written.children)))
    if one is not None:
        made, place = Call(made.function, (part,), one.type, made.ansi, one), 0
    return Call("GetStructField", (made,), made.type.field(place).type, False, place)


def is_field_of_json(tree: Any) -> bool:
    """Of one that is read in the same expression."""
    of = tree.parts[0] if isinstance(tree, Call) and tree.function == "GetStructField" else None
    return isinstance(of, Call) and of.function == "JsonToStructs"


def json_session(session: Any) -> JsonSession:
    """Of a client's ``session``, whose server is asked."""
    found = session.client.get_config_with_defaults(*CONFS.items())
    confs = {name: value or "" for name, value in zip(CONFS, found, strict=True)}
    if session not in _of_sessions:
        [row] = session.sql(f"SELECT CAST({_SHORTER}D AS STRING)").collect()
        _of_sessions[session] = row[0] == _SHORTER
    return JsonSession(confs, _of_sessions[session])


def _text(trees: Trees, e: Expression) -> Typed:
    """Bytes that become a text are read as such: some may be no UTF-8."""
    if isinstance(e, E.CastExpression) and trees.type(e) == pa.string() and e._eval_mode is None:
        inner = trees.typed(e._expr)
        return _of_bytes(inner) if pt.is_binary(inner.type) else trees.typed(e)
    part = trees.typed(e)
    return _of_bytes(part) if pt.is_binary(part.type) else trees.to_type(part, pa.string())


def _of_bytes(part: Typed) -> Typed:
    return Typed(part.tree, E.CastExpression(part.written, T.StringType()))


def _reading(of: CallOf) -> FromJson:
    schema = of.trees.spark_type(of.call)
    if any(f.metadata for f in all_fields(schema)):
        raise StaysError("from_json with metadata in its schema")
    kind, options = of.trees.type(of.call), _options(of.call.children)
    where = options.get("timeZone", of.trees.settings.zone)
    moments = pt.is_struct(kind) and has_moments(kind)
    return sure(json_reading(kind, options, zone(where) if moments else "UTC", of.trees.settings.json()))


def _options(args: list[Expression]) -> dict[str, str]:
    """The third of ``args``, a map of constants."""
    parts = list(args[2].children) if args[2:] and called(args[2]) == "map" else []
    texts = [p._value for p in parts if isinstance(p, E.LiteralExpression) and isinstance(p._value, str)]
    if len(texts) < len(parts) or len(texts) % 2 or (args[2:] and not called(args[2]) == "map"):
        raise StaysError("from_json with options that are not constants runs in Spark only")
    return dict(zip(texts[::2], texts[1::2], strict=True))
