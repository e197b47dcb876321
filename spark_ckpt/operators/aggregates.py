"""From PySpark's aggregate expressions to aggregates of columns, and to what is computed of those. Driver.

``F.sum(F.col("a") * F.col("b")) / F.count("*")`` is a sum of the column ``(a * b)``, which Spark computes in front of
the operator; a count of rows; and their quotient, which Spark computes behind it. Names, types and errors are Spark's:
it analyses the expressions over the preview first. Classic Spark gives its analysed tree
(:mod:`spark_ckpt.plan.analysed._aggregate_calls`), Spark Connect the one that the user wrote
(:mod:`spark_ckpt.plan.relations._aggregate_trees`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.names import free
from spark_ckpt.operators.aggregate_kinds import DISTINCT, KINDS, OF_ONE_OF_TWO, PAIRED
from spark_ckpt.operators.calls import Call, formed
from spark_ckpt.operators.forms import LIST_WITH_NULLS
from spark_ckpt.operators.key_columns import stored_name

SparkDF = Any
ALL_ROWS = "all_rows"
"""The one key of an aggregation without keys."""
Tree = Any
"""An expression: Spark's own object, or Spark Connect's."""


class Expressions(Protocol):
    """``agg(...)`` over one DataFrame. Its columns are good for that one."""

    names: list[str]
    """Of all result columns, the keys' in front."""

    def results(self) -> list[Tree]:
        """Of each expression that was given."""

    def aggregate(self, tree: Tree) -> Call | None:
        """The aggregate function that ``tree`` is."""

    def key(self, tree: Tree) -> int | None:
        """Which key ``tree`` is."""

    def column_name(self, tree: Tree) -> str | None:
        """The column of the DataFrame that ``tree`` is."""

    def type_of(self, tree: Tree) -> T.DataType:
        """The type of its values."""

    def is_constant(self, tree: Tree) -> bool:
        """Whether it is a literal other than null, or a star."""

    def same(self, one: Tree, other: Tree) -> bool:
        """Whether both surely give the same values."""

    def column(self, tree: Tree) -> Column:
        """``tree`` for a ``select`` of the DataFrame."""

    def tree(self, column: Column) -> Tree:
        """What :meth:`column` was made of."""

    def rebuilt(self, tree: Tree, part: Any) -> Tree:
        """``tree`` with ``part`` of each of its parts."""

    def reference(self, df: SparkDF, name: str) -> Tree:
        """The column ``name`` of ``df``."""


@dataclass
class Split:
    """What ``agg(...)`` is made of.

    ``computed`` columns are added to the DataFrame that was split, ``specs`` are the operator's aggregates by their
    names in the state. ``plain`` are the specs' names if each result is one, in order, as it is. Else ``results``
    computes them of the operator's output, and ``trees`` are their expressions if Spark has resolved them. ``names``
    are the results', ``keys`` those of the keys in front. ``shown``: result -> the specs that it is computed of.
    """

    keys: list[str]
    names: list[str]
    computed: dict[str, Column] = field(default_factory=dict)
    specs: dict[str, AggSpec] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    shown: dict[str, list[str]] = field(default_factory=dict)
    results: Callable[[SparkDF], list[Column]] | None = None
    trees: Callable[[SparkDF], list[Tree]] | None = None

    def columns(self) -> list[str]:
        """The columns that the aggregates read."""
        return sorted({spec.column for spec in self.specs.values() if spec.column is not None})


@dataclass(frozen=True)
class OfValues:
    """Each result once for each value of a pivot. ``conditions`` say which rows have it; ``names`` are the results'."""

    conditions: Sequence[Column]
    names: Sequence[str]


