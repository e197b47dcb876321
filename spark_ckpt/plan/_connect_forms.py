"""Functions that are more than one class of Spark's of their arguments: see :mod:`spark_ckpt.plan._connect_trees`."""

from __future__ import annotations

import pyarrow.types as pt
from pyspark.sql.connect import expressions as E

from spark_ckpt.expressions.tree import Call, Literal
from spark_ckpt.plan import _connect_functions as known
from spark_ckpt.plan._connect_functions import ARITHMETIC, BOOL, DAY, INT, MOMENT, TEXT
from spark_ckpt.plan._connect_json import from_json, is_field_of_json, of_text
from spark_ckpt.plan._connect_trees import (
    INTERVAL,
    CallOf,
    Form,
    Trees,
    Typed,
    for_spark,
    literal,
    of_literal,
    qualified,
)
from spark_ckpt.plan._in_arrow import StaysError, checked, mode_of, zone
from spark_ckpt.plan._json_in_arrow import OF_TEXTS


def _get(of: CallOf) -> Typed:
    """Null outside of the array, in ANSI mode, too."""
    value, place = of.args
    if not (pt.is_list(value.type) and pt.is_integer(place.type)):
        raise StaysError(f"an element of {value.type}")
    call = Call("GetArrayItem", (value.tree, place.tree), value.type.value_type, False, False)
    return Typed(checked(call, "LEGACY"), for_spark("get", [value, place]))


def _array_size(of: CallOf) -> Typed:
    """That of null is null, whatever the settings."""
    call = Call("Size", (of.args[0].tree,), INT)
    return Typed(checked(call, "LEGACY"), for_spark("array_size", of.args))


def _array_contains(of: CallOf) -> Typed:
    """Spark may make the elements wider, which is not done here."""
    values, wanted = of.args
    kind = values.type.value_type if pt.is_list(values.type) else None
    if kind is None or known.common([kind, wanted.type], of.trees.settings.ansi) != kind:
        raise StaysError(f"{wanted.type} in {values.type}")
    parts = [values, of.trees.to_type(wanted, kind)]
    return Typed(of.trees.call("ArrayContains", parts, BOOL), for_spark("array_contains", parts))


def _whole(of: CallOf) -> Typed:
    """``ceil`` and ``floor``."""
    if len(of.args) != 1 or not known.is_number(of.args[0].type):
        raise StaysError(f"{of.name} with a scale")
    kind = of.args[0].type
    exact = pt.is_decimal(kind) or kind in (known.DOUBLE, known.LONG)
    part = of.args[0] if exact else of.trees.to_type(of.args[0], known.DOUBLE)
    function = "Floor" if of.name == "floor" else "Ceil"
    return of.trees.made(function, [part], of.call, for_spark(of.name, [part]))


def _arithmetic(of: CallOf) -> Typed:
    name, parts = of.name, of.args
    if len(parts) != 2:
        raise StaysError(f"{name} of {len(parts)} arguments")
    first, second = parts
    if first.type == MOMENT and second.type == INTERVAL and isinstance(second.tree, Literal) and name in "+-":
        return _later(of.trees, name, first, second)
    if not all(known.is_number(p.type) or pt.is_null(p.type) for p in parts):
        raise StaysError(f"{first.type} {name} {second.type}")
    if any(pt.is_floating(p.type) for p in parts) or not any(pt.is_decimal(p.type) for p in parts):
        of_doubles = name == "/"
        both = [of.trees.to_type(p, known.DOUBLE) for p in parts] if of_doubles else of.trees.alike(parts)
    else:
        both = [of.trees.to_type(p, known.as_decimal(of_literal(p))) for p in parts]
    return of.trees.made(ARITHMETIC[name], both, of.call, for_spark(name, both))


