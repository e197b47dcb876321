"""SQL over the views of ``test_sql``: by output mode, those of the test command and more."""

from __future__ import annotations

ON_TIME = "p.u BETWEEN o.t AND o.t + INTERVAL 3 MINUTES"
APPEND = (
    """SELECT o.k, v * 2 AS d, CASE WHEN o.v > 3 THEN 'a "big" -- one' ELSE 'FROM' END size, `k` u -- said so
       FROM orders AS o WHERE o.k IS DISTINCT FROM 'b' AND v BETWEEN 0 AND 7;""",
    f"SELECT o.k, o.v, p.w FROM orders o JOIN pays p ON o.k = p.k AND {ON_TIME} WHERE p.w > -3",
    """WITH known AS (SELECT k, length(label) n FROM labels), few AS (SELECT * FROM known WHERE n > 0)
       SELECT k, v + (SELECT max(n) FROM few) AS s, k NOT IN (SELECT * FROM VALUES ('a'), (NULL)) AS i,
       (SELECT count(*) FROM known WHERE known.k = o.k) AS c FROM orders o
       WHERE EXISTS (SELECT * FROM known x WHERE x.k = o.k) AND k NOT IN (SELECT k FROM few WHERE k > 'a') OR v > 5""",
    """FROM (TABLE orders) UNPIVOT (w FOR n IN (v)) u |> WHERE w > 2 |> SELECT k, n, w * 2 AS d
       |> EXTEND d + 1 AS e""",
    """WITH orders AS (SELECT k, v FROM orders WHERE v > 1), labels AS (SELECT k AS a, label FROM labels),
       q AS (WITH orders AS (SELECT k AS c FROM labels JOIN orders ON k = a) SELECT c FROM orders)
       SELECT orders.k, v, q.c, orders.k LIKE ANY ('a%', 'z%') AS l
       FROM orders, (SELECT DISTINCT a AS c FROM labels) q WHERE q.c = orders.k""",
    """WITH q(a, b) AS (SELECT k, length(label) FROM labels)
       SELECT o.k, e.x, r.*, q.b, w FROM orders o, LATERAL explode(o.xs) AS e(x) LEFT JOIN q ON q.b = e.x
       LEFT JOIN LATERAL (SELECT l.k, label m FROM labels l WHERE l.k = o.k ORDER BY 2 LIMIT 1) AS r(k2, m) ON m > 'a'
       CROSS JOIN LATERAL (SELECT e.x + o.v w) WHERE EXISTS (SELECT 1 FROM q WHERE q.a = o.k AND q.b > 2) OR w > 9""",
)
MORE_APPEND = (
    """WITH a AS (SELECT k FROM orders), u AS (WITH a AS (SELECT k, 1 AS n FROM a WHERE k IN (
       WITH a AS (SELECT k FROM labels) SELECT k FROM a)) SELECT * FROM a)
       SELECT u.k, n, label FROM u JOIN labels a USING (k)""",
    """WITH orders AS (WITH orders AS (SELECT k, v * 2 AS v FROM orders) SELECT k, v FROM orders) FROM orders
       |> WHERE v > 2""",
    """SELECT window.start, count(*) FROM orders WHERE k IS NOT NULL AND k IN (SELECT k FROM labels)
       AND 'y' <> (SELECT m FROM VALUES ('a', 'x'), (NULL, 'y'), (NULL, 'z') AS r(k, m) WHERE r.k <=> orders.k)
       GROUP BY window(t, '2 minutes')""",
    """SELECT k, v FROM (SELECT k, v FROM orders WHERE 'y' <> (
       SELECT m FROM VALUES ('a', 'x'), (NULL, 'y'), (NULL, 'z') AS r(k, m) WHERE r.k <=> orders.k)
       AND k IN (SELECT k FROM labels)) WHERE v > 0""",
    """WITH big AS (SELECT k, v FROM orders WHERE v > 2), l AS (SELECT * FROM labels WHERE k <> 'z')
       SELECT b.k, l.label, b.v FROM big b LEFT JOIN l ON b.k = l.k UNION ALL SELECT k, 'paid', w FROM pays""",
    """SELECT w.end, p.a, b + 1 AS c FROM (SELECT window(t, '4 minutes') w, k AS kk, v FROM orders)
       PIVOT (sum(v) FOR kk IN ('a', 'b', NULL AS none)) AS p WHERE p.a > -3""",
    """SELECT * FROM (SELECT t, k, v FROM orders) PIVOT (sum(v) s, avg(v) + 1, max(k)
       FOR (k, v) IN (('a', 2) AS x, ('b', 3), (NULL, 3)))""",
    """SELECT u.k, n, p, q FROM (SELECT k, v, nullif(v, 3) z, v + 1 y FROM orders) AS o
       UNPIVOT ((p, q) FOR n IN ((z, z) AS `an x`, (v, y))) AS u WHERE p < 5""",
    "SELECT k, w, n FROM (SELECT k, v, v + 1 v2 FROM orders) UNPIVOT (w FOR n IN (v AS k, v2 AS w))",
    """SELECT o.k, a FROM (SELECT * FROM (SELECT k, label FROM labels) PIVOT (max(label) FOR k IN ('a', 'b'))) l
       JOIN orders o ON l.a <> o.k""",
    "FROM orders |> SELECT window(t,'10 minutes') w, k, v\n|> PIVOT (max(k) FOR v IN (1, '2', 1+2))",
    "SELECT window.start, window.end AS e, k, sum(v) s FROM orders GROUP BY window(t, '10 minutes'), k",
    """SELECT e.*, o.k, e.x + y AS s, i FROM orders o LATERAL VIEW OUTER explode(IF(v > 0, xs, NULL)) e AS x
       LATERAL VIEW posexplode(array(e.x, v)) f AS i, y WHERE coalesce(e.x, 1) < 9""",
    """SELECT u.k, n, u.val FROM (SELECT k, v, IF(v > 3, v, NULL) AS w FROM orders)
       UNPIVOT INCLUDE NULLS (val FOR n IN (v a, w AS `b c`)) u JOIN labels l ON l.k = u.k WHERE val > 2 OR n > 'a'""",
    "SELECT k, v FROM orders |> AS q |> JOIN labels l ON l.k = q.k |> SELECT q.k, label |> DROP label",
    "SELECT o.k, x FROM (STREAM orders o JOIN labels l USING (k)) JOIN VALUES ('a', 3), ('b', 1) r(k, x) USING (k)",
    "WITH big AS (SELECT k, v FROM orders WHERE v > 1) FROM big |> WHERE v > 2 |> EXTEND v + 1 AS w |> WHERE w > big.v",
    "SELECT IDENTIFIER('k'), v FROM (FROM orders SELECT k, v) UNION ALL SELECT k, w FROM (TABLE pays)",
    "SELECT l.*, o.k ok, o.v FROM orders o LEFT JOIN labels l USING (k) WHERE l.k IS NULL OR v > 2",
    "SELECT k, o.v, l.k lk, label FROM labels l RIGHT JOIN orders o USING (k)",
    """SELECT a.k, b.w, c.label, r.n FROM orders a, pays b, labels c
       LEFT JOIN LATERAL (SELECT length(label) n FROM labels WHERE labels.k = c.k AND label > 'a') r
       WHERE a.k = b.k AND b.u BETWEEN a.t AND a.t + INTERVAL 3 MINUTES AND c.k = b.k AND v > -3""",
    "SELECT o.k, v, m FROM orders o LEFT JOIN LATERAL (SELECT label m FROM labels WHERE k <=> o.k) ON length(m) > v",
    "SELECT k, (SELECT m FROM VALUES ('a', 'x'), (NULL, 'y'), (NULL, 'z') r(k, m) WHERE r.k <=> o.k) m FROM orders o "
    "WHERE k IS NOT NULL",
    """SELECT o.k, q.* FROM orders o, LATERAL (WITH pays AS (SELECT * FROM labels WHERE k > 'a')
       SELECT label, k FROM pays WHERE pays.k = o.k) AS q(a, b)""",
    """SELECT o.k, y, z, to_json(struct(a.*)) FROM orders o, LATERAL (SELECT o.v * 2 AS y) a,
       LATERAL (SELECT a.y + 1 AS z) b WHERE z > 4""",
    """SELECT o.k, e.x, f.i FROM orders o LATERAL VIEW explode(xs) e AS x LATERAL VIEW posexplode(array(e.x)) f AS i, j
       WHERE EXISTS (SELECT 1 FROM labels o WHERE length(o.label) = e.x AND i = 0)""",
    "SELECT * EXCEPT (l.k, t, xs) FROM orders o JOIN labels l ON l.k = o.k",
    "WITH q(a, b) AS (SELECT k, v FROM orders), r(c) AS (SELECT a FROM q x WHERE b > 3) SELECT c, 'r' || C FROM r",
    "SELECT *, window.end - window.start AS l FROM orders WHERE v > 0 AND minute(window(t, '4 minutes').start) >= 0",
    "SELECT window.end e, k, grouping_id() FROM orders GROUP BY ROLLUP(window(t, '4 minutes', '2 minutes'), k)",
    "SELECT window, sum(v) FROM orders GROUP BY GROUPING SETS ((window(t, '4 minutes'), k), (window(t, '4 minutes')))",
    "SELECT DISTINCT window, k FROM (SELECT window(t, '4 minutes'), k FROM orders)",
    "SELECT DISTINCT t, k FROM orders",
    "SELECT * FROM labels JOIN (SELECT k, k AS other FROM orders) USING (k) UNION ALL SELECT k, 'b', 'c' FROM orders",
    "WITH l AS (SELECT '{t0}' AS k) SELECT o.k, v FROM orders o JOIN l ON o.k < l.k",
    """WITH RECURSIVE l AS (SELECT length(label) n FROM labels),
       r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 4)
       SELECT k, v, i FROM orders TABLESAMPLE (1000 ROWS) o JOIN r ON r.i = o.v WHERE i NOT IN (SELECT n FROM l)
       OR v IN (SELECT i FROM r WHERE i > 2)""",
    "SELECT k, v FROM orders o LEFT SEMI JOIN labels l ON o.k = l.k",
    "SELECT k, v FROM orders o LEFT ANTI JOIN labels l ON o.k = l.k WHERE v > 0",
    "SELECT window(t, '10 minutes', '5 minutes') AS w, count(1) c FROM orders GROUP BY 1",
    "SELECT session_window.end e, k, count(*) c FROM orders GROUP BY k, session_window(t, '5 minutes')",
    f"SELECT o.k ok, o.v, p.w FROM orders o LEFT OUTER JOIN pays AS p ON o.k = p.k AND {ON_TIME}",
    "SELECT * EXCEPT (xs, t), v + 1 AS w FROM orders",
    """SELECT a, t.pays, x, label FROM (SELECT k, v FROM orders) AS t(a, pays)
       JOIN (VALUES ('a', 1), ('c', 2)) AS l(a, x) USING (a)
       NATURAL LEFT JOIN (SELECT k AS a, label FROM labels) z WHERE pays > 0""",
    "SELECT * FROM orders AS o(a, b, t, c) NATURAL JOIN (SELECT k AS a FROM labels)",
    "SELECT (SELECT max(label) FROM labels), * FROM orders WHERE k NOT IN (SELECT k FROM labels WHERE label IS NULL)",
    "SELECT * FROM orders LATERAL VIEW explode(map('y', v, 'z', 2)) e",
    "SELECT e.*, o.k AS other, o.v FROM orders o LATERAL VIEW inline(array(struct(v a, k b))) e AS k, kk",
    "SELECT o.k, l.label, x FROM orders o, labels l LATERAL VIEW explode(xs) e AS x WHERE o.k = l.k AND v < e.x",
    """SELECT k, a, z FROM orders LATERAL VIEW json_tuple('{"a":1}', 'a') e AS a
       LATERAL VIEW stack(2, v, v + 1) g AS z WHERE z > (SELECT count(*) FROM labels)""",
    "SELECT k, x, col, c FROM orders, LATERAL explode(xs) AS e(x) JOIN LATERAL explode(xs) "
    "LEFT JOIN LATERAL posexplode(IF(v > 2, xs, NULL)) AS f(pos, c)",
    "SELECT k, v FROM orders WHERE (k, v) NOT IN (SELECT k, length(label) FROM labels) AND v IN (VALUES 1, 2, 3)",
    "SELECT k FROM orders WHERE k IN (WITH l AS (SELECT k FROM labels) SELECT k FROM l) OR v > (SELECT 6)",
    "SELECT o.k, v, l.label FROM orders o JOIN labels l ON l.k = o.k AND l.k IN (SELECT k FROM labels WHERE k < 'b') "
    "AND v > (SELECT 1)",
    """SELECT o.k, v FROM orders o, labels l WHERE l.k = o.k
       AND EXISTS (SELECT 1 FROM labels q WHERE q.k = l.k AND o.v BETWEEN 1 AND length(q.label))""",
    "SELECT k, q.d FROM (SELECT k, v * 2 AS d FROM orders) q WHERE d > (SELECT count(*) FROM labels s WHERE s.k = q.k)",
    f"""SELECT o.k, (SELECT max(label) FROM labels l WHERE l.k = o.k) m FROM orders o JOIN pays p ON o.k = p.k
        AND {ON_TIME} WHERE NOT EXISTS (SELECT 1 FROM labels l WHERE l.k = p.k AND length(l.label) > o.v)""",
)
COMPLETE = (
    """SELECT upper(k) AS uk, sum(v) / count(v), max(v) - min(v) AS spread, concat(upper(k), count(*)) FROM orders
       GROUP BY upper(k) HAVING spread > 2 AND count(*) > 1 ORDER BY spread DESC NULLS LAST, 1 LIMIT 3""",
    "SELECT l.label, sum(o.v) AS v FROM orders o, labels l WHERE o.k = l.k GROUP BY l.label HAVING sum(o.v) > -9",
    """SELECT date_format(window(t, '4 minutes').end, 'mm') m, struct(k, xs) s, sum(v), max(window(t, '4 minutes').end)
       FROM orders WHERE window(t, '4 minutes').end > '2000-01-01' GROUP BY 1, struct(k, xs)""",
    """SELECT k, q.v p, sum(o.v), grouping(o.q.v) FROM (SELECT k, v, struct(v % 2 AS v) q FROM orders) o
       GROUP BY CUBE(k, o.q.v) HAVING sum(v) > 0""",
)
MORE_COMPLETE = (
    "SELECT k, v % 2 p, count(*), grouping(k) FROM orders GROUP BY ROLLUP (k, v % 2)",
    """SELECT label, label_u, `-1_count(1)` FROM labels l JOIN (SELECT k AS kk, v FROM orders) o ON o.kk = l.k
       PIVOT (upper(max(o.kk)) u, count(*) FOR v IN (1 AS label, -1, 2 + 1)) AS p""",
    """SELECT p.k, p.one, m.label FROM (SELECT k, xs, v FROM orders) PIVOT (max(xs) FOR v IN (1 one, '2' AS two)) AS p
       JOIN labels m ON m.k = p.k ORDER BY p.k""",
    "FROM orders |> AGGREGATE sum(v) AS s, count(*) c GROUP BY k, v % 2 AS p |> WHERE c > 1 |> ORDER BY s DESC, k",
    """SELECT coalesce(k, 'none') kk, grouping(coalesce(k, 'none')) g, sum(v) FROM orders
       GROUP BY ROLLUP(coalesce(k, 'none')) ORDER BY g, kk""",
    """SELECT o.k, l.label, count(*) c, sum(v * (SELECT count(*) FROM labels z WHERE z.k = l.k)) s FROM orders o
       JOIN labels l ON o.k = l.k GROUP BY o.k, l.label
       HAVING EXISTS (SELECT 1 FROM labels q WHERE q.k = o.k) ORDER BY l.label DESC""",
    "SELECT l.k, count(*), count(l.label) FROM orders o LEFT JOIN labels l USING (k) GROUP BY l.k",
    """SELECT e.x, count(*), max(r.label) FROM orders o, LATERAL explode(xs) e(x) JOIN labels r ON length(r.label) = e.x
       GROUP BY e.x ORDER BY 1""",
    """SELECT e.x % 2 p, sum(e.x) s, max(o.v) FROM orders o LATERAL VIEW explode(xs) e AS x
       GROUP BY e.x % 2 HAVING sum(e.x) > 1 ORDER BY sum(e.x)""",
    "SELECT l.k, e.x, count(*) FROM orders o JOIN labels l ON o.k = l.k LATERAL VIEW explode(xs) e AS x "
    "GROUP BY l.k, e.x",
    """SELECT k, count(*) c, (SELECT max(label) FROM labels) m, sum(v * (SELECT count(*) FROM labels)) s,
       count(*) FILTER (WHERE k IN (SELECT k FROM labels)) f FROM orders o GROUP BY k
       HAVING c > (SELECT 1) AND EXISTS (SELECT 1 FROM labels l WHERE l.k = o.k)""",
    "SELECT k IN (SELECT k FROM labels) i, count(*) FROM orders GROUP BY 1",
    "SELECT v + (SELECT count(*) FROM labels) i, count(*) FROM orders GROUP BY v + (SELECT count(*) FROM labels)",
    "SELECT count(*), avg(v) a FROM orders",
    "SELECT DISTINCT k, v % 2 AS p FROM orders",
    "SELECT k FROM orders UNION SELECT k FROM pays",
    "SELECT window, k, count(*) c FROM orders GROUP BY CUBE(window(t, '4 minutes'), k)",
    "SELECT xs, window_time(window(t, '4 minutes')) w, sum(v) FROM orders GROUP BY xs, 2",
    "SELECT k, count(*) FILTER (WHERE v > 2) big FROM orders GROUP BY 1 ORDER BY 2 DESC, k",
    "SELECT k, sum(n) FROM (SELECT k, v % 3 AS n FROM orders) q GROUP BY k",
    "SELECT k, v, count(*) FROM orders GROUP BY k, v GROUPING SETS ((k, v), (k), ())",
    "SELECT k, v, count(*) FROM orders GROUP BY GROUPING SETS (k, (v, k))",
    "SELECT k, v > 3 AS high, max(xs[0]) FROM orders GROUP BY k, high WITH ROLLUP",
    "SELECT k FROM orders GROUP BY ALL",
    "SELECT v + 2 * v AS a, v - v % 2 AS b, abs(v + 2) c, k FROM orders GROUP BY k, v + 2, v, v - v, v % 2, v - v % 2",
    "select orders.k, sum(orders.v) as v from orders group by orders.k having sum(v) > 3 order by v desc",
    "SELECT /*+ BROADCAST(l) */ o.k, count(*) c FROM (SELECT * FROM orders WHERE v > 0) AS o JOIN labels l "
    "ON o.k = l.k GROUP BY o.k ORDER BY o.k",
)
