"""The same questions as batch SQL over all events at once: what the streams must have found at their end."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from examples.nexmark.queries import side_input

_DAY = "date_format(dateTime, 'yyyy-MM-dd')"
_COUNTS = (
    "SELECT auction, count(*) AS num, window FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')"
)
_LEVELS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


def _levels(what: str, name: str) -> str:
    of_levels = [f"count({what}) FILTER (WHERE {only}) AS {level}_{name}" for level, only in _LEVELS.items()]
    return ", ".join([f"count({what}) AS total_{name}", *of_levels])


_BIDS = _levels("*", "bids")
_DISTINCT = ", ".join([_BIDS, _levels("DISTINCT bidder", "bidders"), _levels("DISTINCT auction", "auctions")])

SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A INNER JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    "q4": """SELECT category, avg(final) AS final FROM
        (SELECT A.category, max(B.price) AS final FROM auction A, bid B
        WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category)
        GROUP BY category""",
    "q5": f"""SELECT auction, num, C.window.start AS starttime, C.window.end AS endtime FROM ({_COUNTS}) C
        JOIN (SELECT window, max(num) AS maxn FROM ({_COUNTS}) GROUP BY window) M
        ON C.window = M.window AND C.num >= M.maxn""",
    "q7": """SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B
        JOIN (SELECT max(price) AS maxprice, window.end AS at FROM bid GROUP BY window(dateTime, '10 seconds')) M
        ON B.price = M.maxprice WHERE B.dateTime BETWEEN M.at - INTERVAL 10 SECONDS AND M.at""",
    "q8": """SELECT P.id, P.name, P.window.start AS starttime
        FROM (SELECT id, name, window FROM person GROUP BY id, name, window(dateTime, '10 seconds')) P
        JOIN (SELECT seller, window FROM auction GROUP BY seller, window(dateTime, '10 seconds')) A
        ON P.id = A.seller AND P.window = A.window""",
    "q9": """SELECT * EXCEPT (place) FROM (SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime,
            B.extra AS bid_extra, row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS place
        FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires)
        WHERE place = 1""",
    "q10": f"""SELECT auction, bidder, price, dateTime, extra, {_DAY} AS dt, date_format(dateTime, 'HH:mm') AS hm
        FROM bid""",
    "q11": """SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
        FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
    # Which window a bid is in is told by a clock. That each is in one window can be told: see job.py.
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """SELECT auction, bidder, price, dateTime, value FROM bid JOIN side_input
        ON mod(auction, 10000) = key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price, CASE
            WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
        dateTime, extra, CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_DISTINCT} FROM bid GROUP BY 1",
    "q16": f"""SELECT channel, {_DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute, {_DISTINCT}
        FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY} AS day, {_BIDS}, min(price) AS min_price, max(price) AS max_price,
        avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT * EXCEPT (place) FROM (SELECT *,
            row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bid)
        WHERE place = 1""",
    "q19": """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime)
            AS rank_number FROM bid) WHERE rank_number <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra, itemName,
        description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category,
        A.extra AS auction_extra FROM bid B INNER JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE split_part(url, '&channel_id=', 2) END AS channel_id
        FROM bid WHERE contains(url, '&channel_id=') OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
        split_part(url, '/', 6) AS dir3 FROM bid""",
}


def expected(events: DataFrame, query: str) -> Any:
    """What ``query`` finds in the table ``events``."""
    for number, name in enumerate(("person", "auction", "bid")):
        events.where(f"event_type = {number}").select(f"{name}.*").createOrReplaceTempView(name)
    side_input().createOrReplaceTempView("side_input")
    return events.sparkSession.sql(SQL[query])
