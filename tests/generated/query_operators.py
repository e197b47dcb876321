"""Steps of generated queries with state: aggregates, windows, de-duplication, joins of streams; and SQL texts."""

from __future__ import annotations

from tests.generated.expressions import quoted
from tests.generated.query_steps import SPANS, Steps


class Operators(Steps):
    """What :class:`Steps` has, and operators that keep state."""

    def keys(self, most: int = 2) -> list[str]:
        found = [self.key() for _ in range(self.chosen.randint(1, most))]
        return self.apart([k for k in found if k is not None])

    @staticmethod
    def apart(keys: list[str]) -> list[str]:
        """Without those whose name another has."""
        return list({key.rpartition("alias(")[2]: key for key in keys}.values())

    def grouped(self) -> str:
        """``groupBy`` and its like, whose windows never end: for output modes update and complete."""
        keys, roll = self.keys(), self.chosen.random()
        if roll < 0.12:
            return f"df.groupBy().agg({self.aggregates()})"
        if roll < 0.2:
            return f"df.agg({self.aggregates()})"
        if roll < 0.4:
            return self.sets([*keys, *self.keys(1)])
        if roll < 0.48:
            return f"df.groupBy({', '.join(keys)}).agg(F.lit(1).alias('one'))"
        if roll < 0.56:
            return f"df.groupBy({', '.join(keys)}).{self.chosen.choice(['count()', 'max()', 'sum()'])}"
        return f"df.groupBy({', '.join(keys)}).agg({self.aggregates()})"

    def sets(self, keys: list[str]) -> str:
        window = self.window()
        if window is not None and "session" not in window and self.chosen.random() < 0.4:
            keys = [window, *keys]
        keys = self.apart(keys)
        aggregates = self.aggregates()
        if self.chosen.random() < 0.3:
            aggregates += ", F.grouping_id().alias('gid')"
        how = self.chosen.choice(["cube", "rollup", "groupingSets"])
        if how != "groupingSets":
            return f"df.{how}({', '.join(keys)}).agg({aggregates})"
        wanted = [[k for k in keys if self.chosen.random() < 0.6] for _ in range(self.chosen.randint(1, 3))]
        sets = ", ".join(f"[{', '.join(one)}]" for one in {tuple(one): one for one in wanted}.values())
        return f"df.groupingSets([{sets}], {', '.join(keys)}).agg({aggregates})"

    def windowed(self) -> str:
        """Windows that end, with keys beside them."""
        times = self.of("timestamp") or ["t"]
        time = "t" if "t" in times else times[0]
        spans = self.chosen.choice(SPANS)
        start = f", {spans[2]!r}" if len(spans) == 3 else ""
        window = f"F.window({quoted(time)!r}, {', '.join(map(repr, spans[:2]))}{start})"
        windows = self.windows()
        if windows and self.chosen.random() < 0.7:
            w = quoted(windows[0])
            window = self.chosen.choice(
                [repr(w), f"F.window({w!r}, '2 hours')", f"F.window(F.window_time({w!r}), '2 hours')"]
            )
        elif self.chosen.random() < 0.25:
            gap = self.chosen.choice(
                ["'10 minutes'", "'45 minutes'", "F.expr(\"if(n > 0, '5 minutes', '30 minutes')\")"]
            )
            window = f"F.session_window({quoted(time)!r}, {gap})"
        elif self.chosen.random() < 0.1:
            window = repr(quoted(time))
        keys = self.apart([window, *(self.keys(1) if self.chosen.random() < 0.6 else [])])
        if self.chosen.random() < 0.15 and "session" not in window:
            return f"df.rollup({', '.join(keys)}).agg({self.aggregates()})"
        return f"df.groupBy({', '.join(keys)}).agg({self.aggregates()})"

    def without_duplicates(self) -> str:
        fit = [c for c, kind in self.columns.items() if not kind.startswith("map")]
        names = self.chosen.sample(fit, min(len(fit), self.chosen.choice([1, 2, 3])))
        if "t" in self.columns and self.chosen.random() < 0.7:
            names = list(dict.fromkeys([*names, "t"]))
        shown = [quoted(n) for n in names]
        if "ot" in self.columns:  # of two event times Spark sees those that are read behind, and here all are seen
            return f"df.select({shown}).{self.chosen.choice(['distinct', 'dropDuplicates'])}()"
        within = f"df.dropDuplicatesWithinWatermark({names}).select({shown})"
        return self.chosen.choice(
            [
                f"df.dropDuplicates({names}).select({shown})",
                *([within] * 2 if "t" in self.of("timestamp") else []),
                f"df.select({shown}).distinct()",
                f"df.select({shown}).dropDuplicates()",
            ]
        )

    def joined(self) -> str:
        """With the other stream, whose time is ``ot``."""
        key = self.chosen.choice(self.of("string") or ["k"])
        other = self.chosen.choice(
            ["other()", "other().withWatermark('ot', '30 minutes')"] + ["other().withWatermark('ot', '30 minutes')"] * 2
        )
        equal = f"(F.col({quoted(key)!r}) == F.col('ok'))"
        near = "(F.col('ot') >= F.col('t')) & (F.expr('ot <= t + interval 1 hour'))"
        more = self.chosen.choice(
            ["", "", " & (F.coalesce('on_', F.lit(0)) >= F.col('n'))", " & (F.col('oid') > F.col('id'))"]
        )
        how = self.chosen.choice(["inner", "inner", "left", "right", "full", "left_semi"])
        condition = self.chosen.choice(
            [f"{equal} & {near}", equal, f"{equal} & {near}{more if how == 'inner' else ''}"]
        )
        return f"df.join({other}, {condition}, {how!r})"

    def itself(self) -> str:
        where = self.condition()
        key = quoted(self.chosen.choice(self.of("string") or ["k"]))
        window = "F.window('t', '1 hour').alias('w')"
        counts = f"groupBy({window}, {key!r}).agg(F.count('*').alias"
        return f"df.{counts}('c1')).join(df.where({where!r}).{counts}('c2')), ['w', {key!r}])"

    def others(self) -> str:
        ints = self.of("int", "bigint")
        numbers = [quoted(c) for c in ints[:2]] or ["id"]
        texts = [f"df.describe({', '.join(map(repr, numbers))}).where(\"summary <> 'stddev'\")"]
        texts += [f"df.select({numbers!r}).summary('count', 'min', '50%', 'max')"]
        if "k" in self.columns:
            texts += ["df.select('k').subtract(static.select('pk'))", "df.select('k').intersect(static.select('pk'))"]
        return self.chosen.choice(texts)

    # -- SQL -------------------------------------------------------------------------------------------------------

    def sql_rows(self) -> str:
        c, new = quoted(self.chosen.choice(list(self.columns))), quoted(self.name())
        key = quoted(self.chosen.choice(self.of("string") or list(self.columns)))
        arrays, window = self.of("array<int>"), self.window(sql=True)
        texts = [
            f"SELECT *, {self.expr()} AS {new} FROM v WHERE {self.condition()}",
            f"SELECT q.* FROM (SELECT *, {self.expr()} {new} FROM v) AS q WHERE {c} IS NOT NULL OR {self.condition()}",
            f"SELECT * FROM v WHERE {key} IN (SELECT pk FROM words WHERE w > 0)",
            f"SELECT * FROM v WHERE NOT EXISTS (SELECT 1 FROM words WHERE pk = v.{key} AND w > 1)",
            f"SELECT *, (SELECT max(w) FROM words WHERE pk = {key}) AS {new} FROM v",
            f"SELECT v.*, word FROM v LEFT JOIN words ON {key} = pk AND w < 7 WHERE {self.condition()}",
            f"SELECT v.*, word FROM v, words WHERE {key} = pk",
            f"WITH q AS (SELECT * FROM v WHERE {self.condition()}) "
            f"SELECT q.*, CASE WHEN {self.condition()} THEN 1 ELSE 0 END AS {new} FROM q",
            f"SELECT * FROM v WHERE {self.condition()} UNION ALL SELECT * FROM v WHERE {self.condition()}",
            f"SELECT v.*, ww.word FROM v JOIN words ww ON v.{key} <=> ww.pk",
            f"FROM v |> WHERE {self.condition()} |> EXTEND {self.expr()} AS {new}",
            f"FROM v |> AS q |> WHERE q.{c} IS NOT NULL |> DROP {c}" if len(self.columns) > 1 else "TABLE v",
            f"SELECT * EXCEPT ({c}), {c} AS {new} FROM v WHERE {self.condition()}",
            f"SELECT v.*, m FROM v LEFT JOIN LATERAL (SELECT max(w) AS m FROM words WHERE pk = v.{key}) x ON true",
            f"SELECT a.*, b.word FROM v a NATURAL JOIN (SELECT pk AS {key}, word FROM words) b",
            f"SELECT /*+ BROADCAST(ww) */ v.* FROM v LEFT SEMI JOIN words ww ON v.{key} = ww.pk AND {self.condition()}",
        ]
        if arrays:
            a = quoted(arrays[0])
            texts += [f"SELECT v.*, {new} FROM v LATERAL VIEW OUTER explode({a}) e AS {new} WHERE {self.condition()}"]
            texts += [f"SELECT v.*, p, {new} FROM v LATERAL VIEW posexplode({a}) e AS p, {new}"]
            texts += [f"SELECT v.*, e.{new} FROM v, LATERAL explode({a}) AS e({new})"]
        if window is not None:
            texts += [f"SELECT *, {window} AS {new} FROM v WHERE {self.condition()}"]
            if not {"window", "session_window"} & set(self.columns):
                texts += [f"SELECT * FROM v WHERE {window}.start > '2024-03-10 01:00:00'"]
        return f"sql(df, {self.chosen.choice(texts)!r})"

    def sql_groups(self) -> str:
        keys = [c for c, kind in self.columns.items() if kind in ("string", "boolean", "int", "date") and c != "id"]
        key, other = (quoted(self.chosen.choice(keys or ["k"])) for _ in range(2))
        numbers = [quoted(c) for c in self.of("int", "decimal(9,2)")] or ["1"]
        n = self.chosen.choice(numbers)
        some = ["count(*) AS c", f"sum({n}) AS total", f"max({n})", f"count({other}) AS d"]
        made = ", ".join(self.chosen.sample(some, 2))
        where = self.chosen.choice(["", f"WHERE {self.condition()} ", "WHERE k IN (SELECT pk FROM words) "])
        window = self.window(sql=True) or "1"
        texts = [
            f"SELECT {key}, {made} FROM v {where}GROUP BY {key}",
            f"SELECT {key} AS a, {made} FROM v {where}GROUP BY a HAVING count(*) > 1",
            f"SELECT upper({key}) AS a, {made} FROM v {where}GROUP BY ALL",
            f"SELECT {key}, {other} AS o, {made} FROM v {where}GROUP BY 1, 2",
            f"SELECT {key}, {other} AS o, {made} FROM v {where}GROUP BY CUBE ({key}, {other})",
            f"SELECT {key}, {other} AS o, {made} FROM v {where}GROUP BY {key}, {other} WITH ROLLUP",
            f"SELECT {key}, grouping({key}) AS g, {made} FROM v {where}GROUP BY GROUPING SETS (({key}), ())",
            f"SELECT {made} FROM v {where}",
            f"SELECT {window} AS w, {key}, {made} FROM v {where}GROUP BY {window}, {key}",
            f"SELECT {window}.start AS b, {made} FROM v {where}GROUP BY {window}",
            f"SELECT DISTINCT {key}, {other} AS o FROM v {where}",
            f"SELECT {key} FROM v EXCEPT SELECT pk FROM words",
            f"SELECT {key} FROM v INTERSECT SELECT pk FROM words",
            f"FROM v |> AGGREGATE {made} GROUP BY {key}",
            f"SELECT {key}, count(*) FILTER (WHERE {self.condition()}) AS f, {made} FROM v GROUP BY {key}",
            f"SELECT * FROM (SELECT {key} AS a, n FROM v {where}) PIVOT (count(*) c, max(n) m FOR n IN (1, 2, 7))",
            f"SELECT word, {made} FROM v JOIN words ON v.{key} = words.pk {where}GROUP BY word",
            f"SELECT c, count(*) AS cc FROM (SELECT {key} AS c FROM v {where}) GROUP BY c ORDER BY c LIMIT 3",
        ]
        return f"sql(df, {self.chosen.choice(texts)!r})"
