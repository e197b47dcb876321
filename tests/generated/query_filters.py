"""Steps of generated queries with filters behind what they may be moved in front of: watermarks, most of all.

What a filter in front of a watermark leaves out does not bring that on, and Spark's optimizer moves filters there from
behind groupings, joins, generators and unions. In the input the rows that these filters leave out are far ahead.
"""

from __future__ import annotations

from tests.generated.expressions import quoted
from tests.generated.query_operators import Operators

DELAY = "20 minutes"
OTHER = f"other().withWatermark('ot', '{DELAY}')"
_CONDITIONS = {
    "string": ("{c} <> ''", "{c} = 'a'", "{c} is not null", "{c} in ('a', 'b')", "not ({c} = '' or {c} is null)"),
    "int": ("{c} >= 0", "{c} > -1", "{c} is not null", "{c} = 1", "{c} in (0, 1, 7)"),
    "bigint": ("{c} > 0", "{c} is not null"),
}


class Filters(Operators):
    """What :class:`Operators` has, with filters of single columns."""

    def one(self) -> str:
        fit = [c for c, kind in self.columns.items() if kind in _CONDITIONS and c not in ("id", "oid")]
        column = self.chosen.choice(fit or ["k"])
        return self.chosen.choice(_CONDITIONS[self.columns.get(column, "string")]).format(c=quoted(column))

    def filtering(self) -> str:
        one, other = self.one(), self.one()
        both, either = f"{one} and {other}", f"{one} or {other}"
        name = next(iter(self.of("string", "int")), "k")
        texts = [f"df.where({one!r})"] * 4 + [f"df.where({both!r})"] * 2
        texts += [f"df.where({either!r})", f"df.where(F.expr({one!r}) & F.expr({other!r}))"]
        texts += [f"df.alias('q').where(F.col({f'q.{quoted(name)}'!r}).isNotNull())"]
        texts += [f"sql(df, {f'SELECT * FROM v WHERE {one}'!r})", f"df.dropna(subset=[{quoted(name)!r}])"]
        return self.chosen.choice(texts)

    def between(self) -> str:
        """What a filter may be moved through, or not."""
        strings, ints, new = self.of("string") or ["k"], self.of("int", "bigint") or ["n"], self.name()
        s, n = quoted(self.chosen.choice(strings)), quoted(self.chosen.choice(ints))
        texts = [
            f"df.withColumnRenamed({self.chosen.choice(strings)!r}, {new!r})",
            f"df.withColumn({new!r}, F.upper({s!r}))",
            f"df.withColumn({new!r}, F.expr({f'cast({n} + 0L as bigint)'!r}))",
            f"df.select('*', F.col({s!r}).alias({new!r}))",
            f"df.withColumn({new!r}, F.explode(F.array(F.lit(1), F.lit(-1))))",
            "df.alias('q')",
            "df.repartition(2)",
        ]
        return self.chosen.choice(texts)

    def together(self) -> str:
        """With tables and streams, without state."""
        strings = self.of("string") or ["k"]
        key, how = self.chosen.choice(strings), self.chosen.choice(["inner", "left", "left_semi"])
        table = "static.where('pk is not null').select('pk', 'w').distinct()"
        return self.chosen.choice(
            [
                f"df.join({table}, F.expr({f'{quoted(key)} = pk'!r}), {how!r})",
                f"df.join({table}.withColumnRenamed('pk', {key!r}), {key!r}, {how!r})",
                f"df.union(df.where({self.one()!r}))",
                f"df.select('k', 'n', 't').union({OTHER}.select('ok', 'on_', 'ot'))",
                f"df.select('k', 'n', 't').unionByName({OTHER}.toDF('id', 'k', 'n', 't').select('t', 'n', 'k'))",
            ]
        )

    def keyed(self) -> str:
        """One operator with state."""
        keys = [repr(quoted(c)) for c in self.of("string", "int") if self.chosen.random() < 0.6][:2]
        window = self.chosen.choice(["F.window('t', '1 hour')", "F.session_window('t', '30 minutes')"])
        keys = self.apart([window, *keys, *(["F.upper('k').alias('up')"] if self.chosen.random() < 0.2 else [])])
        counted = f"df.groupBy({', '.join(keys)}).agg(F.count('*').alias('c'), F.sum('n').alias('total'))"
        in_sql = "SELECT window(t, '1 hour') AS w, k, count(*) AS c FROM v GROUP BY window(t, '1 hour'), k"
        having = f"{in_sql} HAVING {self.chosen.choice(['k', 'k', 'count(*)'])} > {self.chosen.choice(['0', '1'])}"
        joined = self.joined() if self.chosen.random() < 0.6 else self.by_names()
        texts = [counted] * 3 + [joined] * 4 + [f"sql(df, {in_sql!r})", f"sql(df, {having!r})"]
        return self.chosen.choice([*texts, "df.dropDuplicates(['k', 't']).select('k', 't')"])

    def joined(self) -> str:
        equal = self.chosen.choice(["k = ok", "k = ok", "n = on_", "k <=> ok", "upper(k) = upper(ok)"])
        near = "ot between t - interval 1 hour and t + interval 1 hour"
        more = self.chosen.choice(["", "", " and n >= 0", " and on_ >= 0", " and n >= on_", " and k <> ''"])
        how = self.chosen.choice(["inner", "inner", "left", "right", "full", "left_semi"])
        return f"df.join({OTHER}, F.expr({f'{equal} and {near}{more}'!r}), {how!r})"

    def by_names(self) -> str:
        how = self.chosen.choice(["inner", "inner", "left", "right"])
        return f"df.join({OTHER}.toDF('oid', 'k', 'on_', 't'), ['k', 't'], {how!r})"
