"""Expressions of Spark Connect's client as Spark would analyse them. Driver.

The client has neither types nor the casts that Spark puts in. The types of all functions in a select or a filter are
asked for at once; the casts are put in by rules that need not be right: each tree is also written down as an expression
for Spark, with every cast spelt out, by which :mod:`spark_ckpt.plan._in_arrow_connect` asks whether that is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.pandas.types import from_arrow_type

from spark_ckpt.expressions.tree import Call, Input, Literal, Tree
from spark_ckpt.plan import _connect_functions as known
from spark_ckpt.plan._connect_asked import OF_TYPE, called, is_decimal
from spark_ckpt.plan._connect_functions import ANY, COMPARED, FUNCTIONS, LEFT_OUT, MOMENT, SAME, SMALL
from spark_ckpt.plan._connect_scope import Scope
from spark_ckpt.plan._in_arrow import StaysError, arrow_kind, checked, mode_of, zone
from spark_ckpt.plan._json_in_arrow import JsonSession
from spark_ckpt.plan._sql_literals import Interval

Expression = Any
Form = Callable[["CallOf"], "Typed"]
_ZONED = {"DateFormatClass", "FromUnixTime", "Hour", "Minute", "Second", "TruncTimestamp"}
_PARSING = {"GetTimestamp", "ToUnixTimestamp", "UnixTimestamp"}
_OF_PATTERNS = {"DateFormatClass", "FromUnixTime", *_PARSING}
INTERVAL = pa.duration("us")


@dataclass(frozen=True)
class Settings:
    """What of the session decides how an expression is analysed."""

    ansi: bool
    zone: str
    time_parser: str
    size_of_null: bool
    case_sensitive: bool
    json: Callable[[], JsonSession]
    """Asks the server."""


@dataclass(frozen=True)
class Typed:
    """``written``: ``tree`` for Spark, with every cast of it."""

    tree: Tree
    written: Expression

    @property
    def type(self) -> pa.DataType:
        return self.tree.type


@dataclass(frozen=True)
class CallOf:
    """A ``call`` as the client has it, and its arguments."""

    trees: Trees
    call: Expression

    @cached_property
    def args(self) -> list[Typed]:
        return [self.trees.typed(part) for part in self.call.children]

    @property
    def name(self) -> str:
        return str(called(self.call))


class Trees:
    """Translates expressions over the rows of ``scope``. ``types``: those of what :func:`asked` named, by identity.

    ``forms``: functions that are more than a class of Spark's of their arguments. ``field_of_json``: a field of a
    struct that is read from JSON; None of others.
    """

    def __init__(
        self,
        scope: Scope,
        settings: Settings,
        types: dict[int, T.DataType],
        forms: dict[str, Form],
        field_of_json: Callable[[Typed, int], Call | None] = lambda *_: None,
    ) -> None:
        self.scope, self.settings = scope, settings
        self._types, self._forms, self._field_of_json = types, forms, field_of_json
        self.thought: list[tuple[Expression, Expression]] = []
        """Pairs that Spark has to take for the same, beside the whole: what was met, and it with every cast."""

    def typed(self, e: Expression) -> Typed:
        if isinstance(e, E.ColumnAlias) and len(e._alias) == 1:
            return self.typed(e._child)
        if isinstance(e, E.ColumnReference):
            return self._column(e._unparsed_identifier)
        if isinstance(e, E.LiteralExpression):
            return self._decimal(e) if is_decimal(e) else literal(e)
        if isinstance(e, Interval):
            return Typed(Literal(e.micros, INTERVAL), e)
        if isinstance(e, E.UnresolvedExtractValue):
            return self._extracted(e)
        if isinstance(e, E.CastExpression):
            return self.cast(self.typed(e._expr), self.type(e), e, e._eval_mode)
        if isinstance(e, E.UnresolvedFunction | E.CallFunction | E.CaseWhen):
            return self._function(e)
        raise StaysError(_left_to_spark(e))

    def _function(self, e: Expression) -> Typed:
        name, args = str(called(e)), list(e.children)
        if getattr(e, "_is_distinct", False):
            raise StaysError(f"{name} of distinct values runs in Spark only")
        if name in self._forms:
            return self._forms[name](CallOf(self, e))
        if name not in FUNCTIONS:
            raise StaysError(f"{name} runs in Spark only")
        if not args:
            raise StaysError(f"{name} of nothing")
        function, types = FUNCTIONS[name]
        parts = [self.typed(a) for a in args] + self._left_out(name, args, types)
        parts = self.alike(parts, compared=True) if types is COMPARED else self.cast_to(parts, types)
        if not known.takes(function, parts[0].type):
            raise StaysError(f"{name} of {parts[0].type}")
        return self.made(function, parts, e, for_spark(name, parts))

    def _left_out(self, name: str, args: list[Expression], types: tuple[Any, ...]) -> list[Typed]:
        missing = len(types) - len(args)
        if types[-1] is ... or missing == 0:
            return []
        others = LEFT_OUT.get(name, ())
        if not 0 < missing <= len(others):
            raise StaysError(f"{name} of {len(args)} arguments")
        return [literal(E.LiteralExpression._from_value(value)) for value in others[-missing:]]

    def cast_to(self, parts: list[Typed], types: tuple[Any, ...]) -> list[Typed]:
        if types[-1] is ...:
            types = types[:-1] + (types[-2],) * (len(parts) - len(types) + 1)
        if SAME in types:
            alike = iter(self.alike([p for p, kind in zip(parts, types, strict=True) if kind is SAME]))
            parts = [next(alike) if kind is SAME else p for p, kind in zip(parts, types, strict=True)]
        for part, kind in zip(parts, types, strict=True):
            if kind is SMALL and not known.is_small(part.type):
                raise StaysError(f"{part.type} where an int is expected")
        asks = (SAME, ANY, SMALL)
        return [p if kind in asks else self.to_type(p, kind) for p, kind in zip(parts, types, strict=True)]

    def alike(self, parts: list[Typed], compared: bool = False) -> list[Typed]:
        """``parts`` as one type. What is ``compared`` with a decimal becomes one of its own first."""
        if compared and any(pt.is_decimal(p.type) for p in parts) and not any(pt.is_floating(p.type) for p in parts):
            parts = [self.to_type(p, known.as_decimal(of_literal(p))) for p in parts]
        kind = known.common([p.type for p in parts], self.settings.ansi)
        if kind is None:
            raise StaysError(f"{' and '.join(sorted({str(p.type) for p in parts}))} together")
        return [self.to_type(p, kind) for p in parts]

    def to_type(self, part: Typed, kind: pa.DataType) -> Typed:
        return part if part.type == kind else self.cast(part, kind, None)

    def cast(self, part: Typed, kind: pa.DataType, e: Expression, mode: str | None = None) -> Typed:
        ansi = mode == "ansi" or (mode is None and self.settings.ansi)
        zoned = MOMENT in (part.type, kind)
        option = zone(self.settings.zone) if zoned else ansi
        made = checked(
            Call("Cast", (part.tree,), kind, False, option), "TRY" if mode == "try" else mode_of("Cast", ansi)
        )
        to = e._data_type if e is not None else from_arrow_type(kind)
        return Typed(made, E.CastExpression(part.written, to, mode))

    def type(self, e: Expression) -> pa.DataType:
        return arrow_kind(self._types[id(e)])

    def spark_type(self, e: Expression) -> T.DataType:
        return self._types[id(e)]

    def made(self, function: str, parts: list[Typed], e: Expression, written: Expression) -> Typed:
        kind = OF_TYPE.get(function)
        return Typed(self.call(function, parts, self.type(e) if kind is None else kind), written)

    def call(self, function: str, parts: list[Typed], kind: pa.DataType) -> Tree:
        settings = self.settings
        option: Any = None
        if function in _OF_PATTERNS and settings.time_parser != "CORRECTED":
            raise StaysError(f"spark.sql.legacy.timeParserPolicy is {settings.time_parser}")
        if function in _ZONED | _PARSING:
            option = zone(settings.zone)
        elif function == "Size":
            option = -1 if settings.size_of_null else None
        elif function in ("ElementAt", "GetArrayItem"):
            option = settings.ansi
        call = Call(function, tuple(p.tree for p in parts), kind, False, option)
        return checked(call, mode_of(function, settings.ansi))

    def _decimal(self, e: Expression) -> Typed:
        """The client does not send the type that it has."""
        kind = self.type(e)
        value = e._value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38))
        return Typed(Literal(value, kind), e)

    def _column(self, text: str) -> Typed:
        place, fields = self.scope.find(text)
        found = Typed(Input(place, self.scope.type(place)), E.ColumnReference(self.scope.quoted(place)))
        for name in fields:
            found = self.field(found, name)
        return found

    def field(self, struct: Typed, name: str) -> Typed:
        kind = struct.type
        if not pt.is_struct(kind):
            raise StaysError(f"a field of {kind}")
        places = [i for i in range(kind.num_fields) if self.scope.same(kind.field(i).name, name)]
        if len(places) != 1:
            raise StaysError(f"{len(places)} fields are called {name}")
        of_json = self._field_of_json(struct, places[0])
        tree = of_json or Call("GetStructField", (struct.tree,), kind.field(places[0]).type, False, places[0])
        return Typed(tree, E.UnresolvedExtractValue(struct.written, E.LiteralExpression._from_value(name)))

    def _extracted(self, e: Expression) -> Typed:
        value, at = self.typed(e._child), e._extraction
        if isinstance(at, E.LiteralExpression) and isinstance(at._value, str):
            return self.field(value, at._value)
        place = self.typed(at)
        if not (pt.is_list(value.type) and pt.is_integer(place.type)):
            raise StaysError(f"an element of {value.type}")
        written = E.UnresolvedExtractValue(value.written, place.written)
        return Typed(self.call("GetArrayItem", [value, place], value.type.value_type), written)


def _left_to_spark(e: Expression) -> str:
    if isinstance(e, E.SQLExpression):
        return f"the text {e._expr!r} is left to Spark"
    what = "a Python function" if "Function" in type(e).__name__ or "UDF" in type(e).__name__ else type(e).__name__
    return f"{what} runs in Spark only"


def qualified(name: str) -> str:
    """Spark's own function, whatever is registered under its name."""
    return f"system.builtin.`{name}`"


def for_spark(name: str, parts: list[Typed]) -> Expression:
    return E.CallFunction(qualified(name), [p.written for p in parts])


def of_literal(part: Typed) -> pa.DataType:
    """Beside decimals a whole number that is written down is a decimal of its digits."""
    e = part.written
    if isinstance(e, E.LiteralExpression) and pt.is_integer(part.type) and e._value is not None:
        return pa.decimal128(len(str(abs(e._value))), 0)
    return part.type


def literal(e: Expression) -> Typed:
    kind, value = e._dataType, e._value
    simple = (T.BooleanType, T.IntegralType, T.FractionalType, T.StringType, T.DateType, T.TimestampType, T.NullType)
    if isinstance(kind, T.DayTimeIntervalType):
        return Typed(Literal(value, INTERVAL), e)
    if not isinstance(kind, simple):
        raise StaysError(f"a literal of type {kind.simpleString()}")
    return Typed(Literal(value, pa.null() if isinstance(kind, T.NullType) else arrow_kind(kind)), e)
