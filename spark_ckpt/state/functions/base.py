"""The contract between keyed state and what computes on it: one vectorised call for all touched keys of a subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_ckpt.state.keys.grouping import Segments, segments_by_index
from spark_ckpt.state.lsm.layout import FamilyLayout, StateLayout

if TYPE_CHECKING:
    from spark_ckpt.state.lsm.family import Family

LISTENER = "on_checkpoint_complete"
"""What a user's function is called by, if it is an object that has it, when a checkpoint is complete."""

NO_TIMEOUT = -1
"""In ``timeout_ms`` columns and arrays: the key has no time-out."""


@dataclass(frozen=True)
class CallContext:
    """Where and when a call happens. ``watermark_ms`` is None without ``withWatermark`` and 0 before the
    first, as in Spark; it is that of the batches before this one.

    ``subtask`` numbers the operator's tasks; which keys are in it changes with the number of shuffle partitions.

    ``processing_time_ms`` is the batch's, so a replayed batch sees the same value.

    ``families`` are those that the function declares, for the touched keys.
    """

    uid: str
    subtask: int
    checkpoint: int
    processing_time_ms: int
    watermark_ms: int | None
    families: Mapping[str, Family] = field(default_factory=dict)


@dataclass(frozen=True)
class Touched:
    """The keys one call concerns, one row each in ``keys`` and ``state``, in key-hash order.

    ``rows`` are the input rows (columns as ``combine`` returned them, key columns included) in arrival order;
    ``key_index[i]`` (int64) is the row of ``keys`` that input row *i* belongs to. ``state`` has the value columns,
    null where ``exists`` is False. ``timed_out`` marks keys that are called because their time-out passed, or
    a family's rows expired: they have state and no rows. ``timeout_ms`` is each key's time-out now or ``NO_TIMEOUT``.
    """

    keys: pa.Table
    rows: pa.Table
    key_index: np.ndarray
    state: pa.Table
    exists: np.ndarray
    timed_out: np.ndarray
    timeout_ms: np.ndarray
    grouped: Segments | None = None
    """``rows`` by key, where every key has some and whoever makes the call has grouped them already."""

    def by_key(self) -> tuple[Segments, np.ndarray]:
        """``rows`` by key, and the keys that have rows: a segment each."""
        if self.grouped is None:
            return segments_by_index(self.key_index, self.keys.num_rows)
        return self.grouped, np.arange(self.keys.num_rows)


@dataclass(frozen=True)
class Changed:
    """What a call did: ``output`` rows, and the new state, aligned with ``Touched.keys``.

    ``write`` marks the keys whose state row is stored anew, ``remove`` those whose state ends, with all their rows in
    families; a key in neither keeps what it had. ``timeout_ms`` counts where ``write`` is set.
    """

    output: pa.Table
    state: pa.Table
    write: np.ndarray
    remove: np.ndarray
    timeout_ms: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


def nothing_in(schema: pa.Schema) -> Mapping[str, pa.Scalar]:
    """Columns that begin with null."""
    return {f.name: pa.scalar(None, f.type) for f in schema}


