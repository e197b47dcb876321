"""The aggregate expressions of Spark Connect, as the user wrote them. Driver.

The server analyses them, names them and refuses what is wrong; the client has their trees. Inside of an aggregate, and
nowhere else, a part may be a SQL text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import is_case_sensitive, quoted
from spark_ckpt.execution.spark_errors import unlogged
from spark_ckpt.operators.aggregate_kinds import KINDS, LISTED
from spark_ckpt.operators.calls import Call
from spark_ckpt.operators.forms import Form, Listing, weighed
from spark_ckpt.operators.key_columns import column_named
from spark_ckpt.plan.analysed.ledger_of_expressions import refused_aggregates
from spark_ckpt.plan.relations._columns import bare, column, identifier_of, name_parts
from spark_ckpt.plan.relations._tree import parts_of, rewritten

_REFUSED = refused_aggregates()
"""Spark's aggregates that are not kept, and what is there instead."""

_KNOWN = {*KINDS, *_REFUSED}
SparkDF = Any
Tree = Any


class ConnectExpressions:
    """See :class:`spark_ckpt.operators.aggregates.Expressions`."""

    def __init__(self, df: SparkDF, keys: list[Column], exprs: list[Column]) -> None:
        self.names: list[str] = df.groupBy(*keys).agg(*exprs).columns
        self._df, self._columns, self._client = df, df.columns, df.sparkSession.client
        self._sensitive = is_case_sensitive(df.sparkSession)
        self._keys = [bare(k._expr) for k in keys]
        self._types: dict[int, T.DataType] = {}
        if any(map(self._is_unknown, (part for c in exprs for part in parts_of(c._expr)))):
            exprs = _without_lateral_aliases(df, keys, exprs, self.names)
        self._results = [bare(c._expr) for c in exprs]

    def _is_unknown(self, e: Tree) -> bool:
        """Whether it is a name that may be that of an earlier result."""
        name = identifier_of(e)
        return name is not None and column_named(self._columns, name, self._sensitive) is None

    def results(self) -> list[Tree]:
        return self._results

    def aggregate(self, tree: Tree) -> Call | None:
        if not self._is_aggregate(tree):
            return None
        name, args = tree._name.lower(), list(tree._args)
        if name in _REFUSED:
            raise InvalidInputError(f"the aggregate {name} is not there on a checkpointed stream; {_REFUSED[name]}")
        options, form = self._options(name, args), None
        if name in LISTED:
            args, form = self._listed(*args)
        elif name == "percentile" and len(args) == 2:
            form = weighed()
        return Call(name, args, options, getattr(tree, "_is_distinct", False), form=form)

    def _listed(self, value: Tree, delimiter: Tree | None = None) -> tuple[list[Tree], Form]:
        """The value as the text that Spark makes of it, and what is made of all of them."""
        own = column(value)
        kind = self._df.select(own).schema.fields[0].dataType
        is_binary = isinstance(kind, T.BinaryType)
        text = value if is_binary or isinstance(kind, T.StringType) else own.cast("string")._expr
        none = delimiter is None or getattr(delimiter, "_value", delimiter) is None
        given = F.lit(b"" if is_binary else "") if none else column(delimiter)
        return [text], Listing(given, is_binary).form

    def _is_aggregate(self, tree: Tree) -> bool:
        return isinstance(tree, E.UnresolvedFunction | E.CallFunction) and tree._name.lower() in _KNOWN

    def _options(self, name: str, args: list[Tree]) -> dict[str, Any]:
        """What the function is told beside its columns, which is taken out of ``args``."""
        kind, told = KINDS.get(name), args[1:]
        if kind in ("approx_count_distinct", "first", "last", "percentile", "percentile_approx", "mode"):
            weights = told[1:] if name == "percentile" else []
            args[1:] = [tree for tree in weights if getattr(tree, "_value", None) != 1]
        if kind == "approx_count_distinct":
            return {"rsd": float(_value(told[0])) if told else 0.05}
        if kind in ("first", "last"):
            return {"ignore_nulls": bool(_value(told[0])) if told else False}
        if name == "median":
            return {"percentage": 0.5}
        if kind == "percentile":
            return {"percentage": _shares(told[0])}
        if kind in ("min_by", "max_by") and len(told) > 1:
            del args[2:]
            return {"k": int(_value(told[1]))}
        if kind == "percentile_approx":
            return {"percentage": _shares(told[0]), "accuracy": int(_value(told[1])) if len(told) > 1 else 10000}
        return {}

    def key(self, tree: Tree) -> int | None:
        name, written = self.column_name(tree), repr(_as_written_once(tree))
        for i, key in enumerate(self._keys):
            if repr(_as_written_once(key)) == written or (name is not None and name == self.column_name(key)):
                return i
        return None

    def column_name(self, tree: Tree) -> str | None:
        if not isinstance(tree, E.ColumnReference):
            return None
        return column_named(self._columns, tree._unparsed_identifier, self._sensitive)

    def type_of(self, tree: Tree) -> T.DataType:
        """The server is asked once for each expression that is no column."""
        name = self.column_name(tree)
        if name is not None:
            return self._df.schema[name].dataType
        if isinstance(tree, E.UnresolvedStar | E.LiteralExpression):
            return getattr(tree, "_dataType", T.NullType())
        if id(tree) not in self._types:
            self._types[id(tree)] = self._df.select(column(tree)).schema.fields[0].dataType
        return self._types[id(tree)]

    def is_constant(self, tree: Tree) -> bool:
        literal = isinstance(tree, E.LiteralExpression) and tree._value is not None
        return literal or isinstance(tree, E.UnresolvedStar)

    def same(self, one: Tree, other: Tree) -> bool:
        return bool(one.to_plan(self._client) == other.to_plan(self._client))

    def column(self, tree: Tree) -> Column:
        return column(tree)

    def tree(self, column: Column) -> Tree:
        return column._expr

    def rebuilt(self, tree: Tree, part: Callable[[Tree], Tree]) -> Tree:
        if isinstance(tree, E.SQLExpression):
            raise InvalidInputError(
                f"agg: on Spark Connect the text {tree._expr!r} cannot be taken apart into aggregates; write it with "
                "pyspark.sql.functions, as in F.sum('a') / F.count('*')"
            )
        if isinstance(tree, E.ColumnReference):
            raise InvalidInputError(
                f"agg: the column {tree._unparsed_identifier!r} is neither a key nor inside one of the aggregates "
                f"that can be kept for a checkpointed stream: {', '.join(sorted(KINDS))}"
            )
        made = copy.copy(tree)
        vars(made).update({n: self._part(v, part) for n, v in vars(tree).items() if n != "_references"})
        return made

    def _part(self, value: Any, part: Callable[[Tree], Tree]) -> Any:
        if isinstance(value, E.Expression):
            return part(value)
        if isinstance(value, list | tuple):
            return type(value)(self._part(item, part) for item in value)
        return value

    def reference(self, df: SparkDF, name: str) -> Tree:
        return F.col(quoted(name))._expr


