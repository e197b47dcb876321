"""Looking hashes up gives what ``np.searchsorted`` gives, however they are spread."""

from __future__ import annotations

import numpy as np
import pytest

from spark_ckpt.state.lsm.search import search

LONG = 1 << 17
RNG = np.random.default_rng(5)
SPREADS = {
    "even": RNG.integers(-(2**63), 2**63 - 1, LONG + 7),
    "half": RNG.integers(-(2**63), -1, LONG),
    "repeated": np.repeat(RNG.integers(-(2**63), 2**63 - 1, LONG // 64), 64),
    "one": np.full(LONG, 7),
    "neighbours": np.arange(LONG),
    "clustered": (RNG.normal(0, 2**40, LONG)).astype(np.int64),
    "extremes": np.concatenate([[-(2**63)] * 600, RNG.integers(-9, 9, LONG), [2**63 - 1] * 600]),
}


@pytest.mark.parametrize("spread", SPREADS)
def test_every_hash_is_found_where_a_binary_search_finds_it(spread: str) -> None:
    hashes = np.sort(SPREADS[spread].astype(np.int64))
    near = RNG.choice(hashes, 1500)
    wanted = np.concatenate([near, near + 1, near - 1, RNG.integers(-(2**63), 2**63 - 1, 500), hashes[:2], hashes[-2:]])
    wanted = np.sort(np.concatenate([wanted, np.array([-(2**63), 2**63 - 1], np.int64)]))
    assert search(hashes, wanted).tolist() == np.searchsorted(hashes, wanted).tolist()