def _later(trees: Trees, name: str, moment: Typed, interval: Typed) -> Typed:
    value = interval.tree.value if isinstance(interval.tree, Literal) else 0
    by = Literal(value if name == "+" else -value, INTERVAL)
    call = Call("TimestampAddInterval", (moment.tree, by), MOMENT, False, zone(trees.settings.zone))
    return Typed(checked(call, mode_of(call.function, trees.settings.ansi)), for_spark(name, [moment, interval]))


def _when(of: CallOf) -> Typed:
    parts = of.args
    otherwise = parts[-1:] if len(parts) % 2 else []
    conditions = [of.trees.to_type(p, BOOL) for p in parts[: len(parts) - len(otherwise) : 2]]
    values = of.trees.alike(parts[1::2] + otherwise)
    pairs = [p for pair in zip(conditions, values, strict=False) for p in pair]
    done = [*pairs, *values[len(conditions) :]]
    return of.trees.made("CaseWhen", done, of.call, for_spark("when", done))


def _nan_or(of: CallOf) -> Typed:
    first, second = of.args
    if first.type != second.type or not pt.is_floating(first.type):
        raise StaysError(f"nanvl of {first.type} and {second.type}")
    nan = Typed(of.trees.call("IsNaN", [first], BOOL), None)
    return Typed(of.trees.call("If", [nan, second, first], first.type), for_spark("nanvl", [first, second]))


def _null_if(of: CallOf) -> Typed:
    first, second = of.args
    if known.common([first.type, second.type], of.trees.settings.ansi) == first.type:
        second = of.trees.to_type(second, first.type)
    if first.type != second.type:
        raise StaysError(f"nullif of {first.type} and {second.type}")
    equal = Typed(of.trees.call("EqualTo", [first, second], BOOL), None)
    null = Typed(Literal(None, first.type), None)
    return Typed(of.trees.call("If", [equal, null, first], first.type), for_spark("nullif", [first, second]))


def _second_or_third(of: CallOf) -> Typed:
    first, *others = of.args
    is_there = Typed(of.trees.call("IsNotNull", [first], BOOL), for_spark("isnotnull", [first]))
    parts = [is_there, *of.trees.alike(others)]
    return of.trees.made("If", parts, of.call, for_spark("if", parts))


def _not_equal(of: CallOf) -> Typed:
    parts = of.trees.alike(of.args, compared=True)
    equal = Typed(of.trees.call("EqualTo", parts, BOOL), for_spark("=", parts))
    return Typed(of.trees.call("Not", [equal], BOOL), for_spark("not", [equal]))


def _between(of: CallOf) -> Typed:
    """Spark casts for each comparison by itself; ``between`` has no place for that, so Spark is asked of these."""
    value, *bounds = of.args
    both, written = list[Typed](), [value]
    for sign, bound in zip((">=", "<="), bounds, strict=True):
        function, _ = known.FUNCTIONS[sign]
        parts = of.trees.alike([value, bound], compared=True)
        both.append(Typed(of.trees.call(function, parts, BOOL), None))
        alone = parts[0].type == value.type
        written.append(parts[1] if alone else bound)
        if not alone:
            of.trees.thought.append((for_spark(sign, [value, bound]), for_spark(sign, parts)))
    return Typed(of.trees.call("And", both, BOOL), for_spark("between", written))


def _in(of: CallOf) -> Typed:
    """If one has to be cast, Spark casts all."""
    parts = of.trees.alike(of.args)
    if any(one.type != part.type for one, part in zip(of.args, parts, strict=True)):
        parts = [of.trees.cast(part, parts[0].type, None) for part in of.args]
    return Typed(of.trees.call("In", parts, BOOL), for_spark("in", parts))


def _itself(of: CallOf) -> Typed:
    (part,) = of.args
    if not known.is_number(part.type):
        raise StaysError(f"positive of {part.type}")
    return Typed(part.tree, for_spark("positive", [part]))


