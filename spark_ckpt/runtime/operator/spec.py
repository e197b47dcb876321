"""What a keyed operator of a run is: made on the driver, pickled to the stages around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from spark_ckpt.jobs.spec import RunSpec, cache_dir
from spark_ckpt.names import family_table
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.ipc import nullable_schema
from spark_ckpt.state.keys.keys import is_fixed_width
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.stored_form import StoredForm
from spark_ckpt.storage.retry import Retry
from spark_ckpt.storage.run_cache import RunCache
from spark_ckpt.types import EVENT_TIME, stream_of_tag

_FEW_KEYS = 2


@dataclass(frozen=True)
class WatermarkSpec:
    """A ``withWatermark`` computed in this operator's pack stage: stream number, name, column, delay."""

    number: int
    name: str
    column: str
    delay_us: int


@dataclass(frozen=True)
class EventTime:
    """Spark's settings of event time: ``policy`` takes one watermark of several streams (``min`` or ``max``);
    ``late_a_batch_behind`` tells late rows by the watermark of the batch before.
    """

    policy: str = "min"
    late_a_batch_behind: bool = True


@dataclass(frozen=True)
class OperatorSpec:
    """One keyed operator of a run. ``inputs`` streams reach it, each of weight ``key_groups``, from ``sources``;
    ``watermark_sources`` are those of each of ``watermarks``.

    ``rows_schema``: key columns, inputs, ``KEY_HASH`` and, where late rows are dropped, ``EVENT_TIME``, which is the
    column ``event_time``, or the end of a window there: one, whatever streams the rows are of.
    """

    run: RunSpec
    uid: str
    inputs: int
    function: StateFunction
    rows_schema: pa.Schema
    watermarks: tuple[str, ...]
    open_watermarks: tuple[WatermarkSpec, ...]
    time: EventTime = EventTime()
    sources: tuple[str, ...] = ()
    watermark_sources: tuple[tuple[str, ...], ...] = ()
    behind_waiting: bool = False
    """Rows wait for the event time in an operator in front of it."""
    event_time: str | None = None
    behind_others: bool = False
    """Whatever time it is, another operator has seen it first."""

    @property
    def filters_late(self) -> bool:
        """As Spark: late rows are dropped only before an operator that goes by the event time."""
        timed = EVENT_TIME in self.rows_schema.names or (self.function.late_by_key and bool(self.watermarks))
        return self.function.drops_late and timed and not self.function.complete

    def watermark_of(self, tag: int) -> WatermarkSpec | None:
        """The watermark that rows with this tag passed and that is computed here; None if there is none."""
        number = stream_of_tag(tag)
        return next((w for w in self.open_watermarks if w.number == number), None)

    @cached_property
    def packed_schema(self) -> pa.Schema:
        """The rows in an envelope: what ``combine`` makes of the rows that reach the pack stage."""
        return nullable_schema(self.function.combine(self.rows_schema.empty_table()).schema)

    @property
    def hashed_again(self) -> tuple[str, ...]:
        """The key columns, where the operator hashes them a second time: of one or two numbers or times that costs less
        than the hash's way through the shuffle."""
        keys = self.function.key_schema
        cheap = len(keys) <= _FEW_KEYS and all(is_fixed_width(field.type) for field in keys)
        return tuple(keys.names) if cheap else ()

    @property
    def table_url(self) -> str:
        return self.url_of(self.uid)

    def url_of(self, table: str) -> str:
        return self.run.paths.state(table)

    @cached_property
    def layout(self) -> StateLayout:
        return self.function.layout

    @cached_property
    def family_tables(self) -> dict[str, str]:
        """The state table of each family: the operator's own state, which has no name, comes first."""
        return {"": self.uid, **{family: family_table(self.uid, family) for family in self.function.families}}

    def layout_of(self, family: str) -> StateLayout:
        return self.function.families[family].stored if family else self.layout

    def form_of(self, family: str) -> StoredForm:
        """How a state is written in its files."""
        told = self.run.topology.operators.get(self.family_tables[family], {})
        return StoredForm.told(self.layout_of(family), told, lambda: self.function.begins(family) or {})

    def since(self, family: str) -> dict[str, int]:
        """Columns of a state, or the family, that began at this Spark location -> in which generation."""
        if not family:
            return dict(self._recorded.get("since", {}))
        begun = self.run.topology.operators.get(self.family_tables[family], {}).get("since")
        return {} if begun is None else {family: begun}

    @property
    def _recorded(self) -> Mapping[str, Any]:
        return self.run.topology.operators.get(self.uid, {})

    def cache(self, table: str) -> RunCache:
        """This process's run cache for one of the operator's state tables; kept, so that open memory maps are."""
        config, url = self.run.config, self.url_of(table)
        folder = cache_dir(config)
        # Workers outlive queries: the next one may bring other settings, storage credentials among them.
        retry = Retry.of(config)
        key = (url, folder, config.cache_max_bytes, tuple(sorted(config.storage.items())), retry)
        if key not in _caches:
            _caches[key] = RunCache(url, folder, config.cache_max_bytes, config.storage_options(), retry)
        return _caches[key]


_caches: dict[tuple[Any, ...], RunCache] = {}
