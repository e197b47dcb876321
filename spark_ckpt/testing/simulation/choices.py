"""Every answer that a random generator could give, one after the other."""

from __future__ import annotations

from typing import Any


class Choices:
    """Stands in for the seed: answers are enumerated, depth first, by :meth:`advance` between two runs."""

    def __init__(self) -> None:
        self._path: list[tuple[int, int]] = []
        self._at = 0

    def pick(self, count: int) -> int:
        if count <= 1:
            return 0
        if self._at == len(self._path):
            self._path.append((0, count))
        self._at += 1
        return self._path[self._at - 1][0]

    def advance(self) -> bool:
        """Go on to the next answers; False if all were given."""
        self._at = 0
        while self._path:
            answer, count = self._path.pop()
            if answer + 1 < count:
                self._path.append((answer + 1, count))
                return True
        return False

    # What the simulation asks of a seed:

    def randint(self, low: int, high: int) -> int:
        return low + self.pick(high - low + 1)

    def choice(self, values: Any) -> Any:
        return values[self.pick(len(values))]

    def random(self) -> float:
        return 0.999  # what has a rate does not happen; what is searched has a count

    def shuffle(self, values: Any) -> None:
        """Order inside a batch means nothing: the simulation's seeds try that."""