def split_aggregates(df: SparkDF, found: Expressions, key_columns: list[str], of: OfValues | None = None) -> Split:
    """The expressions that are ``found`` over ``df``. ``key_columns`` are the keys' names in the operator's output.

    Raises ``InvalidInputError`` for functions that no operator here computes; what Spark refuses, it refuses.
    """
    trees = found.results()
    cut = len(found.names) - len(trees)
    split = Split(found.names[:cut], found.names[cut:] if of is None else list(of.names))
    splitter = _Splitter(df, found, key_columns, split)
    values = [None] if of is None else [found.tree(condition) for condition in of.conditions]
    results = [(tree, value) for value in values for tree in trees]
    of_each = [splitter.specs_in(tree, value) for tree, value in results]
    in_order = [name for names in of_each for name in names]
    for result, specs in zip(split.names, of_each, strict=True):
        split.shown.setdefault(result, []).extend(specs)
    # The state's columns do not depend on the order of results.
    split.specs = dict(sorted(split.specs.items()))
    if all(call is not None and call.shown is None for call in (splitter.call(*one) for one in results)):
        split.plain = in_order
        return split

    def trees_of(df: SparkDF) -> list[Tree]:
        known = iter(in_order)
        return [splitter.behind(tree, df, known, value) for tree, value in results]

    def computed_of(df: SparkDF) -> list[Column]:
        return [found.column(tree).alias(name) for tree, name in zip(trees_of(df), split.names, strict=True)]

    split.results = computed_of
    if not splitter.in_columns:
        split.trees = trees_of
    return split


