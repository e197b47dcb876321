"""``cube``, ``rollup`` and ``groupingSets`` of a checkpointed stream. Driver only.

As Spark does it: each row comes once for each set, with null for the keys that the set is without, and the number of
the set is one more key of an ordinary aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._aggregation import Aggregation, given_columns
from spark_ckpt.api._window_columns import behind_windows
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.columns import is_case_sensitive, listed, quoted, refuse_repeated
from spark_ckpt.plan.grouping_calls import KEPT, SetCalls
from spark_ckpt.plan.key_columns import resolve_keys, written
from spark_ckpt.plan.windows import SessionWindow, time_window
from spark_ckpt.runtime.grouping_sets import ExpandSets
from spark_ckpt.runtime.stateless import with_control

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_NUMBER = "__ckpt_grouping_id"
Places = tuple[int, ...]


class GroupingSets:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def cube(self: Any, *cols: Any) -> CkptGroupingSets:
        """As PySpark's: ``groupBy`` by all combinations of ``cols``, for ``agg`` and its short forms, with
        ``F.grouping("k")`` and ``F.grouping_id()``. Raises as :meth:`groupBy`, ``InvalidInputError`` for sessions.
        """
        given = listed(cols)
        places = range(len(given))
        return CkptGroupingSets(
            self, "cube", given, [c for n in reversed(range(len(given) + 1)) for c in combinations(places, n)]
        )

    def rollup(self: Any, *cols: Any) -> CkptGroupingSets:
        """As PySpark's: ``groupBy`` by ``cols``, by all but the last, and so on, down to none. Else as :meth:`cube`."""
        given = listed(cols)
        return CkptGroupingSets(self, "rollup", given, [tuple(range(n)) for n in reversed(range(len(given) + 1))])

    def groupingSets(self: Any, groupingSets: Sequence[Sequence[Any]], *cols: Any) -> CkptGroupingSets:
        """As PySpark's: ``groupBy`` by each of ``groupingSets``, which are lists of some of ``cols``. Else as
        :meth:`cube`."""
        given = listed(cols)
        names = [written(c) for c in given]
        unknown = [c for one in groupingSets for c in one if written(c) not in names]
        if unknown:
            raise InvalidInputError(f"groupingSets: {unknown[0]!r} is in a set and not among the columns {given}")
        sets = [tuple(names.index(written(c)) for c in one) for one in groupingSets]
        if len({frozenset(s) for s in sets}) < len(sets):
            raise InvalidInputError(f"groupingSets has a set twice: {groupingSets}; Spark would put out its rows twice")
        return CkptGroupingSets(self, "groupingSets", given, sets)


class CkptGroupingSets(Aggregation, Hinting):
    """What ``cube``, ``rollup`` and ``groupingSets`` return: aggregates."""

    _ways: ClassVar[dict[str, str]] = {
        "pivot": "one aggregate for each value, of F.when(...)",
        **dict.fromkeys(
            ("aggregate", "applyInPandasWithState", "applyInArrowWithState", "transformWithState", "topN"),
            "grouping sets have agg(...) and its short forms; one groupBy(...) for each set of keys has the others",
        ),
    }

    def __init__(self, df: CkptDataFrame, what: str, cols: list[Any], sets: Sequence[Places]) -> None:
        refuse_repeated(df.columns, df._session.spark)
        self._what, self._given, self._sets = what, cols, sets
        if not cols or df._joined is not None:
            raise InvalidInputError(f"{what} needs columns, with names that no other has: select them in front of it")
        if any(isinstance(time_window(df._preview, c), SessionWindow) for c in cols):
            raise InvalidInputError(
                f"{what} of session windows is not there on a stream, on Spark's neither: a session that a set is "
                "without would never end. Write one groupBy(F.session_window(...), ...) for each set of keys"
            )
        df, cols, _ = behind_windows(df, cols, bare_too=True) or (df, cols, [])
        found = resolve_keys(df._preview, df.columns, cols)
        self._names = [field.name for _, field, _ in found]
        computed = {field.name: c for c, field, plain in found if not plain}
        taken = {c.lower() for c in df.columns} & {name.lower() for name in computed}
        if taken or len(set(self._names)) < len(self._names):
            raise InvalidInputError(f"{what}: give each key a name that no other column has, found {self._names}")
        plain = {field.name: written(col) for col, (_, field, plain) in zip(cols, found, strict=True) if plain}
        self._spark_keys = [F.col(_spelt(plain.get(name, name), name)) for name in self._names]
        self._parent = df.withColumns(computed) if computed else df

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's, of each set: as ``agg`` of ``groupBy``, with ``F.grouping`` and ``F.grouping_id``. ``uid`` is
        the operator's name in checkpoints. Raises as that does; on Spark Connect SQL texts are refused."""
        columns = given_columns(self._parent._preview, exprs)
        keys, names = self._names_of(columns)
        calls = SetCalls(self._names, _NUMBER, is_case_sensitive(self._parent._session.spark))
        wanted = [calls.rewritten(c).alias(name) for c, name in zip(columns, names, strict=True)]
        grouped = self._expanded(sorted(calls.kept)).groupBy(*self._names, _NUMBER)
        made = grouped.agg(*wanted, uid=uid)
        return made._columns([*self._names, *names], [*keys, *names])

    def _names_of(self, columns: list[Column]) -> tuple[list[str], list[str]]:
        """As Spark calls keys and results; it says what is wrong with them."""
        names = list(self._parent._in_spark().cube(*self._spark_keys).agg(*columns).columns)
        refuse_repeated(names, self._parent._session.spark)
        return names[: len(self._names)], names[len(self._names) :]

    def _expanded(self, kept: list[str]) -> CkptDataFrame:
        fields = {f.name: f for f in self._parent.schema.fields}
        pairs = [(key, f"{KEPT}{key}") for key in kept]
        added = [T.StructField(name, fields[key].dataType) for key, name in pairs]
        schema = T.StructType([*fields.values(), *added, T.StructField(_NUMBER, T.LongType())])
        operation = ExpandSets(self._names, self._sets, pairs, _NUMBER)
        return self._parent._python_operation(operation, with_control(schema))


def _spelt(text: str, name: str) -> str:
    """A key as the user wrote it: Spark names the result so."""
    return quoted(text if text.lower() == name.lower() else name)
