"""Random chains over random rows give in every sink what Spark's batch gives, cell by cell.

Streamed in several batches with a checkpoint each: appending and merging, chaining on and off, classic and Connect.
``make soak CHAINS=2000 SEED=7`` tries more.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.generated.bundles import check_alone, check_bundle, say
from tests.generated.lab import Lab
from tests.generated.values import Pools, pools

IN_A_QUERY = int(os.environ.get("IN_A_QUERY", "38"))
ALONE = 2
SOAKED = int(os.environ.get("CHAINS", "2000"))
SEED = int(os.environ.get("SEED", "1"))

# Shrinking is our own: Hypothesis would run thousands of queries for it.
_once = settings(
    phases=[Phase.generate], max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize(
    "number", [0, pytest.param(3, marks=pytest.mark.soak)], ids=["append, chained", "merge, unchained"]
)
@_once
@given(drawn=pools())
def test_many_chains_in_one_query_give_what_batch_gives(lab: Lab, number: int, drawn: Pools) -> None:
    check_bundle(lab, number, drawn, size=7)


@pytest.mark.parametrize(
    "number",
    [6, pytest.param(5, marks=pytest.mark.soak)],
    ids=["append, unchained", "merge, chained"],
)
@_once
@given(drawn=pools())
def test_a_chain_on_its_own_gives_what_batch_gives(lab: Lab, number: int, drawn: Pools) -> None:
    check_alone(lab, number, drawn)


def over_connect(folder: Path, size: int, *seeds: int) -> None:
    command = [sys.executable, "-m", "tests.generated.over_connect", str(folder), str(size), *map(str, seeds)]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, f"{root}/python_datasource", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr[-5000:]


@pytest.mark.soak  # a few of them, beside other queries over Connect: tests/spark/test_over_connect.py
def test_many_chains_over_connect_give_what_batch_gives(tmp_path: Path) -> None:
    over_connect(tmp_path, IN_A_QUERY, *range(SEED, SEED + max(1, SOAKED // (20 * IN_A_QUERY))))


@pytest.mark.soak
def test_thousands_of_chains_give_what_batch_gives(lab: Lab) -> None:
    """Most in bundles, some alone."""
    # Counted and not drawn: Hypothesis likes to draw the same number again.
    tally, seeds = Tally(), itertools.count(SEED * 1_000_003, 1 + ALONE)

    @seed(SEED)
    @settings(_once, max_examples=max(1, SOAKED // (IN_A_QUERY + ALONE)), derandomize=False)
    @given(drawn=pools())
    def more(drawn: Pools) -> None:
        first = next(seeds)
        tally.count(IN_A_QUERY, lambda: check_bundle(lab, first, drawn, IN_A_QUERY))
        for number in range(first + 1, first + 1 + ALONE):
            tally.count(1, lambda number=number: check_alone(lab, number, drawn))  # type: ignore[misc]

    more()
    assert not tally.wrong, "\n\n".join(tally.wrong)


class Tally:
    """Says how far it is after each query, and what was wrong as soon as it is known."""

    def __init__(self) -> None:
        self.chains, self.wrong = 0, list[str]()
        self._began = time.monotonic()

    def count(self, chains: int, check: Any) -> None:
        began = time.monotonic()
        try:
            check()
        except AssertionError as error:
            self.wrong.append(str(error))
            say(str(error))
        self.chains += chains
        now = time.monotonic()
        spent = f"{self.chains} chains in {now - self._began:.0f} s, the last {chains} in {now - began:.0f} s"
        say(f"{spent}, {len(self.wrong)} queries wrong")
