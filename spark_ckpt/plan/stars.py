"""``F.to_json(F.struct("*"))``: a star means the user's columns, also inside a function. Driver; classic and Connect.

Spark would take in the control columns. A star in a SQL text on Spark Connect is left as it is: the client cannot take
the text apart, so :mod:`spark_ckpt.plan.plan_check` refuses it by what Spark makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column

from spark_ckpt.plan.attributes import stream_columns
from spark_ckpt.plan.columns import everything, quoted
from spark_ckpt.plan.condition import ClassicTree, ConnectTree, starred_stream
from spark_ckpt.plan.java_classes import is_a, to_seq
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.types import TAG

JavaObject = Any
_STAR = "UnresolvedStar"
_STAR_COLUMN = re.compile(r"Column<'(?:\*|(.+\.\*)\.\*|unresolvedstar\((.*)\))'>")
"""``F.col("*")`` and ``F.col("x.*")``, as they are printed on classic Spark and Connect."""
_COUNT = "count"
"""``count(*)`` counts rows and looks at no column."""
_OF_STREAM = re.compile(r"`\*` --\* (\d+)")


@dataclass(frozen=True)
class Star:
    """``target``: what stands in front of it, as Spark's parser reads it. ``excepts``: the columns that it leaves out.
    ``stream``: the number of the stream that it was taken from. ``regex``: it is none, but ``colRegex``."""

    target: str = ""
    excepts: tuple[str, ...] = ()
    stream: int | None = None
    regex: str | None = None


Expand = Callable[[Star], "list[Column] | None"]
"""What a star stands for; None: Spark is to say."""


def expanded(column: Any, expand: Expand) -> list[Any]:
    """``column`` with what the stars in it stand for; several, where it is one itself."""
    if not (isinstance(column, Column) and (may_have_star(column) or _is_regex(column))):
        return [column]
    if type(column).__module__.startswith("pyspark.sql.classic"):
        return _ClassicExpanded(expand).columns(column)
    return _ConnectExpanded(expand).columns(column)


def may_have_star(column: Any) -> bool:
    """Quickly; a product looks like one."""
    return "*" in str(column) or "star" in str(column)


def with_stars(columns: list[Any], stream: int, others: bool = True) -> list[Any]:
    """With the columns that ``other["*"]`` stands for, if ``others``; ``stream`` is the number of the one that is asked
    for them."""
    return [one for column in columns for one in _of_star(column, stream, others)]


def _of_star(column: Any, stream: int, others: bool) -> list[Any]:
    star = starred_stream(column) if isinstance(column, Column) else None
    if star is None:
        found = _STAR_COLUMN.fullmatch(str(column)) if isinstance(column, Column) else None
        return [column if found is None else found[1] or found[2] or "*"]
    if star != stream and not others:
        return [column]
    those = None if star == stream else stream_columns(star)
    return ["*"] if those is None else those


def without_control(column: Any) -> Any:
    """``column`` with stars that leave the control columns out."""
    if not (isinstance(column, Column) and may_have_star(column)):
        return column
    if type(column).__module__.startswith("pyspark.sql.classic"):
        return _ClassicStars(lambda _: None).column(column)
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn(_ConnectStars(lambda _: None).expression(column._expr))


class _ClassicStars(ClassicTree):
    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        if kind == _STAR and node.unparsedTarget().isEmpty():
            return everything()._jc.node()
        if kind == "UnresolvedFunction" and node.functionName().lower() == _COUNT and not node.isDistinct():
            return node
        if kind == "SqlExpression" and "*" not in node.expression():
            return node
        return super()._node(node)

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        if kind == _STAR and e.target().isEmpty():
            return self._convert.expression(everything()._jc)
        counts = kind == "UnresolvedFunction" and [p.lower() for p in items_of(e.nameParts())] == [_COUNT]
        if counts and not e.isDistinct():
            return e
        return super()._expression(e)


class _ConnectStars(ConnectTree):
    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.UnresolvedStar) and e._unparsed_target is None and e._plan_id is None:
            return everything()._expr
        if isinstance(e, expressions.UnresolvedFunction) and e._name.lower() == _COUNT and not e._is_distinct:
            return e
        return super().expression(e)


def _is_regex(column: Column) -> bool:
    """Quickly; on Connect it is printed as the pattern, which leaves the control columns out."""
    return "unresolvedregex" in str(column) or TAG in str(column)


class _ClassicExpanded(ClassicTree):
    def __init__(self, expand: Expand) -> None:
        super().__init__(lambda _: None)
        self._expand = expand

    def columns(self, column: Any) -> list[Any]:
        found = self._of_node(column._jc.node())
        return [self.column(column)] if found is None else found

    def _of_node(self, node: JavaObject) -> list[Any] | None:
        kind = node.getClass().getSimpleName()
        if kind == _STAR:
            target = node.unparsedTarget()
            return self._expand(Star("" if target.isEmpty() else str(target.get())[:-2]))
        if kind == "SqlExpression" and "*" in node.expression():
            taken = _OF_STREAM.fullmatch(node.expression())
            return self._expand(Star(stream=int(taken[1]))) if taken else self._of_expression_node(self._parsed(node))
        return self._of_expression_node(node.expression()) if kind == "ExpressionColumnNode" else None

    def _of_expression_node(self, e: JavaObject) -> list[Any] | None:
        kind = e.getClass().getSimpleName()
        if kind == "UnresolvedRegex":
            return self._expand(Star("" if e.table().isEmpty() else quoted(e.table().get()), regex=e.regexPattern()))
        replaces = kind == f"{_STAR}ExceptOrReplace" and e.replacements().isDefined()
        if replaces or kind not in (_STAR, f"{_STAR}ExceptOrReplace"):
            return self._of_node(e.node()) if kind == "ColumnNodeExpression" else None
        target = "" if e.target().isEmpty() else _name(e.target().get())
        return self._expand(Star(target, tuple(map(_name, items_of(e.excepts()))) if kind != _STAR else ()))

    def _node(self, node: JavaObject) -> JavaObject:
        kind = node.getClass().getSimpleName()
        counts = kind == "UnresolvedFunction" and node.functionName().lower() == _COUNT and not node.isDistinct()
        without = kind == "SqlExpression" and "*" not in node.expression()
        return node if counts or without else super()._node(node)

    def _value(self, value: Any) -> Any:
        if not is_a(value, "scala.collection.immutable.Seq"):
            return super()._value(value)
        items, done = items_of(value), list[Any]()
        for item in items:
            is_node = is_a(item, "org.apache.spark.sql.internal.ColumnNode")
            found = self._of_node(item) if is_node else None
            done += [self._value(item)] if found is None else [c._jc.node() for c in found]
        same = len(done) == len(items) and all(new is old for new, old in zip(done, items, strict=True))
        return value if same else to_seq(done)

    def _expression(self, e: JavaObject) -> JavaObject:
        kind = e.getClass().getSimpleName()
        if kind == "UnresolvedFunction" and [p.lower() for p in items_of(e.nameParts())] == [_COUNT]:
            return e if not e.isDistinct() else self._with_expanded(e)
        return self._with_expanded(e)

    def _with_expanded(self, e: JavaObject) -> JavaObject:
        """Spark's expressions have as many children as they had, so that one with more is another."""
        children = items_of(e.children())
        if not any(self._of_expression_node(child) for child in children):
            return super()._expression(e)
        if e.getClass().getSimpleName() == "CreateNamedStruct":
            pairs = zip(children[::2], children[1::2], strict=True)
            return e.copy(to_seq([c for name, value in pairs for c in self._named_as(name, value)]))
        args = items_of(e.productIterator())
        return e.copy(*[self._arguments(a) if is_a(a, "scala.collection.immutable.Seq") else a for a in args])

    def _named_as(self, name: JavaObject, value: JavaObject) -> list[JavaObject]:
        """``name`` is a placeholder where the value is a star."""
        return [part for one in self._one_or_more(value) for part in (name, one)]

    def _arguments(self, seq: JavaObject) -> JavaObject:
        is_tree = [is_a(a, "org.apache.spark.sql.catalyst.expressions.Expression") for a in items_of(seq)]
        if not all(is_tree):
            return seq
        return to_seq([one for a in items_of(seq) for one in self._one_or_more(a)])

    def _one_or_more(self, e: JavaObject) -> list[JavaObject]:
        found = self._of_expression_node(e)
        return [self._expression(e)] if found is None else [self._convert.expression(c._jc) for c in found]


