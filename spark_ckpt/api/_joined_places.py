"""Rows behind a join while their columns move: whose each of them is stays known. Driver.

The rows have a name of its own for each column; what they are called for the user, streams, aliases and tables in front
of a join find them by their places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from spark_ckpt.api._joined_columns import GONE, JoinedColumns
from spark_ckpt.plan.attributes import same
from spark_ckpt.plan.columns import OWN, free
from spark_ckpt.plan.condition import Name

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

Places = TypeVar("Places", bound="JoinedPlaces")


@dataclass(frozen=True)
class JoinedPlaces(JoinedColumns):
    """What moves columns, takes some of them, or renames them."""

    @property
    def repeated(self) -> bool:
        """Whether a name is shown twice."""
        return len({name.lower() for name in self.shown}) < len(self.shown)

    @property
    def needed(self) -> bool:
        """Whether names alone do not say which of the columns that are shown is meant."""
        return self.repeated or any(self.aliases.values())

    def _own_names(self) -> list[str]:
        """Names that are shown once are those of the rows, too, and no other column has them, as SQL texts on Spark
        Connect are Spark's to read. A table's column has its own, as Spark knows it by that."""
        low, names = [name.lower() for name in self.shown], list(self.unique.columns)
        for at, name in enumerate(names):
            if at < len(low):
                names[at] = self.shown[at] if low.count(low[at]) == 1 else name
            elif name.lower() in low or (self.tables and not name.startswith(OWN)):
                names[at] = free(f"{OWN}{name}", [*names, *self.shown])
        return names

    def _renamed(self, names: list[str]) -> CkptDataFrame:
        made = self.unique._columns(self.unique.columns, names)
        return made._with(same(self.unique._attributes, range(len(names)), names))

    def by(self: Places, names: list[str]) -> Places:
        """For a join by ``names``: the rows have the first column that is called so by that name, as Spark takes it,
        and the same one but once."""
        low, known = [shown.lower() for shown in self.shown], self.unique._attributes.all
        taken = {at: self.shown[at] for at in (low.index(name.lower()) for name in names if name.lower() in low)}
        again = {at for at in range(len(low)) for key in taken if at != key and known[at] is known[key]}
        if again:
            kept = [at for at in range(len(self.unique.columns)) if at not in again]
            return self._of(kept, len(low) - len(again)).by(names)
        columns = [taken.get(at, name) for at, name in enumerate(self.unique.columns)]
        return self if columns == self.unique.columns else replace(self, unique=self._renamed(columns))

    def _of(self: Places, places: list[int], visible: int) -> Places:
        """Some of the columns, the first of which are shown."""
        unique = self.unique._columns([self.unique.columns[i] for i in places])
        moved = {old: new for new, old in enumerate(places)}
        names = [(*self.shown, *self.behind)[i] for i in places]
        shown, behind = tuple(names[:visible]), tuple(names[visible:])
        return replace(self, unique=unique, shown=shown, behind=behind)._moved(moved)

    def _moved(self: Places, places: dict[int, int]) -> Places:
        """With the columns that were at ``places`` elsewhere, and all others not there any more."""

        def found(name: Name) -> int | None:
            at = self.place(name)
            return at if at is None else places.get(at, GONE)

        aliases = {
            alias: tuple((name, places.get(at, GONE)) for name, at in found) for alias, found in self.aliases.items()
        }
        hides, renames = (frozenset(places[at] for at in some if at in places) for some in (self.hides, self.renames))
        return replace(self, place=found, aliases=aliases, hides=hides, renames=renames)
