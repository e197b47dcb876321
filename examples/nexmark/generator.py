"""Nexmark's events: people who open auctions and bid, made by position, so that any range can be made again.

Proportions, ids, hot keys, prices, lengths of auctions and texts are those of the generator of Apache Beam and of the
Nexmark project (https://github.com/nexmark/nexmark). What is other: event times have microseconds, so that no two
events have the same one, and each event draws by its number, so that they do not depend on how they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.draws import Draws, Numbers

PERSON, AUCTION, BID = 0, 1, 2
PEOPLE, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PEOPLE + AUCTIONS + BIDS
"""Events come in rounds: one person, then three auctions, then 46 bids."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
ACTIVE_PEOPLE, IN_FLIGHT_AUCTIONS, LEAD = 1000, 100, 10
"""``LEAD``: people and auctions that are spoken of before they are there."""
HOT_EVERY, CHANNELS = 100, 10_000
START_US = 1_436_918_340_000_000  # 2015-07-14 23:59 UTC: a minute later the day changes
GROUP_STEP = 953

TIME = pa.timestamp("us", "UTC")
_TYPES = {"long": pa.int64(), "string": pa.string(), "timestamp": TIME}


def _struct(text: str) -> pa.DataType:
    return pa.struct([(name, _TYPES[kind]) for name, kind in (field.split() for field in text.split(","))])


PERSON_TYPE = _struct(
    "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, "
    "extra string"
)
AUCTION_TYPE = _struct(
    "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp, "
    "expires timestamp, seller long, category long, extra string"
)
BID_TYPE = _struct(
    "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string"
)
SCHEMA = pa.schema(
    {
        "event_type": pa.int32(),
        "person": PERSON_TYPE,
        "auction": AUCTION_TYPE,
        "bid": BID_TYPE,
        "dateTime": TIME,
    }
)


@dataclass(frozen=True)
class Settings:
    """What the events depend on. ``events_per_second`` of event time. Events are out of order within groups of
    ``out_of_order``; a share ``delayed`` of them comes up to ``delay_s`` seconds of event time late."""

    seed: int = 1
    events_per_second: int = 1000
    out_of_order: int = 1
    delayed: float = 0.0
    delay_s: int = 3

    def __post_init__(self) -> None:
        if self.events_per_second < 1 or not 0 <= self.delayed <= 1 or self.delay_s < 0:
            raise ValueError(f"expected at least one event a second, a share from 0 to 1 and a delay, found {self}")
        if self.out_of_order < 1 or gcd(self.out_of_order, GROUP_STEP) != 1:
            raise ValueError(f"groups have at least one event, and no multiple of {GROUP_STEP}; found {self}")


