"""Compare two tables row by row and cell by cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """How ``found`` differs from ``expected``. ``examples`` describe the first few differences."""

    rows: int
    cells: int
    missing: int
    unexpected: int
    duplicated: int
    different: int
    examples: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.missing or self.unexpected or self.duplicated or self.different)


def compare(expected: pd.DataFrame, found: pd.DataFrame, key: str) -> Comparison:
    """Rows are matched by ``key``; every other column of ``expected`` must be exactly equal, nulls included."""
    if sorted(expected.columns) != sorted(found.columns):
        raise ValueError(f"expected the columns {sorted(expected.columns)}, found {sorted(found.columns)}")
    duplicated = found[key].duplicated()
    left, right = expected.set_index(key), found[~duplicated].set_index(key)
    missing, unexpected = left.index.difference(right.index), right.index.difference(left.index)
    common = left.index.intersection(right.index)
    different, examples = 0, [f"{key} {k} is missing" for k in missing[:3]]
    examples += [f"{key} {k} should not be there" for k in unexpected[:3]]
    examples += [f"{key} {k} is there more than once" for k in found.loc[duplicated, key].iloc[:3]]
    for column in left.columns:
        want, have = left.loc[common, column], right.loc[common, column]
        unequal = _unequal(want, have)
        different += int(unequal.sum())
        examples += [f"{key} {k}: expected {column} {want[k]!r}, found {have[k]!r}" for k in common[unequal][:3]]
    return Comparison(
        rows=len(found),
        cells=len(common) * len(expected.columns),
        missing=len(missing),
        unexpected=len(unexpected),
        duplicated=int(duplicated.sum()),
        different=different,
        examples=tuple(examples[:10]),
    )


def _unequal(want: pd.Series, have: pd.Series) -> np.ndarray:
    both_null = want.isna().to_numpy() & have.isna().to_numpy()
    one_null = want.isna().to_numpy() ^ have.isna().to_numpy()
    values = np.zeros(len(want), bool)
    filled = ~(want.isna() | have.isna()).to_numpy()
    values[filled] = want[filled].to_numpy() != have[filled].to_numpy()
    return (one_null | values) & ~both_null