def _round(of: CallOf) -> Typed:
    value, *told = of.args
    scale = told[0].tree if told else Literal(0, INT)
    if not isinstance(scale, Literal) or scale.type != INT or scale.value is None or pt.is_string(value.type):
        raise StaysError("round by something other than a constant")
    call = Call("Round", (value.tree,), of.trees.type(of.call), False, scale.value)
    return Typed(checked(call, mode_of(call.function, of.trees.settings.ansi)), for_spark("round", [value, *told]))


def _left(of: CallOf) -> Typed:
    text, length = of.trees.cast_to(of.args, (TEXT, INT))
    parts = [text, literal(E.LiteralExpression._from_value(1)), length]
    return Typed(of.trees.call("Substring", parts, TEXT), for_spark("substring", parts))


def _right(of: CallOf) -> Typed:
    text, length = of.trees.cast_to(of.args, (TEXT, INT))
    if not isinstance(length.tree, Literal) or length.tree.value is None:
        raise StaysError("right with something other than a constant")
    count = length.tree.value
    last = Call("Substring", (text.tree, Literal(-count, INT), Literal(2**31 - 1, INT)), TEXT)
    nothing = Call("If", (Call("IsNull", (text.tree,), BOOL), Literal(None, TEXT), Literal("", TEXT)), TEXT)
    return Typed(checked(last if count > 0 else nothing, "LEGACY"), for_spark("right", [text, length]))


def _trim(of: CallOf) -> Typed:
    parts = of.trees.cast_to(of.args, (TEXT, ...))
    function = {"ltrim": "StringTrimLeft", "rtrim": "StringTrimRight"}.get(of.name, "StringTrim")
    in_place = parts if of.name == "btrim" else parts[::-1]
    return Typed(of.trees.call(function, in_place, TEXT), for_spark(of.name, parts))


def _to_time(of: CallOf) -> Typed:
    value, *pattern = of.args
    kind = DAY if of.name == "to_date" else MOMENT
    if of.trees.type(of.call) != kind:
        raise StaysError(f"{of.name} is of type {of.trees.type(of.call)}")
    if not pattern:
        return Typed(of.trees.to_type(value, kind).tree, for_spark(of.name, [value]))
    if value.type != TEXT:
        raise StaysError(f"{of.name} of {value.type} with a pattern")
    read = Typed(of.trees.call("GetTimestamp", [value, *pattern], MOMENT), None)
    made = read.tree if kind == MOMENT else of.trees.cast(Typed(read.tree, value.written), DAY, None).tree
    return Typed(made, for_spark(of.name, [value, *pattern]))


def _struct(of: CallOf) -> Typed:
    kind = of.trees.type(of.call)
    parts = of.args[1::2] if of.name == "named_struct" else of.args
    if not parts or len(parts) != kind.num_fields:
        raise StaysError("a struct of a star")
    if any(is_field_of_json(p.tree) for p in parts):
        raise StaysError("a struct of fields of from_json runs in Spark only")
    names = [E.LiteralExpression._from_value(kind.field(i).name) for i in range(kind.num_fields)]
    pairs = [part for name, p in zip(names, parts, strict=True) for part in (name, p.written)]
    call = Call("CreateNamedStruct", tuple(p.tree for p in parts), kind)
    return Typed(checked(call, "LEGACY"), E.CallFunction(qualified("named_struct"), pairs))


FORMS: dict[str, Form] = {
    **dict.fromkeys(OF_TEXTS, of_text),
    **dict.fromkeys(ARITHMETIC, _arithmetic), **dict.fromkeys(("btrim", "ltrim", "rtrim", "trim"), _trim),
    **dict.fromkeys(("ceil", "ceiling", "floor"), _whole), "!=": _not_equal, "array_contains": _array_contains,
    "array_size": _array_size, "between": _between, "from_json": from_json,
    "get": _get, "in": _in, "left": _left, "named_struct": _struct,
    "nanvl": _nan_or,
    "nullif": _null_if, "nvl2": _second_or_third, "positive": _itself, "right": _right, "round": _round,
    "struct": _struct, "to_date": _to_time, "to_timestamp": _to_time, "when": _when,
}  # fmt: skip
