"""Filters behind a join of streams, where Spark's optimizer has them: in front of a side's watermark. Driver only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._ahead import Ahead, as_known, condition_behind, filtered_behind, goes_ahead
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.condition import conjuncts
from spark_ckpt.plan.join_columns import JoinPlan
from spark_ckpt.plan.join_rules import INNER, SEMI, is_outer
from spark_ckpt.plan.join_sides import LEFT, RIGHT
from spark_ckpt.plan.moved_condition import rejects_nulls

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


class Join(Protocol):
    """What is asked of a join."""

    how: str
    sides: tuple[CkptDataFrame, CkptDataFrame]

    @property
    def equal(self) -> list[tuple[str, str]]:
        """The columns, one of each side, that it is by."""

    def of_fewer(self, conditions: Sequence[Sequence[Column]]) -> Join:
        """The same of rows that satisfy ``conditions``, those of each side."""

    def rows(self, uid: str | None) -> CkptDataFrame:
        """What comes out."""


@dataclass(frozen=True)
class AheadOfJoin(Ahead):
    """A DataFrame is what ``join`` puts out: a filter of one side's columns, or of keys, goes to the sides."""

    join: Join
    plan: JoinPlan
    uid: str | None

    def takes(self, df: CkptDataFrame, condition: Column) -> bool:
        return any(goes_ahead(self.join.sides[side], over) for side, over in self._over(df, condition).items())

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
        parts = conjuncts(condition)
        over = [self._over(df, part) for part in parts]
        made = self.join.of_fewer([[o[side] for o in over if side in o] for side in (LEFT, RIGHT)]).rows(self.uid)
        # What matched nothing is of one side only, and some rows may be there since an earlier query.
        return reduce(filtered_behind, parts, as_known(made, df))

    def _over(self, df: CkptDataFrame, condition: Column) -> dict[int, Column]:
        """What it says of the sides that Spark filters by it. An outer side's rows it sees only behind the join, unless
        it leaves out those that matched nothing: then Spark makes another join of it."""
        asked = condition_behind(df, condition)
        of = next((side for side in (LEFT, RIGHT) if asked.over(self._columns(side, ())) is not None), None)
        if self.join.how not in (INNER, SEMI) and not self._is_kept(df, condition, of):
            return {}
        over = {side: asked.over(self._columns(side, self.join.equal)) for side in (LEFT, RIGHT)}
        return {side: found for side, found in over.items() if found is not None}

    def _is_kept(self, df: CkptDataFrame, condition: Column, of: int | None) -> bool:
        """Whether Spark filters side ``of`` of an outer join by it."""
        if of is None:
            return False
        alone = is_outer(self.join.how, of) and not is_outer(self.join.how, RIGHT if of == LEFT else LEFT)
        return alone or rejects_nulls(df._in_spark(), condition)

    def _columns(self, side: int, equal: Iterable[tuple[str, str]]) -> dict[int, Column]:
        """The columns that come out and are those of ``side``, or ``equal`` to them."""
        found = {at: pair[side] for at, pair in enumerate(self.plan.pairs) if None in pair}
        for pair in equal:
            other = RIGHT if side == LEFT else LEFT
            found |= {
                at: pair[side] for at, one in enumerate(self.plan.pairs) if None in one and one[other] == pair[other]
            }
        return {at: F.col(quoted(name)) for at, name in found.items() if name is not None}
