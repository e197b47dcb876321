"""Random chains over random rows give in every sink what Spark's batch gives, cell by cell.

Streamed in several batches with a checkpoint each, chaining on and off. ``make soak CHAINS=2000 SEED=7`` tries more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tests.generated import chains, steps
from tests.generated.bundles import check_alone, check_bundle
from tests.generated.lab import Lab
from tests.generated.session import made_session
from tests.generated.values import Pools, pools

for _module in (chains, steps):
    cloudpickle.register_pickle_by_value(_module)

IN_A_QUERY = 20
SOAKED = int(os.environ.get("CHAINS", "2000"))
SEED = int(os.environ.get("SEED", "1"))

# Shrinking is our own: Hypothesis would run thousands of queries for it.
_once = settings(
    phases=[Phase.generate], max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    session: SparkSession = made_session(folder)
    yield Lab(session, folder)
    session.stop()


@pytest.mark.parametrize("number", range(2))
@_once
@given(drawn=pools())
def test_many_chains_in_one_query_give_what_batch_gives(lab: Lab, number: int, drawn: Pools) -> None:
    check_bundle(lab, number, drawn, size=12)


@pytest.mark.parametrize("number", [4, 6])
@_once
@given(drawn=pools())
def test_a_chain_on_its_own_gives_what_batch_gives(lab: Lab, number: int, drawn: Pools) -> None:
    check_alone(lab, number, drawn)


@pytest.mark.soak
def test_thousands_of_chains_give_what_batch_gives(lab: Lab) -> None:
    """Nine in ten in bundles, the others alone."""
    done, began, wrong = [0], time.monotonic(), []

    @seed(SEED)
    @settings(_once, max_examples=max(1, SOAKED // (IN_A_QUERY + 2)), derandomize=False)
    @given(drawn=pools(), first=st.integers(0, 2**30))
    def more(drawn: Pools, first: int) -> None:
        try:
            check_bundle(lab, first, drawn, IN_A_QUERY)
            for number in (first + 1, first + 2):
                check_alone(lab, number, drawn)
        except AssertionError as error:
            wrong.append(str(error))
            print(error, file=sys.__stderr__, flush=True)
        done[0] += IN_A_QUERY + 2
        said = f"{done[0]} chains in {time.monotonic() - began:.0f} s, {len(wrong)} queries wrong"
        print(said, file=sys.__stderr__, flush=True)

    more()
    assert not wrong, "\n\n".join(wrong)
