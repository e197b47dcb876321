"""Steps of generated queries, as texts of Python: what may be tried behind a DataFrame of these columns.

Whether Spark takes a step is asked of Spark; these only say what is worth to try.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.generated.expressions import CONDITIONS, KEY_TYPES, OF_ANY, OF_TYPE, quoted

Columns = dict[str, str]
NAMES = ("x", "Y", "z.q", "Grüße", "x1", "x2", "x3", "x4", "x5")
SPANS = (("1 hour",), ("1 hour", "30 minutes"), ("40 minutes", "20 minutes", "5 minutes"), ("1 day",))
_KEYS = KEY_TYPES | {"array<int>", "struct<a:int,b:string>", "struct<start:timestamp,end:timestamp>"}
_STATISTICS = ("count", "sum", "min", "max", "avg")


class Steps:
    """Makes texts for a DataFrame of ``columns``."""

    def __init__(self, chosen: random.Random, columns: Columns) -> None:
        self.chosen, self.columns = chosen, columns

    # -- expressions -----------------------------------------------------------------------------------------------

    def of(self, *kinds: str) -> list[str]:
        return [c for c, kind in self.columns.items() if kind in kinds]

    def name(self) -> str:
        taken = {c.lower() for c in self.columns}
        free = [n for n in NAMES if n.lower() not in taken]
        return self.chosen.choice(free) if free else f"y{self.chosen.randint(0, 10**6)}"

    def expr(self) -> str:
        column, kind = self.chosen.choice(list(self.columns.items()))
        some = [t for t, made in (*OF_TYPE.get(kind, ()) * 2, *OF_ANY) if "interval" not in (made or "")]
        return self.chosen.choice([t for t in some if "interval" not in t] or ["{c}"]).format(c=quoted(column))

    def condition(self) -> str:
        column, kind = self.chosen.choice(list(self.columns.items()))
        some = (*CONDITIONS.get(kind, ()) * 3, "{c} is not null")
        return self.chosen.choice(some).format(c=quoted(column))

    def window(self, sql: bool = False) -> str | None:
        """Of the stream's time, or of earlier windows."""
        times = [*self.of("timestamp"), *self.windows()]
        if not times:
            return None
        time = self.chosen.choice(["t", *times] if "t" in times else times)
        if self.chosen.random() < 0.15 and time in self.of("timestamp"):
            gap = self.chosen.choice(["10 minutes", "45 minutes"])
            return f"session_window({quoted(time)}, '{gap}')" if sql else f"F.session_window({time!r}, {gap!r})"
        spans = self.chosen.choice(SPANS)
        start = (f", {spans[2]!r}") if len(spans) == 3 else ""
        if sql:
            return f"window({quoted(time)}, {', '.join(map(repr, spans[:2]))}{start})"
        return f"F.window({quoted(time)!r}, {', '.join(map(repr, spans[:2]))}{start})"

    def windows(self) -> list[str]:
        """Columns of them. Sessions that a row is by itself are no keys here, as their ends are their own."""
        return [c for c in self.of("struct<start:timestamp,end:timestamp>") if c != "session_window"]

    def key(self) -> str | None:
        fit = [c for c, kind in self.columns.items() if kind in _KEYS and c not in ("id", "session_window")]
        if not fit:
            return None
        one, two = self.chosen.choice(fit), self.chosen.choice(fit)
        window = self.window() or "F.lit(1)"
        texts = [repr(quoted(one))] * 6 + [
            f"F.struct({quoted(one)!r}, F.col({quoted(two)!r}).alias('other')).alias('both')",
            f"F.array({quoted(one)!r}).alias('one')",
            f"F.expr({f'{quoted(one)} is null'!r})",
            "F.lit('all').alias('fixed')",
            f"F.hour({window}.start).alias('hour')" if "window" in window else "F.lit(2)",
            f"F.struct({window}.alias('w'), {quoted(one)!r}).alias('both')",
        ]
        return self.chosen.choice(texts)

    def aggregate(self) -> str:
        column, kind = self.chosen.choice(list(self.columns.items()))
        c, name = repr(quoted(column)), self.name()
        some = ["F.count('*')", f"F.count({c})", f"F.count_if(F.col({c}).isNull())"]
        if kind in ("int", "decimal(9,2)", "double"):
            some += [f"F.{f}({c})" for f in ("sum", "avg", "min", "max", "stddev")]
            some += [
                f"F.sum({c}) / F.count('*')",
                f"F.expr({f'sum({quoted(column)}) filter (where {self.condition()})'!r})",
            ]
        if kind in ("string", "date", "timestamp", "bigint"):
            some += [f"F.max({c})", f"F.min({c})", f"F.approx_count_distinct({c})", f"F.array_sort(F.collect_set({c}))"]
        if kind in ("int", "string", "bigint"):
            some += [
                f"F.array_sort(F.collect_list({c}))",
                f"F.percentile_approx({c}, 0.5)" if kind != "string" else "F.lit(7)",
            ]
        if kind == "boolean":
            some += [f"F.bool_or({c})", f"F.bool_and({c})"]
        window = self.window()
        if window is not None and "session" not in window:
            some += [f"F.max({window}.end)", f"F.count_if(F.minute({window}.start) > 10)"]
        return f"{self.chosen.choice(some)}.alias({name!r})"

    def aggregates(self) -> str:
        texts = {
            text.rpartition(".alias(")[2]: text for text in (self.aggregate() for _ in range(self.chosen.randint(1, 3)))
        }
        return ", ".join(texts.values())

    # -- rows by themselves ---------------------------------------------------------------------------------------

    def projection(self) -> str:
        name, window = self.name(), self.window()
        texts = [
            f"df.withColumn({name!r}, F.expr({self.expr()!r}))",
            f"df.withColumns({{{name!r}: F.expr({self.expr()!r}), 'x9': F.lit(9)}})",
            f"df.select('*', F.expr({self.expr()!r}).alias({name!r}))",
            f"df.selectExpr('*', {f'{self.expr()} as {quoted(name)}'!r})",
            self._some(),
            self._gone(),
        ]
        if window is not None:
            texts += [f"df.select('*', {window}.end.alias({name!r}))"] * 2
            texts += [f"df.withColumn({name!r}, {window})"] * (2 if "session" not in window else 0)
            texts += [f"df.select('*', F.struct({window}.start.alias('b'), F.lit(1).alias('c')).alias({name!r}))"]
        keys = self.of("string", "int")
        if keys:
            key = quoted(self.chosen.choice(keys))
            failing = f"if({key} is null, raise_error('no key'), {key})"
            there = f"df.where({f'{key} is not null'!r})"
            texts += [f"{there}.withColumn({name!r}, F.create_map({key!r}, F.lit(1)))"]
            texts += [f"{there}.withColumn({name!r}, F.expr({failing!r}))", f"{there}.select('*', F.expr({failing!r}))"]
            texts += [f"df.withColumn({name!r}, F.create_map(F.coalesce({key!r}, F.lit('0')), F.lit(1)))"]
        return self.chosen.choice(texts)

    def _some(self) -> str:
        kept = [c for c in self.columns if c in ("id", "t", "k", "n") or self.chosen.random() < 0.5]
        return f"df.select({', '.join(repr(quoted(c)) for c in kept or list(self.columns))})"

    def _gone(self) -> str:
        free = [c for c in self.columns if c not in ("id", "t", "k")]
        return f"df.drop({self.chosen.choice(free)!r})" if free and len(self.columns) > 1 else "df.alias('q')"

    def filtering(self) -> str:
        condition, window = self.condition(), self.window()
        texts = [f"df.where({condition!r})"] * 3 + [
            f"df.filter(F.expr({condition!r}) | F.expr({self.condition()!r}))",
            f"df.where({f'{condition} and {self.condition()}'!r})",
            f"df.alias('q').where(F.col({'q.' + quoted(next(iter(self.columns)))!r}).isNotNull())",
        ]
        if window is not None and not {"window", "session_window"} & set(self.columns):
            # Spark puts the window in front of the columns, though one has its name.
            texts += [f"df.where({window}.start >= '2024-03-10 02:00:00')", f"df.where(F.hour({window}.end) % 2 == 0)"]
            texts += [f"df.where({f'{self.window(sql=True)}.end > timestamp_ntz2024-03-10 06:00:00'!r})"]
        return self.chosen.choice(texts)

    def missing(self) -> str:
        subset = self.chosen.sample(list(self.columns), min(2, len(self.columns)))
        names = [quoted(c) for c in subset]
        texts = [f"df.fillna(0, {names})", f"df.fillna('none', {names})", f"df.dropna(subset={names})"]
        texts += [
            f"df.na.drop(thresh=1, subset={names})",
            f"df.replace('a', 'b', {names})",
            f"df.replace(1, 7, {names})",
        ]
        return self.chosen.choice(texts)

    def static(self) -> str:
        """Joins and sub-queries with static tables."""
        key = self.chosen.choice(self.of("string") or list(self.columns))
        k, c = repr(quoted(key)), f"F.col({quoted(key)!r})"
        how = self.chosen.choice(["inner", "left", "left_semi", "left_anti"])
        texts = [
            f"df.join(static, F.col({k}) == F.col('pk'), {how!r})",
            f"df.join(static.withColumnRenamed('pk', {key!r}), {key!r}, {how!r})",
            f"df.join(F.broadcast(static), {c}.eqNullSafe(F.col('pk')) & (F.col('w') > 0), {how!r})",
            f"df.where({c}.isin(static.select('pk')))",
            f"df.where(~{c}.isin(static.where('pk is not null').select('pk')))",
            f"df.where(static.where(F.col('pk') == {c}.outer()).exists())",
            f"df.where(~static.where((F.col('pk') == {c}.outer()) & (F.col('w') > 1)).exists())",
            f"df.withColumn({self.name()!r}, static.agg(F.max('w')).scalar())",
            f"df.withColumn({self.name()!r}, static.where(F.col('pk') == {c}.outer()).agg(F.sum('w')).scalar())",
            f"df.withColumn({self.name()!r}, {c}.isin(static.select('pk')))",
            f"df.lateralJoin(static.where(F.col('pk') == {c}.outer()).select('word', 'w'), how={how!r})",
            "df.crossJoin(static.where('w = 7'))",
        ]
        ints = self.of("int")
        if ints:
            texts += [f"df.where(F.col({quoted(ints[0])!r}) <= static.agg(F.max('w')).scalar())"] * 2
        return self.chosen.choice(texts)

    def generators(self) -> str:
        names, new = self.of("array<int>", "map<string,double>", "array<string>"), self.name()
        if not names:
            return f"df.withColumn({new!r}, F.explode(F.array(F.lit(1), F.lit(2))))"
        c = self.chosen.choice(names)
        outer = self.chosen.choice(["", "_outer"])
        if self.columns[c].startswith("map"):
            return f"df.select('*', F.explode{outer}({quoted(c)!r}).alias('tag', 'weight'))"
        return self.chosen.choice(
            [
                f"df.withColumn({new!r}, F.explode{outer}({quoted(c)!r}))",
                f"df.select('*', F.posexplode{outer}({quoted(c)!r}).alias('at', {new!r}))",
                f"df.lateralJoin(spark.tvf.explode{outer}(F.col({quoted(c)!r}).outer()).toDF({new!r}))",
                f"df.lateralJoin(spark.tvf.posexplode(F.col({quoted(c)!r}).outer()).toDF('at', {new!r}), how='left')",
            ]
        )

    def placing(self) -> str:
        c = repr(quoted(self.chosen.choice(list(self.columns))))
        texts = [f"df.repartitionByRange(2, {c})", "df.repartition(2)", "df.coalesce(1)", "df.hint('rebalance')"]
        return self.chosen.choice([*texts, "df.transform(lambda some: some.alias('q'))"])

    def in_python(self) -> str:
        if self.columns.get("id") != "bigint":
            return self.placing()
        texts = ["df.mapInPandas(some_rows, df.schema)", "df.mapInArrow(some_batches, df.schema)"]
        return self.chosen.choice(
            ["df.select('id', 'k', 'n', 't').mapInPandas(some_rows, df.select('id', 'k', 'n', 't').schema)", texts[1]]
        )

    def unions(self) -> str:
        return self.chosen.choice(
            [
                f"df.union(df.where({self.condition()!r}))",
                f"df.unionByName(df.where({self.condition()!r}).withColumn({self.name()!r}, F.lit(1)), True)",
            ]
        )

    def batch_groups(self) -> str:
        """Groups of a batch, without state; the columns are others then."""
        key = self.chosen.choice(self.of("string") or ["k"])
        k = repr(quoted(key))
        texts = [
            f"df.groupBy({k}).applyInPandas(counted, COUNTED)",
            f"df.groupBy({k}).applyInArrow(counted_in_arrow, COUNTED)",
            f"df.groupBy(F.upper({k})).applyInPandas(counted, COUNTED)",
            f"df.groupBy({k}).cogroup(static.groupBy('pk')).applyInPandas(both, BOTH)",
            f"df.groupBy({k}).cogroup(other().groupBy('ok')).applyInPandas(both, BOTH)",
        ]
        return self.chosen.choice(texts)


Maker = Callable[[Steps], str]
ROW_STEPS: tuple[Maker, ...] = (
    *[Steps.projection] * 4,
    *[Steps.filtering] * 3,
    *[Steps.static] * 2,
    Steps.generators,
    Steps.placing,
    Steps.missing,
    Steps.unions,
    Steps.in_python,
)
