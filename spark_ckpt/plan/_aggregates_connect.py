"""The aggregate expressions of Spark Connect, as the user wrote them. Driver.

The server analyses them, names them and refuses what is wrong; the client has their trees. A SQL text is read, and
taken apart if Spark says that what was read is the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_kinds import KINDS, LISTED, REFUSED
from spark_ckpt.plan._calls import Call
from spark_ckpt.plan._condition import ConnectTree, Name, name_of, names_in, parts_of
from spark_ckpt.plan._connect_scope import without_texts
from spark_ckpt.plan._forms import Form, weighed
from spark_ckpt.plan._lateral_aliases import put_in_place
from spark_ckpt.plan._listagg import Listing
from spark_ckpt.plan._sql_expressions import read
from spark_ckpt.plan._trying import unlogged
from spark_ckpt.plan.columns import is_case_sensitive, quoted, unquoted
from spark_ckpt.plan.key_columns import column_named

_KNOWN = {*KINDS, *REFUSED}
SparkDF = Any
Tree = Any


class ConnectExpressions:
    """See :class:`spark_ckpt.plan._aggregates.Expressions`."""

    def __init__(self, df: SparkDF, keys: list[Column], exprs: list[Column]) -> None:
        from pyspark.sql.connect import expressions
        from pyspark.sql.connect.column import Column as ConnectColumn

        self._e, self._column_class = expressions, ConnectColumn
        aggregated = df.groupBy(*keys).agg(*exprs)
        self.names: list[str] = aggregated.columns
        self._df, self._columns, self._client = df, df.columns, df.sparkSession.client
        self._sensitive = is_case_sensitive(df.sparkSession)
        self._keys = [self._bare(k) for k in keys]
        self._types: dict[int, T.DataType] = {}
        if any(self._is_unknown(name) for c in exprs for name in names_in(c) or []):
            exprs = put_in_place(df, keys, exprs, self.names)
        self._results = [self._bare(c) for c in self._without_texts(df, keys, exprs, aggregated)]

    def _without_texts(self, df: SparkDF, keys: list[Column], exprs: list[Column], aggregated: SparkDF) -> list[Column]:
        """``exprs``, as they are if it is not sure what their texts say. Inside of an aggregate a text may stay."""
        zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
        trees = [without_texts(self._expression(c), lambda text: read(text, zone), self._is_aggregate) for c in exprs]
        if all(tree is self._expression(c) for tree, c in zip(trees, exprs, strict=True)):
            return exprs
        found = [self.column(tree) for tree in trees]
        try:
            with unlogged():
                same = df.groupBy(*keys).agg(*found).sameSemantics(aggregated)
        except PySparkException:
            same = False
        return found if same else exprs

    def _is_unknown(self, name: Name) -> bool:
        """Whether it may be that of an earlier result."""
        return column_named(self._columns, name.text, self._sensitive) is None

    def results(self) -> list[Tree]:
        return self._results

    def aggregate(self, tree: Tree) -> Call | None:
        if not self._is_aggregate(tree):
            return None
        name, args = tree._name.lower(), list(tree._args)
        options, form = self._options(name, args), None
        if name in LISTED:
            args, form = self._listed(*args)
        elif name == "percentile" and len(args) == 2:
            form = weighed()
        return Call(name, args, options, getattr(tree, "_is_distinct", False), form=form)

    def _listed(self, value: Tree, delimiter: Tree | None = None) -> tuple[list[Tree], Form]:
        """The value as the text that Spark makes of it, and what is made of all of them."""
        column = self.column(value)
        kind = self._df.select(column).schema.fields[0].dataType
        is_binary = isinstance(kind, T.BinaryType)
        text = value if is_binary or isinstance(kind, T.StringType) else column.cast("string")._expr
        none = delimiter is None or getattr(delimiter, "_value", delimiter) is None
        given = F.lit(b"" if is_binary else "") if none else self.column(delimiter)
        return [text], Listing(given, is_binary).form

    def _is_aggregate(self, tree: Tree) -> bool:
        return isinstance(tree, self._e.UnresolvedFunction | self._e.CallFunction) and tree._name.lower() in _KNOWN

    def _options(self, name: str, args: list[Tree]) -> dict[str, Any]:
        """What the function is told beside its columns, which is taken out of ``args``."""
        kind, told = KINDS.get(name), args[1:]
        if kind in ("approx_count_distinct", "first", "last", "percentile", "percentile_approx", "mode"):
            weights = told[1:] if name == "percentile" else []
            args[1:] = [tree for tree in weights if getattr(tree, "_value", None) != 1]
        if kind == "approx_count_distinct":
            return {"rsd": float(told[0]._value) if told else 0.05}
        if kind in ("first", "last"):
            return {"ignore_nulls": bool(told[0]._value) if told else False}
        if name == "median":
            return {"percentage": 0.5}
        if kind == "percentile":
            return {"percentage": _shares(told[0])}
        if kind in ("min_by", "max_by") and len(told) > 1:
            del args[2:]
            return {"k": int(told[1]._value)}
        if kind == "percentile_approx":
            return {"percentage": _shares(told[0]), "accuracy": int(told[1]._value) if len(told) > 1 else 10000}
        return {}

    def key(self, tree: Tree) -> int | None:
        name, written = self.column_name(tree), repr(_as_written_once(tree))
        for i, key in enumerate(self._keys):
            if repr(_as_written_once(key)) == written or (name is not None and name == self.column_name(key)):
                return i
        return None

    def column_name(self, tree: Tree) -> str | None:
        if not isinstance(tree, self._e.ColumnReference):
            return None
        return column_named(self._columns, tree._unparsed_identifier, self._sensitive)

    def type_of(self, tree: Tree) -> T.DataType:
        """The server is asked once for each expression that is no column."""
        name = self.column_name(tree)
        if name is not None:
            return self._df.schema[name].dataType
        if isinstance(tree, self._e.UnresolvedStar | self._e.LiteralExpression):
            return getattr(tree, "_dataType", T.NullType())
        if id(tree) not in self._types:
            self._types[id(tree)] = self._df.select(self.column(tree)).schema.fields[0].dataType
        return self._types[id(tree)]

    def is_constant(self, tree: Tree) -> bool:
        literal = isinstance(tree, self._e.LiteralExpression) and tree._value is not None
        return literal or isinstance(tree, self._e.UnresolvedStar)

    def same(self, one: Tree, other: Tree) -> bool:
        return bool(one.to_plan(self._client) == other.to_plan(self._client))

    def column(self, tree: Tree) -> Column:
        made: Column = self._column_class(tree)
        return made

    def tree(self, column: Column) -> Tree:
        return self._expression(column)

    def rebuilt(self, tree: Tree, part: Callable[[Tree], Tree]) -> Tree:
        if isinstance(tree, self._e.SQLExpression):
            raise InvalidInputError(
                f"agg: on Spark Connect the text {tree._expr!r} cannot be taken apart into aggregates; write it with "
                "pyspark.sql.functions, as in F.sum('a') / F.count('*')"
            )
        if isinstance(tree, self._e.ColumnReference):
            raise InvalidInputError(
                f"agg: the column {tree._unparsed_identifier!r} is neither a key nor inside one of the aggregates "
                f"that can be kept for a checkpointed stream: {', '.join(sorted(KINDS))}"
            )
        made = copy.copy(tree)
        vars(made).update({n: self._part(v, part) for n, v in vars(tree).items() if n != "_references"})
        return made

    def _part(self, value: Any, part: Callable[[Tree], Tree]) -> Any:
        if isinstance(value, self._e.Expression):
            return part(value)
        if isinstance(value, list | tuple):
            return type(value)(self._part(item, part) for item in value)
        return value

    def reference(self, df: SparkDF, name: str) -> Tree:
        return self._expression(F.col(quoted(name)))

    def _bare(self, column: Column) -> Tree:
        tree = self._expression(column)
        return tree._child if isinstance(tree, self._e.ColumnAlias) else tree

    def _expression(self, column: Any) -> Tree:
        return column._expr


class _WrittenOnce(ConnectTree):
    """Names in one form, whether they were taken from a stream or not, and so fields without the alias of those."""

    def __init__(self) -> None:
        super().__init__(lambda name: F.col(".".join(quoted(unquoted(part)) for part in parts_of(name.text))))

    def expression(self, e: Tree) -> Tree:
        alias = getattr(e, "_alias", [])
        parts = parts_of(self._name(e._child)) if len(alias) == 1 else []
        return super().expression(e._child if len(parts) > 1 and unquoted(parts[-1]) == alias[0] else e)

    def _name(self, e: Tree) -> str:
        """What ``e`` is, if it is one and nothing else."""
        found = name_of(e._expr) if isinstance(e, self._text) else None
        return found.text if found is not None else getattr(e, "_unparsed_identifier", "")


def _as_written_once(tree: Tree) -> Tree:
    return _WrittenOnce().expression(tree)


def _shares(tree: Tree) -> float | list[float]:
    """Literals: a number, an array of numbers, or ``array`` of literals."""
    if hasattr(tree, "_args"):
        return [float(a._value) for a in tree._args]
    value = tree._value
    return [float(v) for v in value] if isinstance(value, list | tuple) else float(value)
