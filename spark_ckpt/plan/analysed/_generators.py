"""Gives generators (``explode``, ``inline``, ``stack``, ...) one element for each control row. Driver; classic Spark.

A generator makes as many rows of a row as it finds elements: none of an empty array, of which a control row would not
come back. So what it looks into is replaced by ``if(__ckpt_ctl is not null, array(one element), what it was)``: data
rows have Spark's result, and each control row goes on exactly once.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.java_classes import items_of, seq_items, to_seq
from spark_ckpt.plan.analysed._nodes import kind_of
from spark_ckpt.plan.analysed._udf_plan import PlanRewriter
from spark_ckpt.plan.analysed.ledger_of_expressions import Where, classes_by, kind_of_expression

SparkDF = Any
JavaObject = Any

_OF_ELEMENTS = classes_by("elements")


def for_control_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """``after``, which an operation made of ``before``, with one row of each control row where there are generators."""
    return _Rewriter(before).frame(after)


def refuse_generator(generator: JavaObject) -> None:
    """Raises ``InvalidInputError`` for one that would see control rows, or could lose or multiply them."""
    kind = kind_of(generator)
    row = kind_of_expression(kind)
    if row.where is Where.REFUSED:
        name = generator.name() if kind == "PythonUDTF" else generator.prettyName()
        raise InvalidInputError(f"{name}: {row.says}")


class _Rewriter(PlanRewriter):
    def __init__(self, before: SparkDF) -> None:
        super().__init__(before, "GENERATE")
        self._expressions = self._catalyst.expressions

    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        if node.nodeName() != "Generate":
            return node
        made = self._generator(node.generator(), flag)
        return node.copy(
            made, node.unrequiredChildIndex(), node.outer(), node.qualifier(), node.generatorOutput(), node.child()
        )

    def _generator(self, generator: JavaObject, flag: JavaObject) -> JavaObject:
        kind, children = kind_of(generator), seq_items(generator.children())
        if kind in _OF_ELEMENTS:
            return generator.withNewChildren(to_seq([self._one_for_control(children[0], flag)]))
        if kind == "Stack":
            return self._expressions.Inline(self._one_for_control(self._stacked(generator, children), flag))
        return generator

    def _one_for_control(self, elements: JavaObject, flag: JavaObject) -> JavaObject:
        kind = elements.dataType()
        if kind.typeName() == "map":
            entry = [self._some(kind.keyType()), self._element(kind.valueType(), kind.valueContainsNull())]
            one = self._expressions.CreateMap(to_seq(entry))
        else:
            one = self._expressions.CreateArray(to_seq([self._element(kind.elementType(), kind.containsNull())]))
        return self._expressions.If(flag, one, elements)

    def _stacked(self, stack: JavaObject, children: list[JavaObject]) -> JavaObject:
        """``stack(n, a, b, ...)`` as an array of ``n`` structs: it makes ``n`` rows of whatever it gets."""
        fields, values = items_of(stack.elementSchema()), children[1:]
        text, rows = self._jvm.org.apache.spark.sql.types.DataType.fromDDL("string"), []
        for row in range(children[0].eval(None)):
            named = []
            for at, field in enumerate(fields, row * len(fields)):
                there = at < len(values) and values[at].dataType().typeName() != "void"
                named += [self._expressions.Literal.create(field.name(), text)]
                named += [values[at] if there else self._null(field.dataType())]
            rows.append(self._expressions.CreateNamedStruct(to_seq(named)))
        return self._expressions.CreateArray(to_seq(rows))

    def _element(self, kind: JavaObject, nullable: bool) -> JavaObject:
        return self._null(kind) if nullable else self._some(kind)

    def _null(self, kind: JavaObject) -> JavaObject:
        return self._expressions.Literal.create(None, kind)

    def _some(self, kind: JavaObject) -> JavaObject:
        return self._expressions.Literal.default(kind)


def asked_for_data_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """``after``, which an operation made of ``before``, whose sub-queries find nothing for control rows."""
    return _OfSubQueries(before, "SCALAR_SUBQUERY").frame(after)


class _OfSubQueries(PlanRewriter):
    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        return self.with_expressions(node, lambda e: self._expression(e, flag.child()))

    def _expression(self, e: JavaObject, control: JavaObject) -> JavaObject:
        if not e.containsPattern(self._pattern):
            return e
        outer = items_of(e.outerAttrs()) if e.nodeName() == "ScalarSubquery" else []
        if not outer:
            return self.with_children(e, lambda child: self._expression(child, control))
        plan, expressions = e.plan(), self._catalyst.expressions
        rows = plan.maxRows()
        if rows.isDefined() and rows.get() <= 1:
            return e
        is_data = expressions.IsNull(expressions.OuterReference(control))
        asked = self._catalyst.plans.logical.Filter(is_data, plan)
        return e.withNewPlan(asked).withNewOuterAttrs(to_seq([*outer, control]))
