"""Nexmark's queries 0 to 22 but 6, each as one writes it in PySpark: streams of people, auctions and bids to a stream.

The questions are those of https://github.com/nexmark/nexmark; a query's own words about it are in docs/nexmark.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

Stream = Any  # a DataFrame: of spark-ckpt's, of Spark's, or a table


def timed(stream: Stream) -> Stream:
    """For what goes by event time. Without it nothing is late, and what is remembered is remembered for ever."""
    return stream.withWatermark("dateTime", "4 seconds")


def q0(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Pass through."""
    return bid.select("auction", "bidder", "price", "dateTime", "extra")


def q1(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Currency conversion."""
    return bid.selectExpr("auction", "bidder", "0.908 * price AS price", "dateTime", "extra")


def q2(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Selection."""
    return bid.where(F.col("auction") % 123 == 0).select("auction", "price")


def q3(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Local item suggestion: a join that remembers both sides for ever."""
    offered = auction.where("category = 10")
    local = person.where(F.col("state").isin("OR", "ID", "CA"))
    return offered.join(local, offered["seller"] == local["id"]).select("name", "city", "state", offered["id"])


def winning(auction: Stream, bid: Stream, *columns: Any) -> Stream:
    """The bids that auctions got while they were open; of each auction the best, as changes in the column ``op``."""
    open_then = (bid["dateTime"] >= auction["dateTime"]) & (bid["dateTime"] <= auction["expires"])
    taken = auction.join(bid, (auction["id"] == bid["auction"]) & open_then).select(*columns)
    return taken.groupBy("id").topN(1, F.desc("price"), "bid_dateTime")


def q4(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Average price of a category: what falls out of the winning bids is taken off again."""
    best = winning(auction, bid, "id", "category", "price", bid["dateTime"].alias("bid_dateTime"))
    sign = F.when(F.col("op") == "-D", -1).otherwise(1)
    final = F.sum(sign * F.col("price")) / F.sum(sign)
    return best.groupBy("category").agg(final.alias("final"))


def q5(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Hot items: sliding windows, and the best of each window."""

    def counts() -> Stream:
        windows = F.window("dateTime", "10 seconds", "2 seconds")
        return timed(bid).groupBy(windows, "auction").agg(F.count("*").alias("num"))

    most = counts().groupBy("window").agg(F.max("num").alias("maxn"))
    found = counts().join(most, "window").where("num >= maxn")
    return found.select(
        "auction", "num", F.col("window.start").alias("starttime"), F.col("window.end").alias("endtime")
    )


def q7(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Highest bid: a stream joined with the windows of itself."""
    bid = timed(bid)
    highest = bid.groupBy(F.window("dateTime", "10 seconds")).agg(F.max("price").alias("maxprice"))
    highest = highest.select("maxprice", F.window_time("window").alias("last"))
    # The window's time is its last microsecond. As it is an event time, neither side is remembered for long.
    begins, ends = (highest["last"] + F.expr(f"INTERVAL {after} SECOND") for after in ("-9.999999", "0.000001"))
    inside = (bid["dateTime"] >= begins) & (bid["dateTime"] <= ends)
    found = bid.join(highest, (bid["price"] == highest["maxprice"]) & inside)
    return found.select("auction", "price", "bidder", "dateTime", "extra")


def q8(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Monitor new users: windows of two streams, joined."""
    new = timed(person).groupBy("id", "name", F.window("dateTime", "10 seconds")).count()
    selling = timed(auction).groupBy("seller", F.window("dateTime", "10 seconds")).count()
    found = new.join(selling, (new["id"] == selling["seller"]) & (new["window"] == selling["window"]))
    return found.select("id", "name", new["window"]["start"].alias("starttime"))


def q9(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Winning bids: a join, and the first of an order."""
    of_auction = [auction[name] for name in auction.columns]
    of_bid = [bid["dateTime"].alias("bid_dateTime"), bid["extra"].alias("bid_extra")]
    return winning(auction, bid, *of_auction, "auction", "bidder", "price", *of_bid)


def q10(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Log to a file system: folders by day and minute."""
    day, minute = F.date_format("dateTime", "yyyy-MM-dd"), F.date_format("dateTime", "HH:mm")
    return q0(person, auction, bid).withColumns({"dt": day, "hm": minute})


def q11(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """User sessions."""
    sessions = timed(bid).groupBy("bidder", F.session_window("dateTime", "10 seconds"))
    counts = sessions.agg(F.count("*").alias("bid_count"))
    session = F.col("session_window")
    return counts.select("bidder", "bid_count", session.start.alias("starttime"), session.end.alias("endtime"))


def q12(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Windows of the time at which a bid is looked at."""
    seen = bid.withColumn("p_time", F.current_timestamp())
    counts = seen.groupBy("bidder", F.window("p_time", "10 seconds")).agg(F.count("*").alias("bid_count"))
    begins, ends = F.col("window.start").alias("starttime"), F.col("window.end").alias("endtime")
    return counts.select("bidder", "bid_count", begins, ends)


def side_input() -> Any:
    """A table of 10,000 keys."""
    spark = SparkSession.active()
    return spark.range(10_000).select(F.col("id").alias("key"), F.concat(F.lit("value "), "id").alias("value"))


def q13(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Bounded side input: a join with a table."""
    side = side_input()
    found = bid.join(side, bid["auction"] % 10_000 == side["key"])
    return found.select("auction", "bidder", "price", "dateTime", "value")


count_char = F.udf(lambda text, character: text.count(character), LongType())


def q14(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Calculation: the same expression in several places, and a function of one's own."""
    price, hour = F.expr("0.908 * price"), F.hour("dateTime")
    kind = F.when((hour >= 8) & (hour <= 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime")
    return bid.where((price > 1_000_000) & (price < 50_000_000)).select(
        "auction",
        "bidder",
        price.alias("price"),
        kind.otherwise("otherTime").alias("bidTimeType"),
        "dateTime",
        "extra",
        count_char("extra", F.lit("c")).alias("c_counts"),
    )


_RANKS = ("", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _ranked(aggregate: str, name: str) -> list[Any]:
    """The aggregate of all bids, and of those of three levels of price."""
    filters = [f" FILTER (WHERE {rank})" if rank else "" for rank in _RANKS]
    names = [f"rank{number}_{name}" if number else f"total_{name}" for number in range(len(_RANKS))]
    return [F.expr(aggregate + only).alias(alias) for only, alias in zip(filters, names)]


def _distinct_bids() -> list[Any]:
    bidders, auctions = _ranked("count(DISTINCT bidder)", "bidders"), _ranked("count(DISTINCT auction)", "auctions")
    return [*_ranked("count(*)", "bids"), *bidders, *auctions]


def q15(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Bidding statistics: several DISTINCTs with filters."""
    return bid.groupBy(F.date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(*_distinct_bids())


def q16(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Channel statistics: the same by two keys."""
    minute = F.max(F.date_format("dateTime", "HH:mm")).alias("minute")
    return bid.groupBy("channel", F.date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(minute, *_distinct_bids())


def q17(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Auction statistics: an aggregation without end."""
    prices = [f("price").alias(f"{f.__name__}_price") for f in (F.min, F.max, F.avg, F.sum)]
    return bid.groupBy("auction", F.date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(
        *_ranked("count(*)", "bids"), *prices
    )


def q18(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Find last bid: the latest of each key."""
    return bid.groupBy("bidder", "auction").topN(1, F.desc("dateTime"))


def q19(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Auction top 10 prices: the first ten of an order, with their rank. Of equal prices the earlier bid is ahead."""
    return bid.groupBy("auction").topN(10, F.desc("price"), "dateTime", rank="rank_number")


def q20(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Expand bids with their auction."""
    b, a = bid.alias("b"), auction.where("category = 10").alias("a")
    found = b.join(a, F.col("b.auction") == F.col("a.id"))
    return found.select(
        *["auction", "bidder", "price", "channel", "url", F.col("b.dateTime").alias("bid_dateTime")],
        *[F.col("b.extra").alias("bid_extra"), "itemName", "description", "initialBid", "reserve"],
        *[F.col("a.dateTime").alias("auction_dateTime"), "expires", "seller", "category"],
        F.col("a.extra").alias("auction_extra"),
    )


def q21(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Add a channel's id: CASE and a regular expression."""
    channel, said = F.lower("channel"), F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    known = F.when(channel == "apple", "0").when(channel == "google", "1")
    known = known.when(channel == "facebook", "2").when(channel == "baidu", "3")
    # Where nothing matches, Spark's regexp_extract gives an empty text, and Flink's null.
    only = (said != "") | channel.isin("apple", "google", "facebook", "baidu")
    return bid.where(only).select("auction", "bidder", "price", "channel", known.otherwise(said).alias("channel_id"))


def q22(person: Stream, auction: Stream, bid: Stream) -> Stream:
    """Folders of an address."""
    parts = F.split("url", "/")
    folders = [parts[3 + number].alias(f"dir{number + 1}") for number in range(3)]
    return bid.select("auction", "bidder", "price", "channel", *folders)


@dataclass(frozen=True)
class Query:
    """``keys``: of the rows in the target, where later ones replace earlier ones. ``sink``: what it is written to.

    ``changes``: the column that says which rows are there and which are not any more.
    """

    build: Callable[[Stream, Stream, Stream], Stream]
    keys: str | None = None
    sink: str = "delta"
    changes: str | None = None


QUERIES = {
    "q0": Query(q0),
    "q1": Query(q1),
    "q2": Query(q2),
    "q3": Query(q3),
    "q4": Query(q4, "category"),
    "q5": Query(q5),
    "q7": Query(q7),
    "q8": Query(q8),
    "q9": Query(q9, "id", changes="op"),
    "q10": Query(q10, sink="csv"),
    "q11": Query(q11),
    "q12": Query(q12, "bidder,starttime"),
    "q13": Query(q13),
    "q14": Query(q14),
    "q15": Query(q15, "day"),
    "q16": Query(q16, "channel,day", "sql"),
    "q17": Query(q17, "auction,day", "sql"),
    "q18": Query(q18, "bidder,auction", changes="op"),
    "q19": Query(q19, "auction,rank_number", changes="op"),
    "q20": Query(q20),
    "q21": Query(q21),
    "q22": Query(q22),
}
