"""Nexmark's events are Nexmark's, the same whenever a range of them is read. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.nexmark.generator import SCHEMA, Settings, make_events
from examples.nexmark.source import NexmarkSource
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget

EVENTS = 30_000


class Events(SourceTarget):
    rows_a_batch = 70

    def __init__(self, tmp_path: Path) -> None:
        options = {"events": "200", "perBatch": "70", "outOfOrder": "30"}
        super().__init__(NexmarkSource, options, str(tmp_path / "metadata"))

    def expected(self) -> list[tuple[Any, ...]]:
        rows = make_events(0, 200, Settings(out_of_order=30)).to_pydict()
        return list(zip(*rows.values()))


class TestNexmarkSource(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SourceTarget:
        return Events(tmp_path)


@pytest.fixture(scope="module")
def events() -> pa.RecordBatch:
    return make_events(0, EVENTS, Settings())


def of_kind(events: pa.RecordBatch, kind: str) -> pa.StructArray:
    return events.column(kind).drop_null()


def hot_share(values: pa.Array, remainder: int) -> float:
    """How many of the ids are the first, or the second, of a hundred."""
    return float(pc.mean(pa.array(values.to_numpy() % 100 == remainder)).as_py())


def test_one_event_in_fifty_is_a_person_three_are_auctions_and_the_rest_are_bids(events: pa.RecordBatch) -> None:
    assert events.column("event_type").to_pylist()[:52] == [0, 1, 1, 1, *[2] * 46, 0, 1]
    counts = {kind: len(of_kind(events, kind)) for kind in ("person", "auction", "bid")}
    assert counts == {"person": EVENTS // 50, "auction": EVENTS * 3 // 50, "bid": EVENTS * 46 // 50}


def test_people_and_auctions_are_numbered(events: pa.RecordBatch) -> None:
    for kind in ("person", "auction"):
        ids = of_kind(events, kind).field("id").to_pylist()
        assert ids == list(range(1000, 1000 + len(ids)))


def test_who_sells_and_bids_and_what_is_bid_for_is_as_hot_as_in_nexmark(events: pa.RecordBatch) -> None:
    bids, auctions = of_kind(events, "bid"), of_kind(events, "auction")
    assert hot_share(bids.field("auction"), 0) == pytest.approx(1 / 2, abs=0.02)
    assert hot_share(bids.field("bidder"), 1) == pytest.approx(3 / 4, abs=0.02)
    assert hot_share(auctions.field("seller"), 0) == pytest.approx(3 / 4, abs=0.04)
    hot = pc.is_in(bids.field("channel"), pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert pc.mean(hot).as_py() == pytest.approx(1 / 2, abs=0.02)
    assert set(auctions.field("category").to_pylist()) == {10, 11, 12, 13, 14}


def test_what_is_bid_for_is_in_flight_or_about_to_be(events: pa.RecordBatch) -> None:
    at = events.to_pandas()
    bids = at[at["event_type"] == 2]
    newest = 1000 + bids.index // 50 * 3 + 2
    asked = bids["bid"].map(lambda bid: bid["auction"]).to_numpy()
    assert (asked <= newest + 10).all()
    assert (asked >= newest - 100).all()
    assert (asked > newest).mean() == pytest.approx(0.5 * 10 / 111, abs=0.01)


def test_every_range_has_the_rows_that_it_has_as_part_of_another() -> None:
    settings = Settings(seed=3, out_of_order=300, delayed=0.2)
    parts = [make_events(low, high, settings) for low, high in ((0, 1), (1, 777), (777, 777), (777, 900))]
    assert pa.concat_batches(parts).equals(make_events(0, 900, settings))


def test_another_seed_makes_other_events_of_the_same_kinds_and_times(events: pa.RecordBatch) -> None:
    other = make_events(0, EVENTS, Settings(seed=2))
    assert other.column("event_type").equals(events.column("event_type"))
    assert other.column("dateTime").equals(events.column("dateTime"))
    same = pc.equal(of_kind(other, "bid").field("price"), of_kind(events, "bid").field("price"))
    assert pc.mean(same).as_py() < 0.01


def test_events_in_disorder_are_the_same_events_within_their_group() -> None:
    ordered, mixed = make_events(0, 600, Settings()), make_events(0, 600, Settings(out_of_order=200))
    assert not mixed.equals(ordered)
    for start in (0, 200, 400):
        assert mixed.slice(start, 200).sort_by("dateTime").equals(ordered.slice(start, 200))


def test_as_many_as_asked_for_come_late_and_not_by_more_than_asked_for() -> None:
    times = [
        make_events(0, EVENTS, settings).column("dateTime").cast(pa.int64()).to_numpy()
        for settings in (Settings(), Settings(delayed=0.1, delay_s=2))
    ]
    late_us = times[0] - times[1]
    assert (late_us > 0).mean() == pytest.approx(0.1, abs=0.01)
    assert late_us.min() == 0
    assert 1_900_000 < late_us.max() <= 2_000_000


def test_an_event_says_its_time_twice_and_no_other_has_the_same(events: pa.RecordBatch) -> None:
    for number, kind in enumerate(("person", "auction", "bid")):
        rows = events.filter(pc.equal(events.column("event_type"), number))
        assert rows.column(kind).field("dateTime").equals(rows.column("dateTime"))
    assert len(events.column("dateTime").unique()) == EVENTS
    auctions = of_kind(events, "auction")
    assert pc.all(pc.greater(auctions.field("expires"), auctions.field("dateTime"))).as_py()


@pytest.mark.parametrize("wrong", [{"events_per_second": 0}, {"delayed": 1.5}, {"out_of_order": 1906}, {"delay_s": -1}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="found Settings"):
        Settings(**wrong)


def test_no_events_have_the_schema_too() -> None:
    assert make_events(5, 5, Settings()).schema.equals(SCHEMA)
