"""``groupBy(...).agg(...)`` as a keyed operator: what is computed in front of it, which function of ours keeps the
groups, and what comes out. Driver.

A window or a session among the keys is a time or two in the state, and is shown again behind the operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.names import free
from spark_ckpt.operators._carried_keys import carried, given_back, is_carried
from spark_ckpt.operators.aggregates import ALL_ROWS, Split
from spark_ckpt.operators.key_columns import Keys, arrow_columns, stored_name
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.operators.walks import Node, R, Walked, python_step
from spark_ckpt.operators.windows import Session, TimeWindow
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.windows import WindowSize
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import Rules, in_any_order
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate

_RULES = {"ansi": "spark.sql.ansi.enabled", "nan_for_one": "spark.sql.legacy.statisticalAggregate"}
"""Spark's settings for what aggregates give, by the names of ``Rules``."""


def rules_of(spark: Any) -> Rules:
    return Rules(**{name: spark.conf.get(conf).lower() == "true" for name, conf in _RULES.items()})


@dataclass(frozen=True)
class Windowed(Generic[R]):
    """Rows with the starts of their windows in ``key``. ``newest``: a row comes once, for the newest of its windows,
    and the others are added up of slices."""

    rows: R
    key: Column
    newest: bool = False


@dataclass(frozen=True)
class InSessions(Generic[R]):
    """Rows, with the two times of the session of each in the columns ``start`` and ``end``."""

    rows: R
    start: str
    end: str


@dataclass(frozen=True)
class Grouped(ABC, Generic[R]):
    """The node of an aggregation. ``keys`` are columns over the rows in front, of types ``kinds``; ``names`` are theirs
    in the state, and ``texts`` what each is computed by, a window or session by its time; empty: not known. ``window``
    or ``session``: the one among the keys, which is number ``place``."""

    node: Node
    keys: list[Column]
    kinds: list[T.DataType]
    names: list[str]
    texts: list[str]
    split: Split
    window: TimeWindow | None
    session: Session | None
    place: int
    taken: Sequence[str]
    """The names of the rows' columns."""

    @abstractmethod
    def rows(self) -> R:
        """The rows in front."""

    @abstractmethod
    def windowed(self, name: str, sliced: bool) -> Windowed[R]:
        """The same with their windows, called ``name`` in the state. ``sliced``: the newest is enough."""

    @abstractmethod
    def in_sessions(self, name: str) -> InSessions[R]:
        """The same with the session that each row makes by itself."""

    @abstractmethod
    def reads(self) -> Mapping[str, Column]:
        """What aggregates read, by the names that they have for it."""

    def read(self, of: Walked[R], rows: R, keys: Mapping[str, Column]) -> R:
        """What the operator gets of ``rows``."""
        return of.computed(rows, {**self.reads(), **keys})

    @property
    def specs(self) -> dict[str, AggSpec]:
        """Of keys alone, that the group is there is what is kept."""
        return self.split.specs or {free("rows_of_group", [*self.taken, *self.names]): agg.count()}

    def kept_keys(self) -> list[Column]:
        """As other types where no state table has their own."""
        return [carried(key, kind) for key, kind in zip(self.keys, self.kinds, strict=True)]


def key_names(shown: Sequence[str], taken: Sequence[Iterable[str]]) -> list[str]:
    """What each key is called in the state: as it is ``shown``, unless that means something else. ``taken``: of each
    key the names that do; none of a column as it is, and of others those of the rows' columns."""
    names: list[str] = []
    for name, columns in zip(shown, taken, strict=True):
        others = [*names, *columns]
        own = stored_name(name)
        names.append(own if own.lower() not in {t.lower() for t in others} else free(f"{own}_key", others))
    return names or [ALL_ROWS]


def kept(of: Walked[R], g: Grouped[R]) -> R:
    """The operator's keys, as they were, and its aggregates."""
    made = _kept(of, g) if g.session is None else _kept_sessions(of, g, g.session)
    kinds = dict(zip(g.names, g.kinds, strict=False))
    if not any(map(is_carried, kinds.values())):
        return made
    return of.computed(made, {n: given_back(of.column(made, n), kinds.get(n, T.NullType())) for n in made.schema.names})


