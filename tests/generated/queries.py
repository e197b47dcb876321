"""Random queries: steps that Spark takes, one behind the other, and the output mode that it takes them in."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException

from tests.generated.query_filters import DELAY, Filters
from tests.generated.query_joins import Joins
from tests.generated.query_operators import Operators
from tests.generated.query_steps import ROW_STEPS
from tests.generated.two_sides import Query, Side

ROWS, GROUPS, TIMES, JOINS, FILTERS = ("rows", "groups", "times", "joins", "filters")
TEXTS, TEXTS_OF_GROUPS = ("texts", "texts of groups")
"""SQL and nothing else."""
_ROW_STEPS = (*ROW_STEPS, *[Operators.sql_rows] * 3)
_WATERMARKS = ("20 minutes", "1 hour", "0 seconds")
_GROUPS = (*[Operators.grouped] * 5, *[Operators.sql_groups] * 4, Operators.others, Operators.windowed)
_TIMES = (
    *[Operators.windowed] * 4,
    Operators.sql_groups,
    *[Operators.without_duplicates] * 2,
    *[Operators.joined] * 3,
    Operators.itself,
)

_BETWEEN = (*[Joins.between] * 3, *[Joins.static] * 2, Joins.once_each, Joins.by_window)
_DELAY = "spark.watermarkDelayMs"
"""In the metadata of an event time."""

_WITHOUT_KEYS = re.compile(r"groupBy\(\)|^df\.agg\(|describe\(|summary\(|'SELECT (count|sum|max)\((?!.*GROUP BY)")
"""Aggregates whose row Spark repeats with each batch."""

Maker = Callable[[Any], str]


def modes_of(df: Any) -> list[str]:
    """The output modes that Spark takes the query in, were it started."""
    jvm, found = df.sparkSession._jvm, []
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    for mode in ("Append", "Update", "Complete"):
        wanted = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
        try:
            checker.checkForStreaming(df._jdf.queryExecution().analyzed(), wanted)
            found.append(mode.lower())
        except PySparkException:
            continue
    return found


class QueryMaker:
    """Grows one query on Spark's own stream, ``side``; what Spark refuses is kept, to be refused by ours, too."""

    def __init__(self, seed: str, side: Side) -> None:
        self.chosen, self.side = random.Random(seed), side
        self.df, self.steps, self.once = side.start(), list[str](), False
        self.refused: list[tuple[str, ...]] = []
        self.operators: type[Operators] = Operators

    def query(self, kind: str) -> Query:
        if kind == ROWS:
            self._several(_ROW_STEPS, self.chosen.randint(2, 5))
            if self.chosen.random() < 0.2:
                self._one((Operators.batch_groups,))
            return Query(tuple(self.steps))
        if kind == TEXTS:
            self._several((Operators.sql_rows,), self.chosen.randint(1, 3))
            return Query(tuple(self.steps))
        with_state = {GROUPS: self._groups, TIMES: self._times, JOINS: self._joins, FILTERS: self._filters}
        with_state[TEXTS_OF_GROUPS] = self._texts_of_groups
        return with_state[kind]()

    def _groups(self) -> Query:
        if self.chosen.random() < 0.3:
            self._add(f"df.withWatermark('t', {self.chosen.choice(_WATERMARKS)!r})")
        self._several(_ROW_STEPS, self.chosen.randint(0, 3))
        self._one(_GROUPS)
        self._several((Operators.projection, Operators.filtering), self.chosen.randint(0, 2))
        mode = self._mode("update", "update", "complete")
        if mode == "complete" and self.chosen.random() < 0.3:
            names = [c for c in self.df.columns if "`" not in c]
            self._add(f"df.orderBy({', '.join(repr('`' + c + '`') for c in names)}).limit(3)")
        return Query(tuple(self.steps), mode, self.once)

    def _texts_of_groups(self) -> Query:
        self._several((Operators.sql_rows,), self.chosen.randint(0, 2))
        self._one((Operators.sql_groups,))
        return Query(tuple(self.steps), self._mode("update", "update", "complete"), self.once)

    def _times(self) -> Query:
        at = self.chosen.choice([0, 0, 1])
        self._several(_ROW_STEPS, at)
        self._add(f"df.withWatermark('t', {self.chosen.choice(_WATERMARKS)!r})")
        self._several(_ROW_STEPS, self.chosen.randint(0, 2))
        self._one(_TIMES)
        if self.chosen.random() < 0.4:
            self._several((Operators.projection, Operators.filtering), 1)
            self._one((Operators.windowed, Operators.without_duplicates, Operators.sql_groups))
        self._several((Operators.projection, Operators.filtering), self.chosen.randint(0, 2))
        apart = any("istinct" in step or "uplicates" in step for step in self.steps)
        aggregated = any("agg(" in step or "GROUP BY" in step for step in self.steps)
        # Where rows without duplicates are asked for behind an aggregate, Spark takes changed rows for new ones.
        more = [] if apart and aggregated else ["update"] if apart else ["update", "complete"]
        mode = self._mode("append", "append", "append", *more)
        return Query(tuple(self.steps), mode, self.once)

    def _joins(self) -> Query:
        """Two or three joins of streams in a row, and what may stand in front of, between and behind them."""
        delay, joins = self.chosen.choice(_WATERMARKS), self.chosen.choice([2, 2, 2, 3])
        self._several((Joins.between,), self.chosen.choice([0, 0, 1]), delay)
        self._add(f"df.withWatermark('t', {delay!r})")
        for number in range(joins):
            if self.chosen.random() < (0.25 if number == 0 else 0.4):
                self._one(_BETWEEN if number else (*_BETWEEN, Joins.once_each, Joins.by_window), delay, number)
            self._one((*[Joins.stream] * 6, Joins.itself), delay, number)
        if self.chosen.random() < 0.4:
            self._one((Joins.by_window, Joins.by_window, Joins.once_each, Joins.between), delay)
        return Query(tuple(self.steps), self._mode("append"), self.once)

    def _filters(self) -> Query:
        """Filters behind a watermark and an operator, with other things between them."""
        self.operators = Filters
        self._several((Filters.between,), self.chosen.choice([0, 0, 1]))
        self._add(f"df.withWatermark('t', {DELAY!r})")
        self._several((Filters.between, Filters.together, Filters.filtering), self.chosen.choice([0, 1, 2]))
        if self.chosen.random() < 0.75:
            self._one((Filters.keyed,))
            self._several((Filters.between, Filters.filtering), self.chosen.choice([0, 1, 1]))
            self._one((Filters.filtering,))
        else:
            self._one((Filters.filtering,))
            self._one((Filters.keyed,))
        return Query(tuple(self.steps), self._mode("append"), self.once)

    def _mode(self, *wanted: str) -> str:
        fit = modes_of(self.df)
        return self.chosen.choice([mode for mode in wanted if mode in fit] or fit)

    def _several(self, makers: Any, count: int, *more: Any) -> None:
        for _ in range(count):
            self._one(makers, *more)

    def _one(self, makers: Any, delay: str | None = None, joined: int = 0) -> None:
        """A step that Spark takes, of some that are tried."""
        for _ in range(12):
            kinds = dict(self.df.dtypes)
            if len(kinds) < len(self.df.columns) or not kinds:
                return  # names that come twice
            if self._add(self.chosen.choice(makers)(self._steps(kinds, delay, joined))):
                return

    def _steps(self, kinds: dict[str, str], delay: str | None, joined: int) -> Operators:
        if delay is None:
            return self.operators(self.chosen, kinds)
        times = [f.name for f in self.df.schema if _DELAY in f.metadata and kinds[f.name] == "timestamp"]
        return Joins(self.chosen, kinds, times, delay, joined)

    def _add(self, step: str) -> bool:
        try:
            df = self.side.step(self.df, step)
            df.schema  # noqa: B018 - Spark analyses when it is asked
        except (PySparkException, ValueError, KeyError):
            self.refused.append((*self.steps, step))
            return False
        if not df.isStreaming or not modes_of(df):
            self.refused.append((*self.steps, step))
            return False
        self.df = df
        self.steps.append(step)
        self.once = self.once or _WITHOUT_KEYS.search(step) is not None
        return True
