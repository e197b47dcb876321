"""Which function of ours keeps the aggregates of groups: by keys, windows of time, or an event time. Driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.plan.key_columns import Keys
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.windows import WindowSize
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import Rules, in_any_order
from spark_ckpt.state.aggregates.windowed import WindowedAggregate

_RULES = {"ansi": "spark.sql.ansi.enabled", "nan_for_one": "spark.sql.legacy.statisticalAggregate"}
"""Spark's settings for what aggregates give, by the names of ``Rules``."""


def rules_of(spark: Any) -> Rules:
    return Rules(**{name: spark.conf.get(conf).lower() == "true" for name, conf in _RULES.items()})


@dataclass(frozen=True)
class WindowKey:
    """A window among the keys. ``name`` is that of its start, by which its state is found. ``newest``: a row comes
    once, for the newest of its windows, and the others are added up of slices."""

    name: str
    size: WindowSize
    event_time: bool
    newest: bool


@dataclass(frozen=True)
class Grouping:
    """``timed``: a watermark ends a key that is an event time. Without keys of the user's, all rows are one group."""

    keys: Keys
    window: WindowKey | None
    timed: bool
    over_everything: bool

    def function(
        self, inputs: pa.Schema, specs: Mapping[str, AggSpec], rules: Rules, shown: Mapping[str, Collection[str]]
    ) -> AggregateFunction:
        """What keeps ``specs``, which read ``inputs``. ``shown``: what comes out -> those it is computed of."""
        made = self._function(inputs, specs, rules)
        made.shown = shown
        return made

    def _function(self, inputs: pa.Schema, specs: Mapping[str, AggSpec], rules: Rules) -> AggregateFunction:
        by, window, time = arrow_schema(self.keys.schema), self.window, self.keys.event_time
        if window is not None:
            size, windows = window.size, {window.name: window.size.text}
            if not window.event_time:
                return AggregateFunction(by, inputs, specs, rules=rules, windows=windows)
            slide = size.slide if window.newest else None
            return WindowedAggregate(
                by, inputs, specs, rules=rules, windows=windows, window=window.name, size_us=size.size, slide_us=slide
            )
        if time is not None and self.timed:
            return WindowedAggregate(by, inputs, specs, rules=rules, window=time, size_us=0)
        return AggregateFunction(by, inputs, specs, rules=rules, over_everything=self.over_everything)


def in_slices(size: WindowSize, event_time: bool, specs: Iterable[AggSpec]) -> bool:
    """Whether windows can be added up by slices: of event times, they begin in step with their length, and the
    aggregates do not mind the order. A row comes once then."""
    return event_time and size.most > 1 and size.size % size.slide == 0 and in_any_order(specs)
