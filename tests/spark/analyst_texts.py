"""The queries of ``test_sql_analyst``, by output mode: texts, and what ``args`` are given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

Text = tuple[Any, ...]

FIRST_OF_APPEND: list[Text] = [
    ("SELECT o.id, age, cost FROM users u, items i RIGHT JOIN orders o ON i.item = o.item AND age > 9",),
    ("FROM orders |> SET price = price * 2 |> SELECT id, price",),
    (
        """WITH orders AS (SELECT id, user, item, ts, n FROM orders WHERE n > :least)
           SELECT orders.id, u.country, twice(n) AS t, greet(u.user) AS g FROM IDENTIFIER(:t) JOIN users u USING (user)
           WHERE array_contains(:items, item) AND ts >= :begin AND ts - :late < :end AND n >= least_n""",
        {
            "least": 0,
            "t": "orders",
            "items": ["pen", "ink"],
            "begin": datetime(2024, 1, 1, 3, 3),
            "late": timedelta(minutes=1),
            "end": datetime(2024, 1, 1, 6, tzinfo=UTC),
        },
    ),
]
"""Of these the test command compares the rows, too."""

APPEND: list[Text] = [
    ("SELECT id, CASE WHEN price > 2 THEN 'high' ELSE 'low' END AS band, CASE item WHEN 'pen' THEN 1 END FROM orders",),
    ("SELECT window.start, window.end, item, sum(price * n) r FROM orders GROUP BY window(ts, '5 minutes'), item",),
    ("SELECT window(ts, '10 minutes', '5 minutes') AS w, approx_count_distinct(user) FROM orders GROUP BY 1",),
    ("SELECT session_window.start AS s, user, count(*) FROM orders GROUP BY session_window(ts, '4 minutes'), user",),
    (
        """SELECT user, session_window(ts, CASE WHEN item = 'pen' THEN '1 minute' ELSE '10 minutes' END) w, count(*)
           FROM orders GROUP BY 1, 2""",
    ),
    ("SELECT o.id, u.country, coalesce(u.age, -1) AS age FROM orders o LEFT JOIN users u ON o.user = u.user",),
    (
        """SELECT o.id, c.page, c.ms FROM orders o JOIN clicks c ON o.id = c.order
           AND c.at BETWEEN o.ts - INTERVAL 5 MINUTES AND o.ts + INTERVAL 5 MINUTES""",
    ),
    (
        """SELECT o.id, c.page FROM orders o LEFT JOIN clicks c ON o.id = c.order
           AND c.at >= o.ts AND c.at < o.ts + INTERVAL 2 MINUTES""",
    ),
    (
        """WITH a AS (WITH b AS (SELECT id, user FROM orders WHERE user IS NOT NULL) SELECT id, upper(user) AS u FROM b)
           SELECT a.u, a.id FROM a WHERE a.id > 2""",
    ),
    (
        """SELECT id FROM orders WHERE user IN (SELECT user FROM users WHERE age IS NOT NULL)
           AND price > (SELECT min(cost) FROM items)""",
    ),
    ("SELECT id, (SELECT cost FROM items i WHERE i.item = o.item) AS cost FROM orders o",),
    ("SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM users u WHERE u.user = o.user AND u.age > o.n)",),
    ("SELECT user, 'o' k FROM orders UNION ALL SELECT user, 'c' FROM clicks UNION ALL SELECT page, 'p' FROM clicks",),
    ("SELECT id, tag FROM orders LATERAL VIEW explode(tags) t AS tag WHERE tag <> 'x'",),
    ("SELECT id, named_struct('a', id, 'b', user) AS s, addr.* FROM orders",),
    (
        """SELECT id, transform(tags, x -> upper(x)) u, filter(tags, (x, i) -> i > 0) f, exists(tags, x -> x = 'x') e,
           aggregate(tags, '', (acc, x) -> acc || x) g, map_filter(attrs, (k, v) -> v > 2)['a'] m FROM orders""",
    ),
    (
        """FROM orders
           |> WHERE price > 1 |> EXTEND price * n AS total |> SELECT id, user, total
           |> JOIN users USING (user) |> DROP age""",
    ),
    ("FROM orders |> AS o |> SELECT o.id, o.user |> UNION ALL (SELECT order, page FROM clicks)",),
    (
        """WITH orders AS (SELECT id, user, n FROM orders WHERE n > 1), x AS (SELECT * FROM orders WHERE n < 4)
           FROM x |> WHERE user IS NOT NULL |> SELECT id""",
    ),
    ("SELECT id, price FROM orders WHERE price > :p AND user = :u", {"p": Decimal("0.5"), "u": "ann"}),
    ("SELECT id, ? AS c FROM orders WHERE n > ? AND ts > ?", [1.5, 2, datetime(2024, 1, 1, 3, 10, tzinfo=UTC)]),
    ("SELECT /*+ BROADCAST(u) */ o.id, u.country FROM orders o JOIN users u USING (user)",),
    ("SELECT `id` AS `the id`, `addr`.`city` FROM `orders` AS `o r` WHERE `o r`.`n` > 1",),
    ("SELECT * EXCEPT (tags, attrs, addr) FROM orders",),
    (
        """SELECT date_trunc('HOUR', ts) h, convert_timezone('America/New_York', 'UTC', ts::timestamp_ntz) t, hour(ts),
           date(ts), date_format(ts, 'HH:mm z'), ts + INTERVAL '1' DAY, to_utc_timestamp(ts, 'UTC+9') u
           FROM orders""",
    ),
    ("SELECT a, b FROM orders, LATERAL (SELECT price * 2 AS a, n + 1 AS b)",),
    ("SELECT u.user, i.item, o.id FROM items i RIGHT JOIN orders o ON i.item = o.item, users u WHERE u.age > 5",),
    (
        """SELECT u.age, i.item, o.id FROM users u CROSS JOIN items i
           RIGHT JOIN orders o ON i.item = o.item AND u.user = o.user WHERE u.age > 5""",
    ),
    ("SELECT * FROM (SELECT id, user FROM orders) NATURAL JOIN users",),
    ("SELECT id, explode(tags) AS tag FROM orders",),
    ("SELECT n AS a, a + 1 AS b, price AS n, n * 2 AS c FROM orders",),
    ("SELECT id AS user, user AS id FROM orders WHERE id > 3",),
    (
        """SELECT id FROM orders WHERE ts BETWEEN TIMESTAMP'2023-12-31 22:00:00' AND TIMESTAMP'2023-12-31 22:20:00'
           AND item LIKE 'p%' AND item NOT ILIKE 'PA_' AND user RLIKE '^a'""",
    ),
    (
        """SELECT id, user IS DISTINCT FROM 'ann' d, user <=> NULL e, nvl(user, '-') || '/' || item c,
           try_divide(n, 0) t, n DIV 2, n % 2, -n, ~n, n & 1, decode(item, 'pen', 'P', '?'),
           price::string FROM orders""",
    ),
    ("SELECT to_json(struct(id, addr)) j, from_json('{\"a\":1}', 'a INT').a FROM orders WHERE size(tags) > 0",),
    (
        """SELECT window(window, '20 minutes').start s, sum(c) FROM
           (SELECT window, count(*) c FROM orders GROUP BY window(ts, '5 minutes'))
           GROUP BY window(window, '20 minutes')""",
    ),
    ("SELECT w.start, user, count(*) c FROM (SELECT *, window(at, '10 minutes') w FROM clicks) GROUP BY w, user",),
    (
        """SELECT * FROM (SELECT window(ts, '10 minutes') w, user, item, price FROM orders)
           PIVOT (max(item) AS i, sum(price) FOR user IN ('ann' AS a, 'bob'))""",
    ),
]

COMPLETE: list[Text] = [
    ("SELECT user, count(*) AS c, sum(price) FROM orders GROUP BY user HAVING count(*) > 1 AND sum(price) > 3",),
    ("SELECT item, count(*) FILTER (WHERE n > 2) AS big, count_if(n = 0) FROM orders GROUP BY item",),
    (
        """WITH paid AS (SELECT *, price * n AS total FROM orders WHERE n > 0),
           by_user AS (SELECT user, total FROM paid)
           SELECT user, max(total), min(total) FROM by_user GROUP BY user""",
    ),
    ("SELECT user FROM orders UNION SELECT user FROM clicks",),
    ("SELECT tag, count(*) AS c FROM orders LATERAL VIEW OUTER explode(tags) t AS tag GROUP BY tag",),
    ("SELECT user, item, sum(n) FROM orders GROUP BY ALL",),
    ("SELECT upper(user) AS u, n % 2 = 0 AS even, avg(price) FROM orders GROUP BY 1, 2",),
    ("SELECT item AS i, sum(price) AS total FROM orders GROUP BY i ORDER BY total DESC, i LIMIT 2",),
    ("SELECT item, sum(price) AS total FROM orders GROUP BY item ORDER BY 2 DESC NULLS LAST, 1 LIMIT 2",),
    ("SELECT DISTINCT user, item FROM orders",),
    ("FROM orders |> AGGREGATE sum(price) s, count(*) GROUP BY user |> WHERE s > 1 |> ORDER BY s |> LIMIT 2",),
    ("SELECT date_trunc('DAY', ts) h, date_format(ts, 'E') d, sum(n) FROM orders GROUP BY date_trunc('DAY', ts), d",),
    ("SELECT user, item, grouping(user) g, grouping_id() gi, sum(n) FROM orders GROUP BY ROLLUP(user, item)",),
    ("SELECT user, item, n % 2 p, count(*), grouping_id() g FROM orders GROUP BY user, CUBE(item, n % 2)",),
    ("SELECT user, item, count(*), grouping(user) + 2 * grouping(item) FROM orders GROUP BY ROLLUP(user), CUBE(item)",),
    ("SELECT user, item, n, count(*) FROM orders GROUP BY CUBE((user, item), n)",),
    ("SELECT user, item, n, count(*) FROM orders GROUP BY user, GROUPING SETS ((item), (n), ())",),
    (
        """SELECT max_by(item, price) m, min(struct(price, item)).item mi, first(item), array_sort(collect_set(item)) s,
           percentile_approx(n, 0.5) FROM orders GROUP BY addr.city""",
    ),
    ("SELECT addr.city, addr.zip % 2 z, count(*) FROM orders GROUP BY addr.city, z HAVING z = 0",),
    (
        """SELECT o.item, sum(o.price - i.cost) AS margin, count(i.cost) FROM orders o LEFT JOIN items i USING (item)
           GROUP BY o.item HAVING margin IS NOT NULL ORDER BY margin""",
    ),
    ("SELECT sum(n) AS s, s + 1 AS t FROM orders GROUP BY user",),
    ("SELECT n AS item, count(*) FROM orders GROUP BY n",),
    ("SELECT n % 2 AS n, count(*) FROM orders GROUP BY n",),
    ("SELECT item, sum(n) AS n FROM orders GROUP BY item HAVING n > 5",),
    ("SELECT item, sum(n) AS n FROM orders GROUP BY item ORDER BY n",),
    ("SELECT item, avg(price) FROM orders GROUP BY item ORDER BY avg(price) DESC, count(*) LIMIT 2",),
    ("SELECT item, sum(n) AS price FROM orders GROUP BY item HAVING max(price) > 1",),
    ("SELECT count(*), count(user), sum(1), max(ts), avg(n), any_value(n) IS NULL, bool_or(n > 3) FROM orders",),
]

REFUSED = {
    "SELECT user FROM orders INTERSECT SELECT user FROM clicks": "LeftSemi join between two streaming.*watermark",
    "SELECT id, row_number() OVER (PARTITION BY user ORDER BY ts) r FROM orders QUALIFY r = 1": "outputMode",
    "SELECT id FROM orders ORDER BY id": "Sorting is not supported",
    "SELECT user, count(*) FROM orders": "MISSING_GROUP_BY",
    "SELECT id, nothing FROM orders": "UNRESOLVED_COLUMN",
    "SELECT id FROM orders WHERE user IN (SELECT user FROM clicks)": "STREAMING_QUERY",
    "SELECT id, sum(n) OVER (PARTITION BY user) FROM orders": "NON_TIME_WINDOW.*sum.*OVER.*aggregate",
    "SELECT id, sum(n) OVER w FROM orders WINDOW w AS (PARTITION BY user)": "NON_TIME_WINDOW.*sum.*OVER.*aggregate",
    "SELECT id FROM orders SORT BY id": "Sorting is not supported",
    "SELECT user FROM orders UNION ALL SELECT user FROM users": "Union between streaming and batch",
    "SELECT u.user FROM users u LEFT JOIN orders o ON u.user = o.user": "LeftOuter join with a streaming",
    "SELECT o.id FROM orders o JOIN clicks c ON o.n > 1": "join without equality predicate is not supported",
}
"""By Spark's streams, too, when they start."""
REFUSED_HERE = {"SELECT id FROM orders OFFSET 2": "Offset .*: a stream has no end"}
