"""The pairs of one call: what is new of either side with what is new or waits on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.joins import _pairs as pairs
from spark_ckpt.state.joins.sides import SideRows
from spark_ckpt.state.keys.keys import Mask

if TYPE_CHECKING:
    from spark_ckpt.state.joins.function import StreamJoin

SEMI = "left_semi"


@dataclass(frozen=True)
class Found:
    """Which rows of a side matched: of those that waited, and of the new ones."""

    known: Mask
    new: Mask


class Matching:
    """``new`` are the rows of left and right that may match, ``waiting`` those that were there before. ``ended``: of a
    semi join, the new right rows that no new left row meets."""

    def __init__(
        self,
        join: StreamJoin,
        keys: pa.Table,
        new: list[SideRows],
        waiting: list[SideRows | None],
        ended: Mask | None = None,
    ) -> None:
        self._join, self._keys, self._new, self._ended = join, keys, new, ended
        self._rows = [rows.behind(known) for rows, known in zip(new, waiting, strict=True)]
        self._matched = [np.zeros(len(rows), bool) for rows in self._rows]

    def output(self) -> list[pa.Table]:
        """What matches; of a semi join, each left row once."""
        left, right = self._rows
        out = []
        for left_at, right_at in self._pairs():
            self._matched[0][left_at] = True
            self._matched[1][right_at] = True
            if self._join.how != SEMI:
                out.append(self._join.joined(left, right, left_at, right_at))
        if self._join.how == SEMI and self._matched[0].any():
            out.append(self._join.joined(left.only(self._matched[0]), None))
        return out

    def found(self, place: int) -> Found:
        known = self._rows[place].known
        return Found(self._matched[place][:known], self._matched[place][known:])

    def _pairs(self) -> Iterator[tuple[Rows, Rows]]:
        """Places among all rows of left and right that match: new left ones with all right ones, then the left ones
        that waited with new right ones."""
        left, right = self._rows
        keys = self._keys.num_rows
        if len(left) == 0 or len(right) == 0:
            return
        for new, all_right in pairs.candidates(left.key[left.known :], right.key, keys):
            yield from self._matching(*self._meeting(new + left.known, all_right))
        if left.known:
            for new, waiting in pairs.candidates(right.key[right.known :], left.key[: left.known], keys):
                yield from self._matching(waiting, new + right.known)

    def _meeting(self, left_at: Rows, right_at: Rows) -> tuple[Rows, Rows]:
        """Without the right rows that have ended."""
        if self._ended is None:
            return left_at, right_at
        place = right_at - self._rows[1].known
        kept, new = np.ones(len(place), bool), place >= 0
        kept[new] = ~self._ended[place[new]]
        return left_at[kept], right_at[kept]

    def _matching(self, left_at: Rows, right_at: Rows) -> Iterator[tuple[Rows, Rows]]:
        if self._join.condition is not None:
            left, right = self._rows
            true = self._join.condition.evaluate(_columns(left, left_at), _columns(right, right_at))
            kept = pc.fill_null(true, False).to_numpy(zero_copy_only=False)
            if not kept.all():
                left_at, right_at = left_at[kept], right_at[kept]
        if len(left_at):
            yield left_at, right_at


def _columns(rows: SideRows, at: Rows) -> Callable[[str], pa.Array]:
    """Each column is looked up once for a piece."""
    known: dict[str, pa.Array] = {}

    def column(name: str) -> pa.Array:
        if name not in known:
            known[name] = rows.column(name, at)
        return known[name]

    return column
