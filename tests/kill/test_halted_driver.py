"""A driver is halted by SIGSTOP, as by a long pause of its machine, until a successor has done all its work."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.kill.killed import KilledJob


@pytest.mark.soak  # two starts of Spark for each place
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("place", "merging"),
    [
        *itertools.product(
            [
                "before WriteBatch#3",
                "before CreateCompletion#3",  # the successor completes the same checkpoint, and drops it later
                "after CreateCompletion#3",  # the successor commits what it authorised
                "before WriteCommitted#3",
            ],
            ["sql", "delta"],
        ),
        # Between two sinks of one class, which take turns. Beside one of another class a transaction may be open in the
        # database just then, and the successor would wait for its lock until somebody ends that session.
        ("after CommitSink#3", "delta"),
    ],
)
def test_a_halted_driver_that_moves_on_is_told_that_it_is_fenced_and_leaves_nothing(
    make_job: Callable[..., KilledJob], place: str, merging: str
) -> None:
    job = make_job(merging)
    with job.halted(place) as driver:
        job.finish()
        job.check_after_death()
        driver.resume()
        assert driver.wait() == 1
        said = driver.log.read_text()
    # Behind the last step of ours that looks, Spark's own log is what tells it.
    told = ["CONCURRENT_STREAM_LOG_UPDATE"] if place == "before WriteCommitted#3" else ["FencedError: ", "stop this"]
    assert all(words in said for words in told), said[-6000:]
    assert "restore another" not in said
    job.check_finished()
