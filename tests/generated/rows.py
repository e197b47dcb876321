"""Which methods that look at each row alone may follow, and what they make of the columns."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from tests.generated.expressions import quoted
from tests.generated.operations import Call, Func, Operation

_FILLED: tuple[Any, ...] = (0, -1.5, "filled", True)
_REPLACED: tuple[dict[Any, Any], ...] = ({0: 7, 1: None}, {"a": "b", "": "empty"}, {True: False})


class RowMaker:
    """What :class:`tests.generated.chains.Maker` knows of them."""

    chosen: random.Random
    columns: dict[str, str]
    unique: bool
    protected: tuple[str, ...]
    names: list[str]

    def _add(self, operation: Operation, columns: dict[str, str] | None = None) -> None:
        raise NotImplementedError

    def _new_names(self) -> list[str]:
        taken = {c.lower() for c in self.columns}
        return [n for n in self.names if n.lower() not in taken]

    def _subset(self) -> dict[str, Any]:
        if self.chosen.random() < 0.4:
            return {}
        names = self.chosen.sample(list(self.columns), self.chosen.randint(1, min(4, len(self.columns))))
        return {"subset": [quoted(n) for n in names]}

    def _fill(self) -> None:
        value = self.chosen.choice(_FILLED)
        methods = ("fillna", "na.fill")
        if self.chosen.random() < 0.2:
            names = self.chosen.sample(list(self.columns), 1)
            self._add(Call("fillna", ({quoted(n): value for n in names},)))
        else:
            self._add(Call(self.chosen.choice(methods), (value,), self._subset()))

    def _drop_missing(self) -> None:
        how: dict[str, Any] = self.chosen.choice([{}, {"how": "all"}, {"thresh": 2}, {"how": "any"}])
        self._add(Call(self.chosen.choice(["dropna", "na.drop"]), (), {**how, **self._subset()}))

    def _replace(self) -> None:
        values, subset = self.chosen.choice(_REPLACED), self._subset()
        if 0 in values:  # rows have their order by the ids, which stay
            names = subset.get("subset", [quoted(n) for n in self.columns])
            subset = {"subset": [n for n in names if n != quoted("id")]}
        if subset.get("subset", True):
            self._add(Call(self.chosen.choice(["replace", "na.replace"]), (values,), subset))

    def _place(self) -> None:
        self._add(self.chosen.choice([Call("repartition", (2,)), Call("coalesce", (1,)), Call("hint", ("rebalance",))]))

    def _sample(self) -> None:
        self._add(Call("sample", (self.chosen.choice([1.0, 1.0, 0.0]),)))

    def _explode(self) -> None:
        fit = [c for c, kind in self.columns.items() if kind.startswith(("array<", "map<string,"))]
        new = self._new_names()
        if not fit or len(new) < 3:
            return
        column, outer = self.chosen.choice(fit), self.chosen.choice(["", "_outer"])
        kind, names = self.columns[column], self.chosen.sample(new, 3)
        if kind.startswith("map"):
            made = {names[0]: "string", names[1]: kind[len("map<string,") : -1]}
            generator = Func(f"explode{outer}", column, tuple(made))
        elif self.chosen.random() < 0.5:
            made = {names[0]: "int", names[1]: kind[len("array<") : -1]}
            generator = Func(f"posexplode{outer}", column, tuple(made))
        else:
            made = {names[0]: kind[len("array<") : -1]}
            self._add(Call("withColumn", (names[0], Func(f"explode{outer}", column))), {**self.columns, **made})
            self.unique = False
            return
        self._add(Call("select", ("*", generator)), {**self.columns, **made})
        self.unique = False

    def _unpivot(self) -> None:
        alike = defaultdict(list)
        for name, kind in self.columns.items():
            if name != "id":
                alike[kind].append(name)
        fit = [kind for kind, names in alike.items() if len(names) > 1]
        new = self._new_names()
        if not fit or len(new) < 2:
            return
        kind = self.chosen.choice(fit)
        values = alike[kind][:3]
        ids = [c for c in self.columns if c not in values]
        if not ids:
            return
        names = self.chosen.sample(new, 2)
        args = ([quoted(c) for c in ids], [quoted(c) for c in values], *names)
        made = {names[0]: "string", names[1]: kind}
        self._add(Call(self.chosen.choice(["unpivot", "melt"]), args), {**{c: self.columns[c] for c in ids}, **made})
        self.unique = False
