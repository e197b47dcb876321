"""The aligner against a model that knows every channel: a snapshot holds exactly the rows before its barriers."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_ckpt.protocol.aligner import (
    AlignerConfig,
    AlignerState,
    BatchInput,
    Declined,
    ForwardCancel,
    Hold,
    Process,
    Snapshot,
    plan,
)
from tests.how_many import some

Row = tuple[int, int]
"""(channel, number)"""


@dataclass
class Channel:
    weight: int
    rows: int = 0
    last_barrier: int = 0
    finished: bool = False
    before: dict[int, int] = field(default_factory=dict)
    """checkpoint -> how many of its rows come before that barrier"""


class AlignerMachine(RuleBasedStateMachine):
    channels = st.integers(0, 2)

    @initialize(limit=st.none() | st.integers(0, 3))
    def start(self, limit):
        self.lanes = [Channel(1), Channel(3), Channel(4)]
        self.config = AlignerConfig(8, max_buffered_bytes=limit)
        self.state = AlignerState.restored(0)
        self.triggered = [0]
        self.all_in_order = limit is None
        self.cancelled: set[int] = set()
        self.given_up: set[int] = set()
        self.done: list[Row] = []
        self.waiting: list[tuple[int, Row]] = []
        self.clear()

    def clear(self):
        self.barriers: dict[int, tuple[int, int]] = {}
        self.cancels: set[int] = set()
        self.finished: dict[int, int] = {}

    @rule(skip=st.integers(1, 3))
    def trigger(self, skip):
        self.triggered.append(self.triggered[-1] + skip)

    @rule(c=channels)
    def send_row(self, c):
        lane = self.lanes[c]
        if not lane.finished:
            self.waiting.append((lane.last_barrier + 1, (c, lane.rows)))
            lane.rows += 1

    @rule(c=channels, newest=st.booleans())
    def inject(self, c, newest=False):
        """The next of the checkpoints, or the newest: then the channel has left some out."""
        lane = self.lanes[c]
        ahead = [k for k in self.triggered if k > lane.last_barrier and k not in self.cancelled]
        if lane.finished or not ahead:
            return
        if newest and len(ahead) > 1:
            self.all_in_order = False
        k = lane.last_barrier = ahead[-1 if newest else 0]
        lane.before[k] = lane.rows
        self.barriers[k] = (self.barriers.get(k, (0, 0))[0] + lane.weight, 0)

    @precondition(lambda self: len(self.triggered) > 1)
    @rule(which=st.integers(1, 3))
    def cancel(self, which):
        k = self.triggered[max(1, len(self.triggered) - which)]
        self.cancelled.add(k)
        self.cancels.add(k)

    @rule()
    def finish(self):
        lane = self.lanes[2]
        if not lane.finished:
            lane.finished = True
            label = lane.last_barrier + 1
            self.finished[label] = self.finished.get(label, 0) + lane.weight

    @rule(now_ms=st.integers(0, 1000))
    def deliver(self, now_ms):
        sizes: dict[int, int] = {}
        for label, _ in self.waiting:
            sizes[label] = sizes.get(label, 0) + 1
        batch = BatchInput(now_ms, self.barriers, frozenset(self.cancels), self.finished, sizes)
        self.state, actions = plan(self.state, self.config, batch)
        self.clear()
        held = False
        for action in actions:
            held = held or isinstance(action, Hold)
            self.execute(action)
        assert held == bool(self.waiting)

    def execute(self, action):
        if isinstance(action, Process):
            self.done += [row for label, row in self.waiting if label <= action.up_to]
            self.waiting = [(label, row) for label, row in self.waiting if label > action.up_to]
        elif isinstance(action, Snapshot):
            assert action.checkpoint not in self.given_up
            assert action.checkpoint not in self.cancelled
            assert sorted(self.done) == sorted(self.before(action.checkpoint))
        elif isinstance(action, ForwardCancel):
            assert action.checkpoint not in self.given_up
            self.given_up.add(action.checkpoint)
            assert action.checkpoint in self.cancelled or not self.all_in_order
        elif isinstance(action, Declined):
            assert action.held_bytes > self.config.max_buffered_bytes
        elif isinstance(action, Hold):
            assert action.bytes == len(self.waiting)

    def before(self, k: int) -> list[Row]:
        ends = [lane.before.get(k, lane.rows if lane.finished else -1) for lane in self.lanes]
        assert -1 not in ends, f"snapshot {k} without the barrier of every channel"
        return [(c, n) for c, end in enumerate(ends) for n in range(end)]

    @invariant()
    def nothing_is_processed_twice_or_lost(self):
        if hasattr(self, "lanes"):
            everything = [*self.done, *(row for _, row in self.waiting)]
            assert sorted(everything) == [(c, n) for c, lane in enumerate(self.lanes) for n in range(lane.rows)]

    @invariant()
    def rows_wait_only_for_a_pending_checkpoint(self):
        if hasattr(self, "lanes") and not (self.barriers or self.cancels or self.finished):
            ahead = {label for label, _ in self.waiting if label > self.state.epoch}
            assert self.state.pending or not ahead

    def teardown(self):
        """Whatever happened, one more complete barrier brings everything through."""
        if hasattr(self, "lanes"):
            self.triggered.append(self.triggered[-1] + 1)
            for c in range(3):
                self.inject(c, True)
            self.config = AlignerConfig(8)
            self.deliver(0)
            assert not self.waiting


AlignerMachine.TestCase.settings = settings(max_examples=some(75), stateful_step_count=40, deadline=None)
TestAlignerMachine = AlignerMachine.TestCase