def make_events(first: int, end: int, settings: Settings) -> pa.RecordBatch:
    """Events ``first`` to ``end`` - 1, as they arrive."""
    arrived = np.arange(first, end, dtype=np.int64)
    group = settings.out_of_order
    numbers = arrived // group * group + arrived * GROUP_STEP % group
    draws = Draws(numbers, settings.seed)
    kinds = np.digitize(numbers % EPOCH, [PEOPLE, PEOPLE + AUCTIONS])
    times_us = _times_us(numbers, draws, settings)
    structs = [
        _only(kinds == kind, made, numbers, times_us, settings)
        for kind, made in ((PERSON, _people), (AUCTION, _auctions), (BID, _bids))
    ]
    columns = [pa.array(kinds.astype(np.int32)), *structs, pa.array(times_us, TIME)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _times_us(numbers: Numbers, draws: Draws, settings: Settings) -> Numbers:
    """Who comes late says a time of before."""
    late = draws.unit("delayed") < settings.delayed
    delays = np.where(late, draws.below("delay", settings.delay_s * 1_000_000 + 1), 0)
    return START_US + numbers * 1_000_000 // settings.events_per_second - delays


def _only(which: Any, made: Any, numbers: Numbers, times_us: Numbers, settings: Settings) -> pa.Array:
    """What ``made`` makes of the events in ``which``; null for the others."""
    rows = numbers[which]
    found = made(rows, times_us[which], Draws(rows, settings.seed), settings)
    places = pa.array(np.cumsum(which) - 1, mask=~which)
    return found.take(places)


def _people(numbers: Numbers, times_us: Numbers, draws: Draws, settings: Settings) -> pa.Array:
    names = draws.one_of("first name", _FIRST), draws.one_of("last name", _LAST)
    mail = draws.text("mailbox", 3, 6), draws.text("host", 3, 4)
    card = [draws.one_of(f"card {part}", _FOUR_DIGITS) for part in range(4)]
    columns = [
        pa.array(FIRST_ID + _last_person(numbers)),
        pc.binary_join_element_wise(*names, " "),
        pc.binary_join_element_wise(pc.binary_join_element_wise(*mail, "@"), ".com", ""),
        pc.binary_join_element_wise(*card, " "),
        draws.one_of("city", _CITIES),
        draws.one_of("state", _STATES),
        pa.array(times_us, TIME),
        draws.text("person extra", 100, 148),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(PERSON_TYPE))


def _auctions(numbers: Numbers, times_us: Numbers, draws: Draws, settings: Settings) -> pa.Array:
    last = _last_person(numbers)
    hot = draws.below("hot seller", 4) > 0
    seller = np.where(hot, last // HOT_EVERY * HOT_EVERY, _some_person(last, draws, "seller"))
    initial, over = _price(draws, "initial bid"), _price(draws, "reserve")
    # As long as it takes, on average, until as many auctions as are in flight have been opened.
    horizon_us = IN_FLIGHT_AUCTIONS * EPOCH // AUCTIONS * 1_000_000 // settings.events_per_second
    expires_us = times_us + 1_000 + draws.below("length", 2 * horizon_us)
    columns = [
        pa.array(FIRST_ID + _last_auction(numbers)),
        draws.text("item", 3, 19),
        draws.text("description", 3, 99),
        *[pa.array(prices) for prices in (initial, initial + over)],
        *[pa.array(times, TIME) for times in (times_us, expires_us)],
        pa.array(FIRST_ID + seller),
        pa.array(FIRST_CATEGORY + draws.below("category", CATEGORIES)),
        draws.text("auction extra", 310, 466),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(AUCTION_TYPE))


def _bids(numbers: Numbers, times_us: Numbers, draws: Draws, settings: Settings) -> pa.Array:
    last, last_person = _last_auction(numbers), _last_person(numbers)
    least = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
    some = least + draws.below("auction", last - least + 1 + LEAD)
    auction = np.where(draws.below("hot auction", 2) > 0, last // HOT_EVERY * HOT_EVERY, some)
    # The second person of a hundred: those who sell and those who bid most are not the same.
    hot_bidder = last_person // HOT_EVERY * HOT_EVERY + 1
    bidder = np.where(draws.below("hot bidder", 4) > 0, hot_bidder, _some_person(last_person, draws, "bidder"))
    is_hot = draws.below("hot channel", 2) > 0
    channel = np.where(is_hot, draws.below("which hot", len(_HOT)), len(_HOT) + draws.below("channel", CHANNELS))
    names, urls = _channels(settings.seed)
    columns = [
        pa.array(FIRST_ID + auction),
        pa.array(FIRST_ID + bidder),
        pa.array(_price(draws, "price")),
        names.take(pa.array(channel)),
        urls.take(pa.array(channel)),
        pa.array(times_us, TIME),
        draws.text("bid extra", 54, 82),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(BID_TYPE))


def _last_person(numbers: Numbers) -> Numbers:
    """The newest person when event ``numbers`` comes, counted from 0."""
    return numbers // EPOCH * PEOPLE + np.minimum(numbers % EPOCH, PEOPLE - 1)


def _last_auction(numbers: Numbers) -> Numbers:
    """The newest auction when event ``numbers`` comes, counted from 0; -1 in front of the first."""
    return numbers // EPOCH * AUCTIONS + np.clip(numbers % EPOCH - PEOPLE, -1, AUCTIONS - 1)


def _some_person(last: Numbers, draws: Draws, what: str) -> Numbers:
    active = np.minimum(last + 1, ACTIVE_PEOPLE)
    return last + 1 - active + draws.below(what, active + LEAD)


def _price(draws: Draws, what: str) -> Numbers:
    """From 1.00 to a million, in cents; each order of magnitude as often as any other."""
    return np.round(10.0 ** (draws.unit(what) * 6) * 100).astype(np.int64)


@lru_cache(maxsize=4)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """Names and addresses: the hot ones first. Nine of ten of the others say their id."""
    draws = Draws(np.arange(len(_HOT) + CHANNELS), seed)
    folders = [draws.text(f"folder {part}", 3, 4) for part in range(3)]
    ids = pc.binary_join_element_wise("&channel_id=", pa.array(draws.below("channel id", 2**31)).cast(pa.string()), "")
    says = (draws.below("says its id", 10) > 0) & (np.arange(len(ids)) >= len(_HOT))
    shown = pc.if_else(pa.array(says), ids, "")
    urls = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
    return pa.array([*_HOT, *(f"channel-{i}" for i in range(CHANNELS))]), pc.binary_join_element_wise(urls, shown, "")


_HOT = ["Google", "Facebook", "Baidu", "Apple"]
_FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent"]
_CITIES += ["Cheyenne"]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_FOUR_DIGITS = [f"{number:04}" for number in range(10_000)]
