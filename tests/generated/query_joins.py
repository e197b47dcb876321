"""Steps of generated queries with several joins of streams, one behind the other, and what may stand between them.

Spark has one watermark over the whole query and leaves out columns that nobody reads, event times among them, which
here is not so. Both are told in docs/methods.md, so these steps keep out of their way: streams have one delay, no step
leaves out a column, and an event time that a join does not go on with becomes an ordinary timestamp.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.generated.expressions import quoted
from tests.generated.query_operators import Operators
from tests.generated.query_steps import Columns

HOWS = (*["inner"] * 3, *["left"] * 2, *["right"] * 2, *["full"] * 2, *["left_semi"] * 2, "left_anti")
IN_SQL = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT OUTER JOIN",
    "full": "FULL JOIN",
    "left_semi": "LEFT SEMI JOIN",
    "left_anti": "LEFT ANTI JOIN",
}
_SAME = "greatest({one}, {other}) is not null"
"""A condition that reads both times, so that none is left out; of an inner join, as only Spark can tell it."""


@dataclass(frozen=True)
class Right:
    """A stream to join with; ``text`` makes it, with an event time where ``time`` has a name."""

    text: str
    key: str
    number: str
    time: str | None
    window: str | None = None


class Joins(Operators):
    """``times``: columns that are event times. ``taken``: streams that were joined already."""

    def __init__(self, chosen: random.Random, columns: Columns, times: list[str], delay: str, joined: int) -> None:
        super().__init__(chosen, columns)
        self.times, self.delay, self.joined = times, delay, joined

    # -- the right side --------------------------------------------------------------------------------------------

    def right(self) -> Right:
        """The other stream, the third, or one of them again with names of its own."""
        name, key, number, time = self.chosen.choice([("other()", "ok", "on_", "ot"), ("third()", "uk", "un", "ut")])
        text, known = name, {c.lower() for c in self.columns}
        if self.chosen.random() < 0.85:
            text += f".withWatermark({time!r}, {self.delay!r})"
        if key in known or time in known or self.chosen.random() < 0.15:
            new = [f"{c}{self.joined}{len(known)}" for c in (key, number, time)]
            text += f".select(F.col({key!r}).alias({new[0]!r}), F.col({number!r}).alias({new[1]!r}), "
            text += f"F.col({time!r}).alias({new[2]!r}))"
            key, number, time = new
        return self._prepared(Right(text, key, number, time if "withWatermark" in text else None), time)

    def _prepared(self, right: Right, time: str) -> Right:
        """Rows without duplicates, or counted by window; mostly as they are."""
        roll = self.chosen.random()
        if right.time is None or roll < 0.75:
            return right
        if roll < 0.88:
            text = f"{right.text}.dropDuplicates([{right.key!r}, {right.time!r}])"
            return Right(text, right.key, right.number, right.time)
        window = f"w_{time}"
        text = f"{right.text}.groupBy(F.window({time!r}, '1 hour').alias({window!r}), {right.key!r})"
        text += f".agg(F.count('*').cast('int').alias({right.number!r}))"
        return Right(text, right.key, right.number, None, window)

    def text_key(self) -> str:
        """Mostly ``k``, which finds most."""
        texts = self.of("string")
        return quoted("k" if "k" in texts and self.chosen.random() < 0.6 else self.chosen.choice(texts or ["k"]))

    # -- conditions, as texts of SQL -------------------------------------------------------------------------------

    def equal(self, right: Right) -> str:
        key = self.text_key()
        numbers = self.of("int")
        texts = [f"{key} = {right.key}"] * 5 + [f"{right.key} = {key}", f"upper({key}) = upper({right.key})"]
        texts += [f"{key} <=> {right.key}"]
        if numbers:
            n = quoted(self.chosen.choice(numbers))
            texts += [f"{n} = {right.number}", f"{key} = {right.key} AND {n} >= {right.number}"]
            texts += [f"{key} = {right.key} AND ({n} > {right.number} OR {right.number} IS NULL)"]
        return self.chosen.choice(texts)

    def near(self, right: Right) -> str:
        """A range of time; some bound one side alone."""
        t, other = quoted(self.chosen.choice(self.times or ["t"])), right.time
        before, behind = (
            self.chosen.choice(["0 minutes", "20 minutes", "1 hour", "1 hour", "3 hours"]) for _ in range(2)
        )
        return self.chosen.choice(
            [
                *[f"{other} BETWEEN {t} - interval {before} AND {t} + interval {behind}"] * 4,
                f"{other} >= {t} - interval {before} AND {other} <= {t} + interval {behind}",
                f"{t} > {other} - interval {before} AND {t} < {other} + interval {behind}",
                f"{other} >= {t} AND {other} <= {t} + interval {behind}",
                f"{other} <= {t} + interval {behind}",
                f"{other} >= {t} - interval {before}",
                f"{other} = {t}",
            ]
        )

    def condition_of(self, right: Right, how: str) -> str:
        equal, windows = self.equal(right), self.windows()
        if right.window is not None and windows:
            return f"{quoted(windows[0])} = {right.window} AND {equal}"
        if right.time is None or not self.times:
            return equal
        if how == "inner" and self.chosen.random() < 0.35:
            return f"{equal} AND {_SAME.format(one=quoted(self.times[0]), other=right.time)}"
        return f"{equal} AND {self.near(right)}"

    # -- joins -----------------------------------------------------------------------------------------------------

    def stream(self) -> str:
        """A join with another stream, in one of the ways that there are to write one."""
        right, how = self.right(), self.chosen.choice(HOWS)
        if how == "full":  # Spark's let keys that are null match
            keys = [c for c in (right.key, right.number, right.time) if c is not None]
            right = replace(right, text=f"{right.text}.dropna(subset={keys})")
        condition = self.condition_of(right, how)
        ways: list[Callable[[Right, str, str], str]] = [self._by_method] * 3 + [self._in_sql] * 2
        if right.time is not None and self.chosen.random() < 0.15:
            return self._by_names(right, how)
        return self.chosen.choice(ways)(right, how, condition)

    def _by_method(self, right: Right, how: str, condition: str) -> str:
        return f"df.join({right.text}, F.expr({condition!r}), {how!r}){self.going_on(right, how)}"

    def _in_sql(self, right: Right, how: str, condition: str) -> str:
        columns = "v.*" if how in ("left_semi", "left_anti") else "v.*, o.*"
        if self.chosen.random() < 0.3 and columns != "v.*":
            columns = "*"
        text = f"SELECT {columns} FROM v {IN_SQL[how]} o ON {condition}"
        if how == "inner" and self.chosen.random() < 0.3:
            text = f"SELECT {columns} FROM v, o WHERE {condition}"
        return f"sql(df, {text!r}, o={right.text}){self.going_on(right, how)}"

    def _by_names(self, right: Right, how: str) -> str:
        """By columns of one name, which comes once."""
        keys = [c for c in self.of("string") if "`" not in quoted(c)[1:-1]]
        key = self.chosen.choice(keys or ["k"])
        renamed = f"{right.text}.withColumnRenamed({right.key!r}, {key!r})"
        on = repr(key)
        if self.times and self.chosen.random() < 0.7:
            renamed += f".withColumnRenamed({right.time!r}, {self.times[0]!r})"
            on = f"[{key!r}, {self.times[0]!r}]"
            return f"df.join({renamed}, {on}, {how!r})"
        return f"df.join({renamed}, {on}, {how!r}){self.going_on(right, how)}"

    def going_on(self, right: Right, how: str) -> str:
        """Of two event times one stays, mostly."""
        if right.time is None or not self.times or how in ("left_semi", "left_anti") or self.chosen.random() < 0.08:
            return ""
        gone = right.time if self.chosen.random() < 0.6 else self.times[0]
        plain = f"{quoted(gone)} + interval '0' second"
        return f".withColumn({gone!r}, F.expr({plain!r}))"

    def itself(self) -> str:
        """What stands there joined with itself, under other names."""
        key, renamed = self.text_key(), f"i{self.joined}"
        columns = [f"F.col({key!r}).alias('{renamed}k')"]
        condition = f"{key} = {renamed}k"
        if self.times:
            t = quoted(self.times[0])
            columns += [f"F.col({t!r}).alias('{renamed}t')"]
            condition += f" AND {renamed}t BETWEEN {t} - interval 30 minutes AND {t} + interval 30 minutes"
        right = Right(
            f"df.select({', '.join(columns)})", f"{renamed}k", f"{renamed}k", f"{renamed}t" if self.times else None
        )
        how = self.chosen.choice(["inner", "left", "left_semi"])
        return self._by_method(right, how, condition)

    # -- between them ----------------------------------------------------------------------------------------------

    def static(self) -> str:
        """With a static table, between joins of streams."""
        key, new = self.text_key(), self.name()
        how = self.chosen.choice(["inner", "left", "left_semi", "left_anti"])
        table = "" if how in ("left_semi", "left_anti") else f", words.w AS {quoted(new)}"
        return self.chosen.choice(
            [
                f"df.join(static.select('pk').distinct(), F.expr({f'{key} = pk'!r}), {how!r})",
                f"df.join(static.select('pk').distinct(), F.expr({f'{key} = pk'!r}), {how!r})"
                + (".drop('pk')" if how in ("inner", "left") else ""),
                f"sql(df, {f'SELECT v.*{table} FROM v {IN_SQL[how]} words ON {key} = pk'!r})",
                f"df.where(F.col({key!r}).isin(static.select('pk')))",
            ]
        )

    def between(self) -> str:
        new = self.name()
        texts = [
            f"df.withColumn({new!r}, F.expr({self.expr()!r}))",
            f"df.select('*', F.expr({self.expr()!r}).alias({new!r}))",
            f"df.where({self.condition()!r})",
            f"sql(df, {f'SELECT *, {self.expr()} AS {quoted(new)} FROM v WHERE {self.condition()}'!r})",
            f"df.union(df.where({self.condition()!r}))",
            "df.alias('q')",
        ]
        return self.chosen.choice(texts)

    def once_each(self) -> str:
        """Without duplicates, by all that is read behind: which row of several stays is left open."""
        fit = [c for c, kind in self.columns.items() if kind != "timestamp" and not kind.startswith("map")]
        names = [*self.chosen.sample(fit, min(len(fit), self.chosen.choice([1, 2]))), *self.of("timestamp")]
        names += [c for c in ("k",) if c in fit and c not in names]
        within = "WithinWatermark" if self.times and self.chosen.random() < 0.3 else ""
        shown = ", ".join(repr(quoted(c)) for c in names)
        return f"df.dropDuplicates{within}({names}).select({shown})"

    def by_window(self) -> str:
        """Windows that end, with what a later join needs."""
        time = self.times[0] if self.times else "t"
        window = self.windows()[0] if self.windows() else None
        made = f"F.window({quoted(time)!r}, '1 hour')" if window is None else repr(quoted(window))
        keys = self.apart([made, *([repr(self.text_key())] if self.of("string") else [])])
        numbers = [quoted(c) for c in self.of("int")] or ["1"]
        n = self.chosen.choice(numbers)
        read = ", ".join(f"F.max({quoted(c)!r}).alias({c!r})" for c in self.of("timestamp") if c != time)
        more = f", {read}" if read else ""
        return f"df.groupBy({', '.join(keys)}).agg(F.count('*').alias('c'), F.expr({f'max({n})'!r}).alias('n'){more})"