class _Splitter:
    def __init__(self, df: SparkDF, found: Expressions, key_columns: list[str], split: Split) -> None:
        self._df, self._found, self._keys, self._split = df, found, key_columns, split
        self._read: list[tuple[str, tuple[str, bool, int], list[Tree]]] = []
        self.in_columns = False
        """Whether a result is written with PySpark's functions, of what is kept: Spark has yet to resolve it."""

    def call(self, tree: Tree, value: Tree | None) -> Call | None:
        """The aggregate function that ``tree`` is, in the form in which it is kept. ``value``: of these rows alone."""
        call = self._found.aggregate(tree)
        call = call if call is None or value is None else self._of_value(call, value)
        return None if call is None else formed(call, self._found.type_of)

    def _of_value(self, call: Call, value: Tree) -> Call:
        """As in Spark's pivot, what is of other rows is null, and so the first and the last leave out nulls."""
        if call.form is not None and call.form.what == LIST_WITH_NULLS:
            mine = F.when(self._found.column(value), self._found.column(call.arguments[0]))
            return replace(call, arguments=[self._found.tree(mine)])
        only = value
        if call.only is not None:
            only = self._found.tree(self._found.column(call.only) & self._found.column(value))
        first = KINDS.get(call.function) in ("first", "last") and call.function != "any_value"
        return replace(call, only=only, options={**call.options, **({"ignore_nulls": True} if first else {})})

    def specs_in(self, tree: Tree, value: Tree | None) -> list[str]:
        """The names of the aggregates in ``tree``, as often as they are there, in the order of :meth:`behind`."""
        names: list[str] = []

        def note(part: Tree) -> Tree:
            call = self.call(part, value)
            if call is not None:
                names.append(self.spec(call))
                self.in_columns |= call.shown is not None
            return part if call is not None or self._found.key(part) is not None else self._found.rebuilt(part, note)

        note(tree)
        return names

    def behind(self, tree: Tree, df: SparkDF, known: Iterator[str], value: Tree | None) -> Tree:
        """What is computed of aggregates, ``known`` by name in their order, and keys: columns of ``df``."""
        found = self._found
        call = self.call(tree, value)
        if call is not None:
            kept, shown = found.reference(df, next(known)), call.shown
            return kept if shown is None else found.tree(shown(found.column(kept)))
        key = found.key(tree)
        if key is not None:
            return found.reference(df, self._keys[key])
        return found.rebuilt(tree, lambda part: self.behind(part, df, known, value))

    def spec(self, call: Call) -> str:
        """The name, in the state, of the aggregate that computes ``call``."""
        kind = self._kind(call)
        text = f"{call.function}({', '.join(str(a) for a in call.arguments)})"
        column = self._argument(call, text)
        return self._named(AggSpec(kind, column, call.options))

    def _kind(self, call: Call) -> str:
        kind = call.kind
        if call.distinct and kind is not None:
            kind = DISTINCT.get(kind, "") or (kind if kind in DISTINCT else None)
            constant = kind == "count_distinct" and any(map(self._found.is_constant, call.arguments))
            kind = None if constant or call.function == "count_if" else kind
        if kind is None or len(call.arguments) != call.expected(kind):
            what = f"{call.function}(DISTINCT ...)" if call.distinct else call.function
            raise InvalidInputError(
                f"the aggregate {what}{_asked(call, kind)} cannot be kept for a checkpointed stream; there are "
                f"{', '.join(sorted(KINDS))}, and with DISTINCT those of numbers and collect_list. For others, keep "
                "what you need with applyInArrowWithState or applyInPandasWithState."
            )
        return kind

    def _named(self, spec: AggSpec) -> str:
        """By what it is, so that its state is found again wherever it stands and however its result is called."""
        same = [n for n, s in self._split.specs.items() if s == spec and s.options == spec.options]
        if same:
            return same[0]
        text = "_".join([spec.kind, *([spec.column] if spec.column else []), *map(str, spec.options.values())])
        name = free(stored_name(text), {*self._keys, *self._split.specs})
        self._split.specs[name] = spec
        return name

    def _argument(self, call: Call, text: str) -> str | None:
        """The column that the aggregate reads; None: whole rows."""
        found, args = self._found, [a for a in call.arguments if not self._found.is_constant(a)]
        if KINDS[call.function] in PAIRED or call.function in OF_ONE_OF_TWO or call.form is not None:
            args = list(call.arguments)
        if call.function == "count" and not args and call.only is None:
            return None
        if len(args) == 1 and call.only is None and not call.is_computed:
            name = found.column_name(args[0])
            if name is not None and name not in self._keys_elsewhere() and self._df.columns.count(name) == 1:
                return name
        return self._once(call, args, text)

    def _once(self, call: Call, args: list[Tree], text: str) -> str:
        """The column that is computed for ``call``: one for all that read the same. Texts may be alike by chance, as
        those of two functions without a name are."""
        kind = KINDS[call.function]
        own = kind == "count" or call.function in OF_ONE_OF_TWO
        of = call.function if own else "pair" if kind in PAIRED else "value"
        of = call.form.what if call.form is not None and call.form.kept is not None else of
        of = f"{of} carried" if call.is_carried else of
        shape = (f"{of} distinct" if call.distinct else of, call.only is not None, len(args))
        args = args[::-1] if kind.startswith("regr_") else args  # Spark has (y, x) there
        read = [*args, *([] if call.only is None else [call.only])]
        for name, before, trees in self._read:
            if before == shape and all(map(self._found.same, trees, read)):
                return name
        name = self._compute(self._computed(call, args, text), self._label(call, args), of if call.is_carried else "")
        self._read.append((name, shape, read))
        return name

    def _computed(self, call: Call, args: list[Tree], text: str) -> Column:
        columns = [self._found.column(a) for a in (args or call.arguments)]
        columns = columns if call.form is None else call.form.computed(columns)
        if call.form is not None and call.form.kept is not None:
            value = call.form.kept(columns)
        elif call.function == "count_if":
            value = F.when(columns[0], F.lit(1))
        elif call.function in ("count", "regr_count", *OF_ONE_OF_TWO) and len(args) != 1:
            one = columns[OF_ONE_OF_TWO[call.function]] if call.function in OF_ONE_OF_TWO else F.lit(1)
            one = _struct(columns) if call.distinct else one
            value = F.when(reduce(and_, [c.isNotNull() for c in columns]), one) if args else one
        elif KINDS[call.function] in PAIRED:
            value = F.struct(columns[0].alias("x"), columns[1].alias("y"))
        elif len(columns) == 1:
            value = columns[0]
        else:
            raise InvalidInputError(f"{text} has {len(columns)} arguments; there is no such aggregate on a stream here")
        return value if call.only is None else F.when(self._found.column(call.only), value)

    def _label(self, call: Call, args: list[Tree]) -> Column | None:
        """What names the column of several distinct values; None: the column itself."""
        several = call.distinct and call.only is None and len(args) > 1
        if not several and not call.is_carried:
            return None
        values = _struct([self._found.column(a) for a in args])
        return values if call.only is None else F.when(self._found.column(call.only), values)

    def _compute(self, column: Column, label: Column | None, what: str = "") -> str:
        """Named by Spark's text of it, by which a changed one is noticed. ``what`` is made of what the label says: as
        it is in no text, others that are carried are not called alike."""
        text = f"{what} {self._df.select(column if label is None else label).columns[0]}".strip()
        name = free(text, {*self._df.columns, *self._keys, *self._split.computed})
        self._split.computed[name] = column
        return name

    def _keys_elsewhere(self) -> set[str]:
        """Names of keys that are not the column of that name."""
        return set(self._keys) - set(self._df.columns)


def _asked(call: Call, kind: str | None) -> str:
    return "" if kind is None else f" of {len(call.arguments)} arguments"


def _struct(columns: list[Column]) -> Column:
    return F.struct(*[c.alias(f"_{i + 1}") for i, c in enumerate(columns)])
