"""PySpark's own aggregates on ``groupBy(...)``: ``agg``, ``count``, ``sum`` and the like. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import agg
from spark_ckpt.api._ahead import FindAhead
from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.api._joined_rows import called
from spark_ckpt.api._kept_aliases import handed_on
from spark_ckpt.api._watermark import behind_keys
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.aggregates import OfValues, Split, by_names, split_aggregates
from spark_ckpt.plan.attributes import with_known
from spark_ckpt.plan.columns import free, is_plain, proposing_user_columns, quoted, unquoted
from spark_ckpt.plan.fails_on_nulls import data_rows_only, of_data_rows
from spark_ckpt.plan.key_columns import written
from spark_ckpt.plan.stars import without_control
from spark_ckpt.plan.window_calls import may_have_window
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api._window_keys import WindowColumn
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.key_columns import Keys

ALL_ROWS = "all_rows"
"""The one key of an aggregation without keys."""


class Aggregation:
    """What ``groupBy(...)`` has of PySpark's aggregates. Every method takes a ``uid``, the operator's name in
    checkpoints; its state is found again by it, whatever else changes."""

    _parent: CkptDataFrame
    _keyed: CkptDataFrame
    """The parent with the operator's keys."""
    _keys: Keys
    _given: list[Any]
    _cols: list[Any]
    """The keys as given, where windows within them are columns of the rows."""
    _window: WindowColumn | None
    _joined: JoinedNames | None
    """Behind a join: what names mean there."""
    _rows: CkptDataFrame
    """The rows as given, in front of what windows add."""
    _places: Mapping[int, int]
    """Of keys that are columns behind a join, by the keys' numbers: where those are."""

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: ``exprs`` are aggregate functions and expressions of them, or one dict of column to function.

        Gives, for each batch, the new values of the keys it touched, as Spark's output mode update does: the keys,
        then a column each expression. Write them to a merging sink. What an aggregate reads may be any expression.
        With ``F.window`` among the keys and a watermark of its time column, a window comes out once, when the watermark
        passes its end (output mode append, the default), or with every change until then (update). A session of
        ``F.session_window``, whose gap may be an expression, or of a column of sessions comes out once (append).
        Which aggregates there are, docs/methods.md says. ``uid`` is the operator's name in checkpoints.

        An aggregate's state is named by what it computes: results may be renamed and moved. Raises
        ``InvalidInputError`` for functions that are not in the list, Spark's ``AnalysisException`` for what Spark
        refuses::

            orders.groupBy("customer").agg(
                F.count("*").alias("n"), (F.sum(F.col("price") * F.col("pieces")) / F.count("*")).alias("mean")
            )
        """
        return self._without_results(uid) if is_empty(exprs) else self._agg(exprs, uid)

    def _agg(self, exprs: tuple[Any, ...], uid: str | None, of: OfValues | None = None) -> CkptDataFrame:
        """``of``: each result for each value of a pivot."""
        windowed = self._with_windows(list(exprs)) if any(map(may_have_window, exprs)) else None
        if windowed is not None:
            grouped, made = windowed
            return grouped._agg(tuple(made), uid, of)
        found, names = self._found(exprs, uid, of)
        if self._given:
            found._ahead = self._ahead_of_keys(lambda grouped: grouped._found(exprs, uid, of)[0])
            found = self._with_keys_handed_on(found)
        return called(found, names)

    def _found(self, exprs: tuple[Any, ...], uid: str | None, of: OfValues | None) -> tuple[CkptDataFrame, list[str]]:
        """The same of ``exprs`` without windows in them, and without what aliases stand in front of; and what its
        columns are called, of which several may have one name."""
        window, parent = self._window, self._parent
        of = None if of is None else replace(of, conditions=self._results(tuple(of.conditions)))
        columns, keys = self._results(exprs), self._keys.named_for(self._keyed.columns, [])
        shown, given = self._keys_in_order(keys)

        def split(df: Any) -> Split:
            return split_aggregates(window.analysed(df) if window else df, given, shown, columns, of)

        parts, names = self._checked(split)
        if parts.computed:
            # Anew for each DataFrame: classic Spark's resolved expressions are of one.
            parent = parent._operation("agg", _computing(parent, split, parts), check=True)
        return _named(self._kept(parent, uid, parts, keys), parts, shown if self._given else []), names

    def _ahead_of_keys(self, again: Callable[[Aggregation], CkptDataFrame]) -> FindAhead | None:
        """A filter of keys alone goes in front of the groups, as in Spark, if a watermark is ahead of them."""
        joined = self._joined
        rows = self._rows if joined is None else joined.unique
        keys = {at: _key_column(key, rows) for at, key in enumerate(self._given) if not may_have_window(key)}
        return behind_keys(rows, keys, lambda other: again(self._of(other)))

    def _of(self, rows: CkptDataFrame) -> Aggregation:
        """The same groups of other rows."""
        raise NotImplementedError

    def _results(self, exprs: tuple[Any, ...]) -> list[Column]:
        joined, preview = self._joined, self._parent._preview
        if joined is None:
            told: list[Column] = self._parent._told_apart(given_columns(preview, exprs))
            return told
        by_name = tuple(joined.by_name(e) if isinstance(e, dict) else e for e in exprs)
        return [joined.column(c) for c in given_columns(preview, by_name)]

    def _with_keys_handed_on(self, made: CkptDataFrame) -> CkptDataFrame:
        """As in Spark, a key that is a column is still that."""
        rows, called = self._keyed, self._keys.called
        if self._places and self._joined is None:
            made = made._with(with_known(made._attributes, self._rows._attributes, self._places))
            return handed_on(made, self._rows, {at: number for number, at in self._places.items()})
        columns = {name: name for name in self._keys.columns} | {own: called[own] for own in self._keys.copied}
        own = {name: rows.columns.index(column) for name, column in columns.items() if column in rows.columns}
        found = enumerate(called_most_like(name, own) for name in made.columns[: len(self._given)])
        places = self._places or {i: own[name] for i, name in found if name is not None}
        made = made._with(with_known(made._attributes, rows._attributes, places))
        given = rows if self._rows._alias is None else self._rows  # windows are rows of their own, without an alias
        names = {i: rows.columns[at] for i, at in places.items() if rows.columns[at] in given.columns}
        return handed_on(made, given, {given.columns.index(name): i for i, name in names.items()}, self._joined)

    def _keys_in_order(self, keys: Keys) -> tuple[list[str], list[Column]]:
        """Their names in the operator's output, and as they were given, with the window where it was given."""
        window = self._window
        shown, given = list(keys.expressions), [self._spelt(n) for n in self._keys.expressions]
        if window is None:
            return shown, given
        if len(self._given) == 1 and not window.takes_key:
            shown, given = [], []  # the operator's one key is nobody's
        return window.among(shown, window.name), window.among(given, window.shown)

    def _checked(self, split: Callable[[Any], Split]) -> tuple[Split, list[str]]:
        """Of the preview, each result with a name of its own, and what keys and results are called. Raises as Spark
        does."""
        with proposing_user_columns():
            parts = split(self._parent._preview)
        if self._joined is not None:
            parts.names = [self._joined.text(name) for name in parts.names]
        if self._window:
            self._window.refuse_inside(parts.computed)
        keys = parts.keys if self._given else []
        if self._given and not keys:
            raise InvalidInputError(
                "agg: spark.sql.retainGroupColumns is false, and here keys are always there: drop(...) them behind it"
            )
        names = [*map(self._called, keys), *parts.names]
        own = list(keys)
        for name in parts.names:
            own.append(free(name, own))
        parts.names = own[len(keys) :]
        return parts, names

    def _called(self, key: str) -> str:
        """What the user calls a key of the operator."""
        window = self._window
        return window.called if window and key == window.name else self._keys.called.get(key, key)

    def _kept(self, parent: CkptDataFrame, uid: str | None, parts: Split, keys: Keys) -> CkptDataFrame:
        """The operator's keys and aggregates. Of keys and constants alone, such as ``F.grouping_id()``, that the group
        is there is what is kept."""
        window = self._window
        specs = parts.specs or {free("rows_of_group", [*parent.columns, *keys.expressions]): agg.count()}
        kept = self._aggregated(window.assigned(parent, specs.values()) if window else parent, uid, specs, keys)
        kept = window.shown_in(kept) if window else kept
        return (
            kept._operation("agg", lambda df: df.withColumns(keys.given_back()), check=True) if keys.carried else kept
        )

    def _without_results(self, uid: str | None) -> CkptDataFrame:
        """The keys of each group, as of ``agg({})``."""
        made = self.agg(F.count(F.lit(1)).alias("rows_of_group"), uid=uid)
        return made._columns(made.columns[:-1])

    def _spelt(self, key: str) -> Column:
        """A key as the user wrote it: Spark names the result so."""
        name = called_most_like(key, [unquoted(written(given)) for given in self._given]) or key
        return F.col(quoted(name)) if key in self._keys.columns else self._keys.given[key]

    def _with_windows(self, exprs: list[Any]) -> tuple[Aggregation, list[Any]] | None:
        """The same groups with a column for the window within ``exprs``, and these over that. None: there is none."""
        raise NotImplementedError

    def count(self, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the rows of each key so far, in the column ``count``. ``uid`` as in :meth:`agg`."""
        return self.agg(F.count(F.lit(1)).alias("count"), uid=uid)

    def sum(self, *cols: str, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the sums of ``cols``, of all numeric columns if none is named. ``uid`` as in :meth:`agg`."""
        return self._of_numbers("sum", cols, uid)

    def avg(self, *cols: str, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the means of ``cols``, of all numeric columns if none is named. ``uid`` as in :meth:`agg`."""
        return self._of_numbers("avg", cols, uid)

    mean = avg

    def min(self, *cols: str, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the least of ``cols``, of all numeric columns if none is named. ``uid`` as in :meth:`agg`."""
        return self._of_numbers("min", cols, uid)

    def max(self, *cols: str, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the largest of ``cols``, of all numeric columns if none is named. ``uid`` as in :meth:`agg`."""
        return self._of_numbers("max", cols, uid)

    def _of_numbers(self, function: str, cols: tuple[str, ...], uid: str | None) -> CkptDataFrame:
        numeric = {f.name for f in self._parent.schema.fields if isinstance(f.dataType, T.NumericType)}
        wanted = list(cols) or [c for c in self._parent.columns if c in numeric]
        for c in wanted:
            if c in self._parent.columns and c not in numeric:
                _ = getattr(self._parent._in_spark().groupBy(), function)(
                    c if c.isidentifier() else quoted(c)
                ).columns  # raises as Spark does
                raise InvalidInputError(
                    f'"{c}" is not a numeric column. Aggregation function can only be applied on a numeric column; '
                    f"for others, agg(F.{function}({c!r}))."
                )
        plain = [c for c in wanted if not cols or is_plain(c, self._parent.columns)]
        made = [getattr(F, function)(quoted(c) if c in plain else c) for c in wanted]
        return self.agg(*made, uid=uid)

    def _aggregated(self, parent: CkptDataFrame, uid: str | None, specs: dict[str, Any], keys: Keys) -> CkptDataFrame:
        raise NotImplementedError


def called_most_like(name: str, names: Collection[str]) -> str | None:
    """That of ``names``, else one in other letters: where case counts, ``k`` and ``K`` may both be there."""
    return name if name in names else next((n for n in names if n.lower() == name.lower()), None)


def is_empty(exprs: tuple[Any, ...]) -> bool:
    """Whether it is the empty dict, which PySpark takes."""
    return len(exprs) == 1 and isinstance(exprs[0], dict) and not exprs[0]


def _key_column(key: Any, rows: CkptDataFrame) -> Column:
    if isinstance(key, int):
        return F.col(quoted(rows.columns[key - 1]))
    return key if isinstance(key, Column) else F.col(key)


def given_columns(df: Any, exprs: tuple[Any, ...]) -> list[Column]:
    if len(exprs) == 1 and isinstance(exprs[0], dict):
        exprs = tuple(by_names(df, exprs[0]))
    assert exprs, "exprs should not be empty"
    wrong = [e for e in exprs if not isinstance(e, Column)]
    assert not wrong, f"all exprs should be Column, such as F.sum('price'), or one dict; found {wrong[0]!r}"
    return [without_control(e) for e in exprs]


def _computing(parent: CkptDataFrame, split: Callable[[Any], Split], parts: Split) -> Callable[[Any], Any]:
    """Adds the columns that the aggregates read, those that fail on control rows for data rows alone."""
    wrong = of_data_rows(parent._preview, parent._nodes, parts.computed)

    def computing(df: Any) -> Any:
        found = split(df).computed
        return df.withColumns({n: data_rows_only(c) if n in wrong else c for n, c in found.items()})

    return computing


def _named(kept: CkptDataFrame, parts: Split, keys: list[str]) -> CkptDataFrame:
    """The results by Spark's names, behind the keys."""
    names = [*(parts.keys if keys else []), *parts.names]
    results = parts.results
    if results is not None:
        return kept._operation("agg", lambda df: df.select(*_kept_keys(keys, parts), *results(df), TAG, CTL))
    old = [*keys, *parts.plain]
    return kept if old == kept.columns == names else kept._columns(old, names)


def _kept_keys(keys: list[str], parts: Split) -> list[Column]:
    return [F.col(quoted(k)).alias(name) for k, name in zip(keys, parts.keys, strict=False)]