def _as_written_once(tree: Tree) -> Tree:
    """Names in one form, whether they were taken from a stream or not, and so fields without the alias of those."""
    if isinstance(tree, E.ColumnAlias) and len(tree._alias) == 1:
        parts = name_parts(identifier_of(tree._child) or "")
        if len(parts) > 1 and parts[-1] == tree._alias[0]:
            return _as_written_once(tree._child)
    return rewritten(tree, _name_in_one_form)


def _name_in_one_form(e: Tree) -> Tree | None:
    name = None if getattr(e, "_plan_id", None) is not None else identifier_of(e)
    return None if name is None else E.ColumnReference(".".join(map(quoted, name_parts(name))))


def _shares(tree: Tree) -> float | list[float]:
    """Literals: a number, an array of numbers, or ``array`` of literals."""
    if hasattr(tree, "_args"):
        return [float(_value(a)) for a in tree._args]
    value = _value(tree)
    return [float(v) for v in value] if isinstance(value, list | tuple) else float(value)


def _value(tree: Tree) -> Any:
    """Of a literal. Raises ``InvalidInputError``."""
    if isinstance(tree, E.LiteralExpression):
        return tree._value
    raise InvalidInputError(
        f"agg: on Spark Connect, expected a constant as an option of an aggregate, found {tree}; write it as a value "
        'of Python, as in F.percentile("v", 0.5)'
    )


def _without_lateral_aliases(
    df: SparkDF, keys: Sequence[Column], exprs: Sequence[Column], names: Sequence[str]
) -> list[Column]:
    """``exprs`` of ``df`` without names of what is ahead of them; ``names`` are Spark's, of keys and results.

    Of ``groupBy(F.upper("k").alias("u")).agg(F.concat("u", "u"))``, Spark takes a name that is no column for what was
    given it earlier in the list, and plans a projection behind the aggregate. Here what it stands for is put in its
    place.
    """
    sensitive = is_case_sensitive(df.sparkSession)
    earlier = {name: column(bare(key._expr)) for name, key in zip(names, keys, strict=False)}

    def meant(e: Tree) -> Tree | None:
        name = None if getattr(e, "_plan_id", None) is not None else identifier_of(e)
        if name is None or _is_column(df, name):
            return None
        first, *fields = name_parts(name)
        found = column_named(list(earlier), first, sensitive)
        return None if found is None else reduce(Column.getField, fields, earlier[found])._expr

    made = []
    for expr, name in zip(exprs, names[len(names) - len(exprs) :], strict=True):
        new = rewritten(expr._expr, meant)
        made.append(expr if new is expr._expr else column(bare(new)).alias(name))
        earlier.setdefault(name, column(bare(new)))
    return made


def _is_column(df: SparkDF, name: str) -> bool:
    """Whether Spark finds one of this name, in another case or inside of a struct, too."""
    try:
        with unlogged():
            return bool(df.select(name).columns)
    except PySparkException:
        return False