def _name(parts: JavaObject) -> str:
    return ".".join(quoted(part) for part in items_of(parts))


class _ConnectExpanded(ConnectTree):
    """A SQL text that is more than a star is left as it is."""

    def __init__(self, expand: Expand) -> None:
        super().__init__(lambda _: None)
        self._expand = expand

    def columns(self, column: Any) -> list[Any]:
        from pyspark.sql.connect.column import Column as ConnectColumn

        found = self._of(column._expr)
        return [ConnectColumn(self.expression(column._expr))] if found is None else found

    def _of(self, e: Any) -> list[Any] | None:
        from pyspark.sql.connect import expressions

        if isinstance(e, expressions.UnresolvedStar) and e._plan_id is None:
            return self._expand(Star((e._unparsed_target or "")[:-2]))
        if isinstance(e, expressions.UnresolvedRegex):
            before, _, regex = e.col_name.rpartition("`(?!")
            return self._expand(Star(before.rstrip("."), regex=f"(?!{regex}"[:-1]))
        taken = _OF_STREAM.fullmatch(e._expr) if isinstance(e, self._text) else None
        return self._expand(Star(stream=int(taken[1]))) if taken else None

    def expression(self, e: Any) -> Any:
        from pyspark.sql.connect import expressions

        counts = isinstance(e, expressions.UnresolvedFunction) and e._name.lower() == _COUNT and not e._is_distinct
        return e if counts else super().expression(e)

    def _value(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return super()._value(value)
        done = list(self._one_or_more(value))
        same = len(done) == len(value) and all(new is old for new, old in zip(done, value, strict=True))
        return value if same else type(value)(done)

    def _one_or_more(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            found = self._of(item) if isinstance(item, self._expression_class) else None
            yield from [super()._value(item)] if found is None else [c._expr for c in found]
