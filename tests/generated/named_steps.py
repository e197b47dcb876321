"""Statements of generated programs in which names matter: joins, aliases, projections, and columns of earlier frames.

Each is a text of Python that makes ``q`` or another frame. Whether Spark takes it is asked of Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.generated.expressions import quoted

NEW = ("k", "v", "K", "z", "x.y", "v2", "Größe", "a`b", "e", "f", "g")
ALIASES = ("x", "y", "a", "B")
HOW = ("inner", "inner", "left", "left", "left_semi", "left_anti")


class NamedSteps:
    """Makes statements over ``frames``, by their names in the program; ``q`` is the one that grows."""

    def __init__(self, chosen: random.Random, frames: Mapping[str, Any], aliases: list[str]) -> None:
        self.chosen, self.frames, self.aliases = chosen, frames, aliases

    # -- columns ---------------------------------------------------------------------------------------------------

    def columns(self) -> list[str]:
        return list(self.frames["q"].columns)

    def new(self) -> str:
        """Most of the time one that no column has."""
        low = {c.lower() for c in self.columns()}
        free = [n for n in NEW if n.lower() not in low]
        return self.chosen.choice(free if free and self.chosen.random() < 0.9 else NEW)

    def name(self) -> str:
        """One of ``q``, most of the time; another frame's now and then."""
        if self.chosen.random() < 0.85:
            return self.chosen.choice(self.columns())
        return self.chosen.choice([c for frame in self.frames.values() for c in frame.columns])

    def text(self, name: str) -> str:
        """A name as it may be written."""
        plain = name.isidentifier()
        shown = name if plain and self.chosen.random() < 0.8 else quoted(name)
        if self.aliases and self.chosen.random() < 0.35:
            shown = f"{self.chosen.choice(self.aliases)}.{shown}"
        return shown.upper() if self.chosen.random() < 0.05 else shown

    def of_frame(self, frame: str = "") -> str:
        """``a["k"]`` and its like."""
        frame = frame or self.chosen.choice(["q", *self.frames])
        name = self.chosen.choice(list(self.frames[frame].columns))
        if name.isidentifier() and name not in ("t", "u") and self.chosen.random() < 0.2:
            return f"{frame}.{name}"
        shown = name if self.chosen.random() < 0.8 and name.isidentifier() else quoted(name)
        return f"{frame}[{shown!r}]"

    def column(self) -> str:
        found = self.of_frame() if self.chosen.random() < 0.45 else f"F.col({self.text(self.name())!r})"
        return self.field(found) if "st'" in found or "st`'" in found else found

    def field(self, found: str) -> str:
        inside = self.chosen.choice(["k", "x"])
        made = [found, f"{found}.getField({inside!r})", f"{found}[{inside!r}]"]
        return self.chosen.choice([*made, found.replace("st'", f"st.{inside}'").replace("st`'", f"st`.{inside}'")])

    def named(self) -> str:
        """A column as ``select`` and ``groupBy`` take it: a text, too."""
        return repr(self.text(self.name())) if self.chosen.random() < 0.3 else self.column()

    def expression(self) -> str:
        one, two = self.column(), self.column()
        texts = [
            one,
            one,
            f"F.concat_ws('-', {one}.cast('string'), {two}.cast('string'))",
            f"F.coalesce({one}, {two})",
            f"{one} + 1",
            f"{one}.isNull()",
            f"F.struct({one}, {two}.alias('z'))",
            f"F.when({one} == {two}, {one})",
            f"F.expr({f'coalesce({self.text(self.name())}, {self.text(self.name())})'!r})",
            "F.lit(5)",
        ]
        return self.chosen.choice(texts)

    def called(self) -> str:
        """An expression, under a name of its own now and then."""
        roll = self.chosen.random()
        if roll < 0.35:
            return self.named()
        if roll < 0.7:
            return f"{self.expression()}.alias({self.new()!r})"
        return self.expression() if roll < 0.8 else self.named()

    def condition(self) -> str:
        one, two = self.column(), self.column()
        texts = [f"{one}.isNotNull()", f"{one}.cast('string') > 'b'", f"{one} == {two}", f"~({one} <=> {two})"]
        texts += [f"F.coalesce({one}.cast('string') != '4', F.lit(True))"] * 3
        return self.chosen.choice(texts).replace(f"{one} <=> {two}", f"{one}.eqNullSafe({two})")

    # -- statements ------------------------------------------------------------------------------------------------

    def kept(self) -> str:
        """A frame to take columns from later."""
        return f"p{self.chosen.randint(1, 2)} = q"

    def aliased(self) -> str:
        alias = self.chosen.choice(ALIASES)
        self.aliases.append(alias)
        return f"q = q.alias({alias!r})"

    def other(self) -> str:
        """The right side of a join."""
        frame = self.chosen.choice(["b", "b", "c", "c", "s", "s", "s", "d", *self.frames])
        if self.chosen.random() < 0.3:
            alias = self.chosen.choice(ALIASES)
            self.aliases.append(alias)
            return f"{frame}.alias({alias!r})"
        return frame

    def joined(self) -> str:
        other = self.other()
        frame = other.partition(".")[0]
        here, there = list(self.frames["q"].columns), list(self.frames[frame].columns)
        both = [c for c in here if c.lower() in {t.lower() for t in there}]
        how = f", {self.chosen.choice(HOW)!r}" if self.chosen.random() < 0.6 else ""
        if both and self.chosen.random() < 0.35:
            names = self.chosen.sample(both, self.chosen.randint(1, min(2, len(both))))
            return f"q = q.join({other}, {names if self.chosen.random() < 0.7 else names[0]!r}{how})"
        right = self.of_frame(frame) if self.chosen.random() < 0.7 else f"F.col({self.text(self.name())!r})"
        left = self.chosen.choice([self.of_frame("q"), self.column(), self.column()])
        condition = f"{left} == {right}" if self.chosen.random() < 0.8 else f"{right} == {left}"
        if self.chosen.random() < 0.2:
            condition = f"({condition}) & ({self.condition()})"
        return f"q = q.join({other}, {condition}{how})"

    def computed(self) -> str:
        name = self.chosen.choice([*self.columns(), self.new()])
        if self.chosen.random() < 0.2:
            other = self.chosen.choice([*self.columns(), self.new()])
            return f"q = q.withColumns({{{name!r}: {self.expression()}, {other!r}: {self.expression()}}})"
        return f"q = q.withColumn({name!r}, {self.expression()})"

    def renamed(self) -> str:
        name, new = self.name(), self.new()
        if self.chosen.random() < 0.3:
            return f"q = q.withColumnsRenamed({{{name!r}: {new!r}, {self.name()!r}: {self.new()!r}}})"
        return f"q = q.withColumnRenamed({name!r}, {new!r})"

    def dropped(self) -> str:
        if self.chosen.random() < 0.15:
            return f"q = q.drop({self.name()!r}, {self.name()!r})"
        return f"q = q.drop({repr(self.name()) if self.chosen.random() < 0.4 else self.column()})"

    def selected(self) -> str:
        roll = self.chosen.random()
        if roll < 0.15:
            star = self.chosen.choice([*(f"{alias}.*" for alias in self.aliases), "*"])
            more = ", ".join(self.called() for _ in range(self.chosen.randint(0, 2)))
            return f"q = q.select({star!r}{', ' + more if more else ''})"
        if roll < 0.22:
            pattern = self.chosen.choice(["`(k|v)`", "`.*`", "`[kK].*`", "`(?!k).*`"])
            return f"q = q.select({self.chosen.choice(['q', 'q', *self.frames])}.colRegex({pattern!r}))"
        if roll < 0.3:
            return f"q = q.select({self.chosen.choice(['q', *self.frames])}['*'])"
        if roll < 0.4:
            texts = ["*", self.text(self.name()), f"{self.text(self.name())} as {quoted(self.new())}"]
            return f"q = q.selectExpr({', '.join(map(repr, self.chosen.sample(texts, self.chosen.randint(1, 3))))})"
        several = [self.called() for _ in range(self.chosen.randint(1, 4))]
        if roll < 0.5:
            return f"q = q.select({', '.join(several)}, {self.exploded()})"
        return f"q = q.select({', '.join(several)})"

    def exploded(self) -> str:
        arrays = [c for c, kind in self.frames["q"].dtypes if kind.startswith("array")]
        made = f"F.col({quoted(arrays[0])!r})" if arrays else f"F.array({self.column()}, {self.column()})"
        return f"F.explode({made}){self.chosen.choice(['', '.alias(' + repr(self.new()) + ')'])}"

    def with_exploded(self) -> str:
        return f"q = q.withColumn({self.chosen.choice([*self.columns(), self.new()])!r}, {self.exploded()})"

    def all_renamed(self) -> str:
        names = [self.chosen.choice([c, c, *NEW]) for c in self.columns()]
        if len({n.lower() for n in names}) < len(names) and self.chosen.random() < 0.8:
            names = self.chosen.sample(
                [*"efghijlm", "k", "v", "x.y", "Größe", "a`b", "K"][: len(names) + 5], len(names)
            )
        return f"q = q.toDF({', '.join(map(repr, names))})"

    def filtered(self) -> str:
        roll = self.chosen.random()
        if roll < 0.2:
            text = f"coalesce(cast({self.text(self.name())} as string) <> '4', true)"
            return f"q = q.where({text!r})"
        return f"q = q[{self.condition()}]" if roll < 0.3 else f"q = q.where({self.condition()})"

    def filled(self) -> str:
        names = [self.text(self.name()) for _ in range(self.chosen.randint(1, 2))]
        texts = ["fillna(0)", f"fillna('none', {names})", f"fillna({{{names[0]!r}: 7}})", f"dropna(subset={names})"]
        return f"q = q.{self.chosen.choice([*texts, f'replace(3, 33, {names})', 'dropna(thresh=1)'])}"

    def united(self) -> str:
        other = self.chosen.choice(["q", "q", *self.frames])
        texts = [f"q.union({other})", f"q.unionByName({other}, True)", f"q.unionByName({other})"]
        return f"q = {self.chosen.choice(texts)}"

    def placed(self) -> str:
        return f"q = q.{self.chosen.choice([f'repartition(2, {self.column()})', 'coalesce(1)', 'hint(chr(114))'])}"

    def unduplicated(self) -> str:
        names = [self.text(self.name()) for _ in range(self.chosen.randint(1, 2))]
        return f"q = q.{self.chosen.choice([f'dropDuplicates({names})', 'distinct()', 'dropDuplicates()'])}"

    def key(self) -> str:
        """Of casts and sums it is what they are called by that counts."""
        made = ["", "", f"{self.column()}.cast('string')", f"{self.column()} + 1"]
        return self.chosen.choice(made) or self.named()

    def grouped(self) -> str:
        keys = ", ".join(self.key() for _ in range(self.chosen.randint(1, 2)))
        some = [f"F.count({self.column()})", f"F.max({self.column()})", f"F.min({self.column()}).alias('k')"]
        some += ["F.count('*').alias('n')", f"F.max({self.text(self.name())!r})"]
        made = ", ".join(self.chosen.sample(some, self.chosen.randint(1, 2)))
        roll = self.chosen.random()
        if roll < 0.2:
            return f"q = q.groupBy({keys}).{self.chosen.choice(['count()', f'max({self.name()!r})'])}"
        if roll < 0.3:
            return f"q = q.{self.chosen.choice(['cube', 'rollup'])}({keys}).agg({made})"
        if roll < 0.4:
            return f"q = q.groupBy({keys}).agg({{{self.text(self.name())!r}: 'max'}})"
        return f"q = q.groupBy({keys}).agg({made})"


Maker = Callable[[NamedSteps], str]
ROW_STEPS: tuple[Maker, ...] = (
    *[NamedSteps.joined] * 5,
    *[NamedSteps.selected] * 4,
    *[NamedSteps.computed] * 4,
    *[NamedSteps.dropped] * 3,
    *[NamedSteps.filtered] * 3,
    *[NamedSteps.renamed] * 2,
    *[NamedSteps.aliased] * 2,
    *[NamedSteps.kept] * 2,
    NamedSteps.all_renamed,
    NamedSteps.filled,
    NamedSteps.united,
    NamedSteps.placed,
    NamedSteps.with_exploded,
)
