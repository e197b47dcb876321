"""What names stand for in a session: functions, SQL variables and temporary views. Driver, classic Spark.

Spark keeps each kind in one Scala map, of which copies are cheap; what a name stands for is never copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Maps = tuple[Any, ...]


def names(spark: Any) -> Maps:
    """The session's own maps, a kind each."""
    state = spark._jsparkSession.sessionState()
    return (
        state.functionRegistry().functionBuilders(),
        state.tableFunctionRegistry().functionBuilders(),
        state.catalog().tempViews(),
        _private(state.catalog().globalTempViewManager(), "viewDefinitions"),
        _private(state.catalogManager().tempVariableManager(), "variables"),
    )


def copies(live: Maps) -> Maps:
    """What their names stand for now."""
    return tuple(of_kind.clone() for of_kind in live)


@contextmanager
def with_names(live: Maps, wanted: Maps, now: Maps) -> Iterator[None]:
    """With the names of ``wanted`` in ``live``, and those of ``now`` behind it."""
    changed = [kind for kind in zip(live, wanted, now, strict=True) if not kind[1].equals(kind[2])]
    try:
        for of_kind, then, today in changed:
            _exchange(of_kind, today, then)
        yield
    finally:
        for of_kind, then, today in changed:
            _exchange(of_kind, then, today)


def _exchange(live: Any, old: Any, new: Any) -> None:
    """Only what differs: another thread may name more meanwhile."""
    live.subtractAll(old.keySet().diff(new.keySet()))
    live.addAll(new.toSet().diff(old.toSet()))


def _private(owner: Any, name: str) -> Any:
    """Of which the JVM has no accessor."""
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