class StateFunction(ABC):
    """A stateful computation over the keys of one subtask. Executor; must pickle; keeps nothing between calls."""

    key_schema: pa.Schema
    state_schema: pa.Schema
    """Value columns only; typed as they are stored."""
    kind: str = "operator"
    """What a uid that nobody gave begins with: the method that users call."""
    passes_rows: bool = False
    """What comes out are input rows with all their columns, so an event-time column stays one behind it."""
    output_schema: pa.Schema
    timeout: str = "NoTimeout"
    """``NoTimeout``, ``ProcessingTimeTimeout`` or ``EventTimeTimeout``."""
    families: Mapping[str, FamilyLayout] = {}
    """State with many rows a key, beside that of ``state_schema``; ``process`` finds it in ``ctx.families``. Where rows
    of a family can expire, ``timeout`` says by which clock, and the keys of those that have are ``timed_out``."""
    output_delay_ms: int = 0
    """By how much the event times of what comes out may be older than those of the rows that arrive."""
    output_time: str | None = None
    """The column of what comes out that is its event time. A row that is not behind the watermark fails the query."""
    late_by_key: bool = False
    """Whether :meth:`event_times` tells late rows, and not the event time of each."""

    @property
    def drops_late(self) -> bool:
        """Whether late rows are left out in front of it."""
        return self.timeout == "EventTimeTimeout"

    @property
    def ends_between_rows(self) -> bool:
        """Whether a key's state may end by the event time and begin anew with a later row of the key. Then the state
        behind many rows is known only if they come in the order of their event times."""
        return False

    @property
    def waits(self) -> bool:
        """Whether rows that it was given come out when the event time passes them, and not before."""
        return False

    keys_in: str | None = None
    """The family that has a row of each key; None: the keys' own table."""
    complete: bool = False
    """Output mode ``complete``: ``process`` puts out nothing, ``result`` all, at each checkpoint; no row is late."""

    @property
    def can_complete(self) -> bool:
        """Whether there is an output mode ``complete`` of it."""
        return False

    def in_mode(self, mode: str) -> StateFunction:
        """Driver, at a start: for a query whose output mode is ``append``, ``update`` or, where the function can,
        ``complete``."""
        return self

    def first_rows(self) -> pa.Table | None:
        """What keys have that are there before any row came, as ``combine`` makes it of rows; None: there are none."""
        return None

    def result(self, ctx: CallContext, every: Touched) -> pa.Table:
        """Of output mode ``complete``: what comes out of ``every`` key that there is. No key has rows."""
        raise NotImplementedError(type(self).__name__)

    def event_times(self, rows: pa.Table) -> pa.ChunkedArray:
        """What the watermark is compared with, of rows that ``combine`` made: microseconds (long)."""
        raise NotImplementedError(type(self).__name__)

    @property
    def layout(self) -> StateLayout:
        """The columns of its state, as they are kept and stored."""
        return StateLayout(self.key_schema, self.state_schema, self.timeout != "NoTimeout")

    @property
    def made_of(self) -> Mapping[str, str]:
        """How columns of ``state_schema`` are made, and which windows are among the keys, as a reader of a
        message would write it; recorded with checkpoints.

        A query that makes a column otherwise cannot go on from it. Nothing is said, and nothing compared, of what
        only the user's own code knows.
        """
        return {}

    @property
    def results(self) -> Mapping[str, Collection[str]]:
        """What comes out, as its user calls it -> the columns of ``state_schema`` that it is computed of. Recorded with
        checkpoints, so that one who changes how it is computed is asked what becomes of the state. None: not known.
        """
        return {}

    def begins(self, family: str = "") -> Mapping[str, pa.Scalar] | None:
        """What columns of a state table, its own or a family's, begin with in rows that are there already, so that a
        query may add them. What is not named cannot be added. Any may go, and become wider; None: the columns are what
        they were at first.
        """
        return None

    @property
    def packed_begins(self) -> Mapping[str, pa.Scalar]:
        """The same of columns that ``combine`` makes, in rows that were packed before them."""
        return {}

    def combine(self, rows: pa.Table) -> pa.Table:
        """Pack stage, before the shuffle: pre-aggregate rows of one epoch and any number of keys.

        ``rows`` has the key columns, ``KEY_HASH`` (int64), the input columns and, where late rows are dropped behind
        the shuffle, ``EVENT_TIME`` (int64). The result has the key columns, ``KEY_HASH``, ``EVENT_TIME`` if it was
        there, and whatever ``process`` wants to see. The default keeps every row.
        """
        return rows

    def recombine(self, parts: list[pa.Table]) -> pa.Table:
        """Pack stage: one table of what ``combine`` made of several portions of one epoch, in their order.

        Only if a task has more rows than it keeps at once. The default puts them behind each other.
        """
        return pa.concat_tables(parts)

    @property
    def listens(self) -> bool:
        """Whether :meth:`on_checkpoint_complete` is to be called."""
        return False

    def on_checkpoint_complete(self, checkpoint: int) -> None:  # noqa: B027 - may be left out
        """Executor: ``checkpoint`` is complete, and all sinks have committed what came out for it.

        Called in every task of the operator, ahead of the rows of the first batch behind the checkpoint; again if that
        batch is repeated. Only the newest is told: it stands for all before it. The last one of a run is told in the
        first batch of the next one that begins with it. What it raises is logged and fails nothing: the checkpoint is
        complete, and repeating the batch would only call it again.
        """

    @abstractmethod
    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        """One call for all touched keys. Deterministic functions make replays identical."""


class UserStateFunction(StateFunction):
    """One that calls the user's ``func``, which may listen itself."""

    func: Callable[..., Any]

    @property
    def ends_between_rows(self) -> bool:
        return self.timeout == "EventTimeTimeout"

    @property
    def listens(self) -> bool:
        return hasattr(self.func, LISTENER)

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        getattr(self.func, LISTENER)(checkpoint)
