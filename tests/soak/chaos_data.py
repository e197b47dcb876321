"""Input of the job that is killed at scale, the same for one seed, and its result computed as one batch in pandas."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SOURCES = ("a", "b")
SCHEMA = "id long, src int, k long, g long, v long, x double, name string"
RESULT = "id long, src int, k long, g long, v long, x double, name string, n long, s long, seq long, total long"
RESET = 50
"""After so many rows of one source a group begins anew, so that keyed state is removed and made again."""

_ROWS, _KEYS, _GROUPS, _STRIDE = 160, 60, 14, 1000
_NAMES = ["", "plain", "Ünïcödé", "日本語", 'it\'s; -- "quoted"', "tab\tand\nline"]


class Feed:
    """Two folders in which files appear, some hundred rows each; rows and ids depend on seed and number only.

    Keys ``k`` belong to one source, groups ``g`` to both.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.count = dict.fromkeys(SOURCES, 0)
        for source in SOURCES:
            (folder / source).mkdir(parents=True)

    def add(self, source: str) -> None:
        """One more file, there at once and whole."""
        number = self.count[source]
        rows = self._rows(source, number)
        hidden = self.folder / source / f".{number:06d}"
        if source == "a":
            pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), hidden)
        else:
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows.to_dict("records")))
        os.utime(hidden, (1_600_000_000 + number,) * 2)  # the order in which they are read, whatever the clock says
        hidden.rename(hidden.with_name(f"{number:06d}.{'parquet' if source == 'a' else 'json'}"))
        self.count[source] += 1

    def result(self) -> pd.DataFrame:
        """What all rows make: one row each, ordered by id."""
        return result(pd.concat([self._rows(s, n) for s in SOURCES for n in range(self.count[s])]))

    def _rows(self, source: str, number: int) -> pd.DataFrame:
        src = SOURCES.index(source)
        rng = np.random.default_rng([self.seed, src, number])
        n = int(rng.integers(1, _ROWS))
        return pd.DataFrame({
            "id": (number * _STRIDE + np.arange(n)) * 2 + src,
            "src": np.full(n, src, np.int32),
            "k": rng.integers(0, _KEYS, n) * 2 + src,
            "g": rng.integers(0, _GROUPS, n),
            "v": rng.integers(-1_000, 1_000, n),
            "x": rng.normal(size=n),
            "name": [_NAMES[i] for i in rng.integers(0, len(_NAMES), n)],
        })  # fmt: skip


def result(rows: pd.DataFrame) -> pd.DataFrame:
    """Count and sum of each ``k`` up to each row; then, in each ``g`` and source, the row's number, sums summed."""
    rows = rows.sort_values("id", ignore_index=True)
    by_key = rows.groupby("k")
    out = rows.assign(n=by_key.cumcount() + 1, s=by_key["v"].cumsum())
    place = out.groupby(["g", "src"]).cumcount()
    return out.assign(seq=place % RESET + 1, total=out.groupby([out["g"], out["src"], place // RESET])["s"].cumsum())


def latest(everything: pd.DataFrame) -> pd.DataFrame:
    """What a sink holds that merges by ``g`` and ``src``."""
    last = everything.groupby(["g", "src"], as_index=False).last()
    return last[LATEST].sort_values(["g", "src"], ignore_index=True)


LATEST = ["g", "src", "id", "seq", "total"]
