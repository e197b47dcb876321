"""``cube``, ``rollup`` and ``groupingSets``: each row comes once for each set, with null for the keys that the set is
without, and the number of the set is one more key. Driver; Spark Connect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.connect import expressions as E

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import rewritten

Relation = Any
Expression = Any
NumberedSet = tuple[int, tuple[int, ...]]

NUMBER = "__ckpt_grouping_id"
_AGAIN = 1 << 48
"""What is added to the number of a set that is there already."""


@dataclass(frozen=True)
class Sets:
    """``texts`` are the keys, those that are alike have one; ``names`` are Spark's of them."""

    of: Translation
    rows: Rows
    texts: list[str]
    names: list[str]
    sets: list[NumberedSet]

    def rewritten(self, c: Any) -> Any:
        """``c`` with ``grouping`` and ``grouping_id`` computed of the number of the set."""
        return column(rewritten(c._expr, self._put))

    def _put(self, e: Expression) -> Expression | None:
        name = e._name.lower() if isinstance(e, E.UnresolvedFunction | E.CallFunction) else ""
        if name == "grouping_id":
            return F.col(NUMBER).bitwiseAND(F.lit(_AGAIN - 1))._expr
        return self._grouping(e._args[0]) if name == "grouping" else None

    def _grouping(self, key: Expression) -> Expression:
        """Spark's analysis has seen to it that it is one of the keys."""
        distinct, text = list(dict.fromkeys(self.texts)), text_of(self.of, self.rows, key)
        if text not in distinct:
            named = (t for t, name in zip(self.texts, self.names, strict=True) if self.of.same_name(name, _name(key)))
            text = next(named, "")
        if not text:
            raise InvalidInputError(f"grouping: expected one of the keys {self.names}, found {key}")
        place = len(distinct) - 1 - distinct.index(text)
        return F.shiftright(F.col(NUMBER), place).bitwiseAND(F.lit(1)).cast("tinyint")._expr


def sets_of(of: Translation, node: Relation, rows: Rows, keys: Sequence[Any], names: list[str]) -> Sets:
    """The sets of ``node``, whose keys are ``keys`` over ``rows``."""
    texts, places = [text_of(of, rows, key._expr) for key in keys], range(len(keys))
    if node._group_type == "cube":
        sets: Iterable[Sequence[int]] = [c for n in reversed(range(len(keys) + 1)) for c in combinations(places, n)]
    elif node._group_type == "rollup":
        sets = [range(n) for n in reversed(range(len(keys) + 1))]
    else:
        sets = [[texts.index(text_of(of, rows, key._expr)) for key in one] for one in node._grouping_sets]
    return Sets(of, rows, texts, names, _numbered(texts, sets))


def text_of(of: Translation, rows: Rows, e: Expression) -> str:
    """The same for what is the same key, however it is called."""
    place = place_of(of, rows, bare(e))
    return repr(bare(e)) if place is None else f"column {place}"


def _name(e: Expression) -> str:
    return str(getattr(e, "_unparsed_identifier", "")).strip("`")


def _numbered(keys: Sequence[str], sets: Iterable[Sequence[int]]) -> list[NumberedSet]:
    """``sets`` of places in ``keys`` with Spark's number of each: a bit for each key, the first one's is the highest, 1
    where the set is without it."""
    first = [keys.index(key) for key in keys]
    distinct, seen, found = sorted(set(first)), Counter[int](), []
    for places in sets:
        within = {first[place] for place in places}
        number = sum(1 << at for at, key in enumerate(reversed(distinct)) if key not in within)
        found.append((number + seen[number] * _AGAIN, tuple(i for i, key in enumerate(first) if key in within)))
        seen[number] += 1
    return found
