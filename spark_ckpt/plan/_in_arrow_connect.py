"""Filters and computed columns that run in Python, from the plans of Spark Connect's client. Driver.

Nothing of how Spark analysed a plan comes to the client but types, and whether two plans are the same. So an operation
is taken from the client's plan, put together again with every cast, name and function spelt out, and runs in Python
only if Spark says that both are the same to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.types as pt
from pyspark.errors import PySparkException
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.column import Column
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.expressions.tree import Input
from spark_ckpt.plan._connect_asked import asked, called
from spark_ckpt.plan._connect_forms import FORMS
from spark_ckpt.plan._connect_functions import FUNCTIONS
from spark_ckpt.plan._connect_json import json_session, one_field
from spark_ckpt.plan._connect_missing import filled, replaced
from spark_ckpt.plan._connect_scope import Scope, without_texts
from spark_ckpt.plan._connect_trees import Settings, Trees, Typed
from spark_ckpt.plan._in_arrow import Stays, StaysError, arrow_kind
from spark_ckpt.plan._sql_expressions import read
from spark_ckpt.plan._trying import unlogged
from spark_ckpt.plan.columns import quoted
from spark_ckpt.runtime.expressions import Compute, Keep
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
_Named = tuple[str | None, Any]
_NODES = (
    P.Project, P.WithColumns, P.Filter, P.SubqueryAlias, P.WithColumnsRenamed, P.ToDF, P.Drop, P.NAFill, P.NAReplace,
)  # fmt: skip
_CONFS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "",
    "spark.sql.legacy.timeParserPolicy": "",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.caseSensitive": "false",
}


def in_arrow(before: SparkDF, after: SparkDF) -> tuple[Operation, ...] | Stays:
    """As :func:`spark_ckpt.plan._in_arrow.in_arrow`."""
    try:
        nodes = _between(before._plan, after._plan)
        steps = _Steps(before, after, settings_of(before.sparkSession))
        for node in nodes:
            steps.take(node)
        steps.check()
    except StaysError as e:
        return e.stays()
    return tuple(steps.operations)


def same(one: SparkDF, other: SparkDF) -> bool:
    try:
        with unlogged():
            return bool(one.sameSemantics(other))
    except PySparkException:
        return False


def trees_of(plain: Sequence[Any], rows: SparkDF, scope: Scope, settings: Settings) -> Trees:
    """For expressions over ``rows``, whose types Spark is asked for. Raises ``StaysError``."""
    questions = [part for e in plain for part in asked(e)]
    types: dict[int, Any] = {}
    unknown = [name for name in map(called, questions) if not (name is None or name in FORMS or name in FUNCTIONS)]
    if unknown:
        raise StaysError(f"{unknown[0]} runs in Spark only")
    if questions:
        columns = [Column(q).alias(f"c{i}") for i, q in enumerate(questions)]
        try:
            with unlogged():
                found = DataFrame(P.Project(rows._plan, columns), rows.sparkSession).schema.fields
        except PySparkException as e:
            raise StaysError("Spark does not tell the types in it") from e
        types = {id(q): f.dataType for q, f in zip(questions, found, strict=True)}
    return Trees(scope, settings, types, FORMS, one_field)


def settings_of(session: Any) -> Settings:
    found = session.client.get_config_dict(*_CONFS)
    ansi, zone, parser, size, case = (found.get(key) or other for key, other in _CONFS.items())
    is_ansi = ansi == "true"
    size_of_null = size == "true" and not is_ansi
    return Settings(is_ansi, zone, parser.upper(), size_of_null, case == "true", lambda: json_session(session))


def _between(stop: Any, node: Any) -> list[Any]:
    """The nodes above ``stop``, the lowest first."""
    found: list[Any] = []
    while node is not stop:
        if not isinstance(node, _NODES):
            raise StaysError(f"in Spark's plan of it is a {type(node).__name__}")
        found.append(node)
        node = node._child
    return found[::-1]


class _Steps:
    """``frame``: the same steps as they were understood, for Spark."""

    def __init__(self, before: SparkDF, after: SparkDF, settings: Settings) -> None:
        fields = before.schema.fields
        names, types = [f.name for f in fields], [f.dataType for f in fields]
        self._settings, self._scope = settings, Scope(names, types, settings.case_sensitive)
        self._session, self._after, self.frame = before.sparkSession, after, before
        self.operations: list[Operation] = []

    def take(self, node: Any) -> None:
        if isinstance(node, P.Filter):
            [condition] = self._typed([node.filter._expr], node)
            self.operations.append(Keep(condition.tree))
            self.frame = self.frame.where(Column(condition.written))
        elif isinstance(node, P.NAReplace) and len(node.replacements) > 1:
            self._replace_several(node)
        elif not isinstance(node, P.SubqueryAlias):
            self._project(self._columns(node), node)

    def check(self) -> None:
        """Raises ``StaysError`` unless it is all the same to Spark."""
        fields = self._after.schema.fields
        names, types = [f.name for f in fields], [arrow_kind(f.dataType) for f in fields]
        if names != list(self._scope.names) or types != [self._scope.type(i) for i in range(len(names))]:
            raise StaysError("Spark has other columns")
        if not same(self._after, self.frame):
            raise StaysError("Spark analyses it in another way than was thought")

    def _replace_several(self, node: P.NAReplace) -> None:
        """In which order Spark looks for the values is its own. So it is asked of them one by one."""
        before, singly = self.frame, node._child
        for pair in node.replacements:
            singly = P.NAReplace(singly, node.cols, [pair])
        found = in_arrow(DataFrame(node._child, self._session), DataFrame(singly, self._session))
        if isinstance(found, Stays):
            raise StaysError(found.why)
        self._project(self._columns(node), node)
        self.frame = DataFrame(P.NAReplace(before._plan, node.cols, node.replacements), self._session)

    def _columns(self, node: Any) -> list[_Named]:
        """Name and expression of each; no name for those that keep their own."""
        names = [self._scope.quoted(i) for i in range(len(self._scope.names))]
        own: list[_Named] = [(None, E.ColumnReference(name)) for name in names]
        if isinstance(node, P.Project):
            return [one for column in node._columns for one in self._selected(self._plain(column._expr), own)]
        if isinstance(node, P.ToDF):
            return [(name, e) for name, (_, e) in zip(node._cols, own, strict=True)]
        if isinstance(node, P.Drop):
            gone = {place for column in node._columns for place in self._dropped(column)}
            return [one for i, one in enumerate(own) if i not in gone]
        found = list(own)
        if isinstance(node, P.NAFill | P.NAReplace):
            made = filled(node, self._scope) if isinstance(node, P.NAFill) else replaced(node, self._scope)
            for place, name, e in made:
                found[place] = (name, e)
            return found
        if isinstance(node, P.WithColumnsRenamed):
            for old, new in node._colsMap.items():
                for place in self._scope.places(old):
                    found[place] = (new, own[place][1])
            return found
        for name, column in zip(node._columnNames, node._columns, strict=True):
            places = self._scope.places(name)
            found += [] if places else [(name, column._expr)]
            for place in places:
                found[place] = (name, column._expr)
        return found

    def _selected(self, e: Any, own: list[_Named]) -> list[_Named]:
        if isinstance(e, E.UnresolvedStar) and e._unparsed_target is None and e._plan_id is None:
            return own
        if isinstance(e, E.SQLExpression) and e._expr == f"* EXCEPT ({', '.join(CONTROL_COLUMNS)})":
            return [one for one, name in zip(own, self._scope.names, strict=True) if name not in CONTROL_COLUMNS]
        if isinstance(e, E.UnresolvedStar) and e._plan_id is None:
            return self._fields(e._unparsed_target.removesuffix(".*"))
        return [(e._alias[0] if isinstance(e, E.ColumnAlias) else None, e)]

    def _fields(self, text: str) -> list[_Named]:
        """All fields of the struct that ``text`` means."""
        found = Trees(self._scope, self._settings, {}, FORMS).typed(E.ColumnReference(text))
        if not pt.is_struct(found.type):
            raise StaysError(f"{text}.* is of no struct")
        names = [field.name for field in found.type]
        literals = map(E.LiteralExpression._from_value, names)
        return [(n, E.UnresolvedExtractValue(E.ColumnReference(text), e)) for n, e in zip(names, literals, strict=True)]

    def _dropped(self, column: Any) -> list[int]:
        if isinstance(column, str):
            return self._scope.places(column)
        e = self._plain(column._expr)
        if not isinstance(e, E.ColumnReference):
            raise StaysError("what is dropped is no name")
        try:
            place, fields = self._scope.find(e._unparsed_identifier)
        except StaysError:
            return []
        return [] if fields else [place]

    def _project(self, columns: list[_Named], node: Any) -> None:
        typed = self._typed([e for _, e in columns], node)
        found = [name or self._own_name(e, one) for (name, e), one in zip(columns, typed, strict=True)]
        names = [name for name in found if name is not None]
        if len(names) < len(found):
            rows = self._after if self._after._plan is node else DataFrame(node, self._session)
            names = list(rows.columns)
        written = [
            Column(one.written) if name is None and isinstance(one.tree, Input) else Column(one.written).alias(new)
            for (name, _), one, new in zip(columns, typed, names, strict=True)
        ]
        self.operations.append(Compute([(name, one.tree) for name, one in zip(names, typed, strict=True)]))
        self._scope = Scope(names, [one.type for one in typed], self._scope.sensitive)
        self.frame = self.frame.select(*written)

    def _own_name(self, e: Any, one: Typed) -> str | None:
        """Of a column that is passed on, as far as it is sure."""
        name = str(self._scope.names[one.tree.at]) if isinstance(one.tree, Input) else None
        written = e._unparsed_identifier if isinstance(e, E.ColumnReference) else None
        return name if name is not None and written in (name, quoted(name)) else None

    def _typed(self, expressions: Sequence[Any], node: Any) -> list[Typed]:
        plain = [self._plain(e) for e in expressions]
        trees = trees_of(plain, DataFrame(node._child, self._session), self._scope, self._settings)
        typed = [trees.typed(e) for e in plain]
        self._check_thought(trees.thought)
        return typed

    def _check_thought(self, pairs: list[tuple[Any, Any]]) -> None:
        met, written = ([Column(pair[i]).alias(f"c{n}") for n, pair in enumerate(pairs)] for i in (0, 1))
        if pairs and not same(self.frame.select(*met), self.frame.select(*written)):
            raise StaysError("Spark analyses it in another way than was thought")

    def _plain(self, e: Any) -> Any:
        """``e`` without the texts of SQL in it, as far as they can be read."""
        return without_texts(e, lambda text: read(text, self._settings.zone))
