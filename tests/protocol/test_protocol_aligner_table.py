"""The aligner's documented table is what its code does: read from the docstring, and followed cell by cell."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.protocol import aligner
from spark_ckpt.protocol.aligner import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    AlignerConfig,
    AlignerState,
    BatchInput,
    Declined,
    ForwardCancel,
    Hold,
    PendingBarrier,
    Process,
    Snapshot,
    plan,
)

EPOCH, TOTAL, PART = 5, 8, 4
ROWS = ("K < E", "cancelled", "weights incomplete", "weights complete", "held bytes over limit")
BELOW, CANCELLED, INCOMPLETE, COMPLETE, OVER_LIMIT = ROWS


def documented() -> dict[tuple[str, bool], str]:
    """(row, whether an older one is pending) -> what the table says."""
    lines = aligner.__doc__.splitlines()
    borders = [i for i, line in enumerate(lines) if re.fullmatch(r"=+(  =+)+", line)]
    starts = [m.start() for m in re.finditer("=+", lines[borders[0]])]
    table = {}
    for line in lines[borders[1] + 1 : borders[2]]:
        row, left, right = (line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True))
        table[row, False], table[row, True] = left, right.replace("then as on the left", left)
    return table


@dataclass
class Reading:
    """Follows the table, and nothing else."""

    epoch: int
    mode: str
    table: dict[tuple[str, bool], str] = field(default_factory=documented)
    pending: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    actions: list[object] = field(default_factory=list)
    cells: Counter[tuple[str, bool]] = field(default_factory=Counter)

    def checkpoints(self, weights: dict[int, int], cancelled: set[int], finished: dict[int, int]) -> None:
        for k in sorted({*weights, *cancelled}):
            arrived = weights.get(k, 0) + sum(w for label, w in finished.items() if label <= k)
            row = BELOW if k < self.epoch else CANCELLED if k in cancelled else COMPLETE
            if row == COMPLETE and arrived > TOTAL:
                raise ProtocolBugError("more than there is")
            self._follow(INCOMPLETE if row == COMPLETE and arrived < TOTAL else row, k)

    def over_limit(self) -> None:
        """The oldest is declined; those behind it are looked at anew."""
        rest, cancelled = self.pending, set(self.cancelled)
        self.pending, self.cancelled = [], []
        self._follow(OVER_LIMIT, rest[0])
        self.checkpoints(dict.fromkeys(rest[1:], 0), cancelled, {})

    def _follow(self, row: str, k: int) -> None:
        self.cells[row, bool(self.pending)] += 1
        for word in self.table[row, bool(self.pending)].split(", "):
            if word == "ForwardCancel(older)":
                self.actions += [ForwardCancel(j) for j in sorted({*self.pending, *self.cancelled})]
            elif word == "E := K + 1":
                self.epoch, self.pending, self.cancelled = k + 1, [], []
            elif word == "Process(K)":
                self.actions.append(Process(k if self.mode == EXACTLY_ONCE else None, self.epoch))
            elif word in ("Snapshot(K)", "ForwardCancel(K)", "Declined(K)"):
                self.actions.append((word.split("(")[0], k))
            elif word in ("pending", "cancelled"):
                getattr(self, word).append(k)
            else:
                assert word == "ignored", f"the table says {word!r}, which no code can be held to"


def plain(actions):
    """Actions as the table names them, without sizes and times."""
    kinds = (Snapshot, ForwardCancel, Declined)
    return [(type(a).__name__, a.checkpoint) if isinstance(a, kinds) else a for a in actions if not isinstance(a, Hold)]


def states():
    """Everything that may wait: any of three checkpoints pending, or cancelled behind a pending one."""
    for what in itertools.product(("", "pending", "cancelled"), repeat=3):
        ids = range(EPOCH, EPOCH + 3)
        pending = [k for k, w in zip(ids, what, strict=True) if w == "pending"]
        cancelled = [k for k, w in zip(ids, what, strict=True) if w == "cancelled"]
        if not cancelled or (pending and pending[0] < cancelled[0]):
            for finished in ({}, {5: 2}, {6: 4}):
                waiting = tuple(PendingBarrier(k, PART, 0, 0) for k in pending)
                yield AlignerState(EPOCH, waiting, tuple(finished.items()), tuple(cancelled))


def batches():
    yield {}
    for k in range(EPOCH - 1, EPOCH + 4):
        yield {"cancels": frozenset({k})}
        for weight in (2, PART, TOTAL):
            yield {"barriers": {k: (weight, 0)}}
    for label, weight in itertools.product((5, 6, 7), (2, PART)):
        yield {"finished": {label: weight}}
    for a, b in itertools.combinations(range(EPOCH - 1, EPOCH + 4), 2):
        yield {"barriers": {a: (PART, 0), b: (PART, 0)}}
        yield {"barriers": {a: (TOTAL, 0)}, "cancels": frozenset({b})}
        yield {"barriers": {b: (TOTAL, 0)}, "cancels": frozenset({a})}


def read(state, mode, batch) -> Reading:
    weights = {p.checkpoint: p.weight for p in state.pending}
    for k, (weight, _) in batch.get("barriers", {}).items():
        weights[k] = weights.get(k, 0) + weight
    finished = dict(state.finished)
    for label, weight in batch.get("finished", {}).items():
        finished[label] = finished.get(label, 0) + weight
    reading = Reading(state.epoch, mode)
    reading.checkpoints(weights, {*state.cancelled, *batch.get("cancels", ())}, finished)
    return reading


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_the_code_does_what_the_table_says_in_every_cell(mode):
    cells = Counter()
    for state, batch in itertools.product(states(), batches()):
        config, given = AlignerConfig(TOTAL, mode), BatchInput(1, **batch)
        try:
            reading = read(state, mode, batch)
        except ProtocolBugError:
            with pytest.raises(ProtocolBugError):
                plan(state, config, given)
            continue
        after, actions = plan(state, config, given)
        last = Process(after.epoch if mode == EXACTLY_ONCE else None, after.epoch)
        assert plain(actions) == [*plain(reading.actions), last], (state, batch)
        found = after.epoch, [p.checkpoint for p in after.pending], list(after.cancelled)
        assert found == (reading.epoch, reading.pending, reading.cancelled), (state, batch)
        cells += reading.cells
    can_be = {cell for cell, said in documented().items() if said != "cannot be"}
    assert set(cells) == {(row, older) for row, older in can_be if row != OVER_LIMIT}


def test_the_code_does_what_the_table_says_when_too_much_is_held_back():
    limit, declined = 3, 0
    for state in states():
        for held in itertools.product((0, 2, 9), repeat=3):
            rows = {EPOCH + 1 + i: size for i, size in enumerate(held)}
            reading = read(state, EXACTLY_ONCE, {})
            while reading.pending and sum(size for label, size in rows.items() if label > reading.epoch) > limit:
                assert reading.table[OVER_LIMIT, True] == "pending"  # only the oldest is declined at a time
                reading.over_limit()
            declined += reading.cells[OVER_LIMIT, False]
            after, actions = plan(
                state, AlignerConfig(TOTAL, max_buffered_bytes=limit), BatchInput(1, {}, bytes_by_label=rows)
            )
            assert plain(actions) == [*plain(reading.actions), Process(after.epoch, after.epoch)], (state, held)
            found = after.epoch, [p.checkpoint for p in after.pending], list(after.cancelled)
            assert found == (reading.epoch, reading.pending, reading.cancelled), (state, held)
    assert declined > 100


def test_the_table_has_no_row_that_nobody_looks_at():
    assert {row for row, _ in documented()} == set(ROWS)
