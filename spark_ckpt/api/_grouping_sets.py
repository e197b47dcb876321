"""``cube``, ``rollup`` and ``groupingSets`` of a checkpointed stream. Driver only.

As Spark does it: each row comes once for each set, with null for the keys that the set is without, and the number of
the set is one more key of an ordinary aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column

from spark_ckpt.api._aggregation import Aggregation, is_empty
from spark_ckpt.api._keys import called
from spark_ckpt.api._window_columns import behind_windows
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.attributes import new, refuse_missing
from spark_ckpt.plan.columns import is_case_sensitive, listed, refuse_repeated, unaliased
from spark_ckpt.plan.grouping_calls import SetCalls, numbered
from spark_ckpt.plan.key_columns import column_named, written
from spark_ckpt.plan.windows import is_session, is_window_call

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

Places = tuple[int, ...]


class GroupingSets:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def cube(self: Any, *cols: Any) -> CkptGroupingSets:
        """As PySpark's: ``groupBy`` by all combinations of ``cols``, for ``agg`` and its short forms, with
        ``F.grouping("k")`` and ``F.grouping_id()``. Raises as :meth:`groupBy`, ``InvalidInputError`` for sessions.
        """
        given = called(self, listed(cols))
        places = range(len(given))
        return CkptGroupingSets(
            self, "cube", given, [c for n in reversed(range(len(given) + 1)) for c in combinations(places, n)]
        )

    def rollup(self: Any, *cols: Any) -> CkptGroupingSets:
        """As PySpark's: ``groupBy`` by ``cols``, by all but the last, and so on, down to none. Else as :meth:`cube`."""
        given = called(self, listed(cols))
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
        self._joined = df._joined
        if df._joined is not None:
            df, cols = df._joined.keys(cols)
        refuse_repeated(df.columns, df._session.spark)
        if any(is_session(df._preview, df.columns, c) for c in cols):
            raise InvalidInputError(
                f"{what} of session windows is not there on a stream, on Spark's neither: a session that a set is "
                "without would never end. Write one groupBy(F.session_window(...), ...) for each set of keys"
            )
        for col in cols:
            refuse_missing(df._attributes, col)
        self._parent, self._given, self._sets = df, cols, sets

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's, of each set: as ``agg`` of ``groupBy``, with ``F.grouping`` and ``F.grouping_id``. ``uid`` is
        the operator's name in checkpoints. Raises as that does; on Spark Connect SQL texts with ``grouping`` are
        refused."""
        from spark_ckpt.api._sets_of_keys import NUMBER, GroupsOfSets

        if is_empty(exprs):
            return self._without_results(uid)
        columns = self._results(exprs)
        names = list(self._parent._in_spark().cube(*self._given).agg(*columns).columns)  # it says what is wrong
        names = names if self._joined is None else [self._joined.text(name) for name in names]
        refuse_repeated(names, self._parent._session.spark)
        rows, keys, _ = behind_windows(self._parent, self._given, bare_too=True) or (self._parent, self._given, [])
        texts = self._texts(names)
        calls = SetCalls(list(dict.fromkeys(texts)), NUMBER, is_case_sensitive(self._parent._session.spark))
        wanted = [calls.rewritten(c).alias(name) for c, name in zip(columns, names[len(keys) :], strict=True)]
        found = GroupsOfSets(rows, keys, numbered(texts, self._sets)).agg(*wanted, uid=uid)
        made = found._columns([c for c in found.columns if c != NUMBER], names)
        return made._with(new(names))

    def _texts(self, names: list[str]) -> list[str]:
        """The keys as they are written where they are asked for; ``names`` are Spark's of them."""
        columns = self._parent.columns
        given = [columns[key - 1] if isinstance(key, int) else key for key in self._given]
        bare = [written(unaliased(key)) if isinstance(key, Column) else key for key in given]
        named = [column_named(columns, text, is_case_sensitive(self._parent._session.spark)) or text for text in bare]
        return [name if is_window_call(key) else text for key, name, text in zip(given, names, named)]