def _kept(of: Walked[R], g: Grouped[R]) -> R:
    names, keys, windows = list(g.names), g.kept_keys() or [F.lit(0)], None
    if g.window is not None:
        windows = g.windowed(names[g.place], _in_slices(g.window, g.specs.values()))
        names[g.place], keys[g.place] = f"{names[g.place]}_start", windows.key
    rows = g.rows() if windows is None else windows.rows
    read = g.read(of, rows, dict(zip(names, keys, strict=True)))
    by = _keys(names, read, g.texts)
    function = _function(of, g, by, read, names[g.place], windows)
    mode = None if isinstance(function, WindowedAggregate) else "update"
    made = _operator(of, g, read, function, by, g.split.columns(), mode)
    if g.window is None:
        return made
    return of.of_operator(python_step(made, *g.window.shown(made.schema, names[g.place], g.names[g.place])))


def _kept_sessions(of: Walked[R], g: Grouped[R], session: Session) -> R:
    """Sessions are no key: the operator merges them. In update mode there are none, and without a watermark none
    ends."""
    found, name = g.in_sessions(g.names[g.place]), g.names[g.place]
    names = [n for i, n in enumerate(g.names) if i != g.place] or [ALL_ROWS]
    texts = [t for i, t in enumerate(g.texts) if i != g.place]
    keys = [k for i, k in enumerate(g.kept_keys()) if i != g.place] or [F.lit(0)]
    times = {time: of.column(found.rows, time) for time in (found.start, found.end)}
    read = g.read(of, found.rows, {**dict(zip(names, keys, strict=True)), **times})
    by, wanted = _keys(names, read, texts), g.split.columns()
    if g.texts[g.place]:
        by = replace(by, texts={**by.texts, name: g.texts[g.place]})
    function = SessionAggregate(
        arrow_schema(by.schema), arrow_columns(read.schema, wanted), g.specs,
        start=found.start, end=found.end, rules=rules_of(of.spark),
    )  # fmt: skip
    function.shown = g.split.shown
    ends = session.event_time and bool(read.lineage.watermarks)
    made = _operator(of, g, read, function, by, [*wanted, *times], "append" if ends else "complete")
    return of.of_operator(python_step(made, *session.shown(made.schema, found.start, found.end, name)))


def _operator(
    of: Walked[R],
    g: Grouped[R],
    read: R,
    function: AggregateFunction,
    by: Keys,
    wanted: Collection[str],
    mode: str | None,
) -> R:
    inputs = [f.name for f in read.schema.fields if f.name in wanted]
    # An update of a row that is there changes nothing of which keys there are.
    keys_alone = not g.split.specs
    return of.of_operator(keyed_rows(read, of.uid(g.node), function, inputs, by, mode, takes_updates=keys_alone))


def _keys(names: list[str], read: R, texts: list[str]) -> Keys:
    fields = [read.schema[name] for name in names]
    known = {name: text for name, text in zip(names, texts, strict=False) if text}
    return replace(Keys.of_columns(fields).noting(fields), texts=known)


def _in_slices(window: TimeWindow, specs: Iterable[AggSpec]) -> bool:
    """Whether windows can be added up by slices: of event times, they begin in step with their length, and the
    aggregates do not mind the order. A row comes once then."""
    size = window.size
    return window.event_time and size.most > 1 and size.size % size.slide == 0 and in_any_order(specs)


def _function(
    of: Walked[R], g: Grouped[R], keys: Keys, read: R, start: str, windows: Windowed[R] | None
) -> AggregateFunction:
    """``start``: what a window is called in the state, by its start, by which its state is found."""
    by, inputs = arrow_schema(keys.schema), arrow_columns(read.schema, g.split.columns())
    given: dict[str, Any] = {"rules": rules_of(of.spark)}
    timed = keys.event_time if read.lineage.watermarks else None
    made: AggregateFunction
    if g.window is not None and windows is not None:
        size: WindowSize = g.window.size
        given["windows"] = {start: size.text}
        if g.window.event_time:
            slide = size.slide if windows.newest else None
            made = WindowedAggregate(by, inputs, g.specs, window=start, size_us=size.size, slide_us=slide, **given)
        else:
            made = AggregateFunction(by, inputs, g.specs, **given)
    elif timed is not None:  # a watermark ends a key that is an event time
        made = WindowedAggregate(by, inputs, g.specs, window=timed, size_us=0, **given)
    else:
        made = AggregateFunction(by, inputs, g.specs, over_everything=not g.keys, **given)
    made.shown = g.split.shown
    return made
