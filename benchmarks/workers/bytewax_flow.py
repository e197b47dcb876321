"""Keyed count and sum on Bytewax with recovery. One process is one of the cluster's workers.

    python -m benchmarks.workers.bytewax_flow '{"keys": ..., "rows": ..., "combine": true, "recovery": "...",
                                                "addresses": [...], "id": 0}'

Rows come in batches of arrays. With ``combine`` a batch is first added up by key with numpy, which Bytewax's interface
allows and its tutorials do not do; without, each row is an item of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig
from bytewax.tracing import setup_tracing

from benchmarks.answers import say
from benchmarks.loads import PRIME

_BATCH = 65536
_PARTITIONS = 2


class Numbers(StatefulSourcePartition[Any, int]):
    """Every ``_PARTITIONS``-th block of rows; resumes at the block it was at."""

    def __init__(self, part: int, keys: int, rows: int, resume: int | None) -> None:
        self.keys, self.rows = keys, rows
        self.block = part if resume is None else resume

    def next_batch(self) -> Iterable[Any]:
        start = self.block * _BATCH
        if start >= self.rows:
            raise StopIteration
        self.block += _PARTITIONS
        rows = np.arange(start, min(start + _BATCH, self.rows))
        return [(rows * PRIME % self.keys, rows)]

    def snapshot(self) -> int:
        return self.block


class NumbersSource(FixedPartitionedSource[Any, int]):
    def __init__(self, keys: int, rows: int) -> None:
        self.keys, self.rows = keys, rows

    def list_parts(self) -> list[str]:
        return [str(n) for n in range(_PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        return Numbers(int(for_part), self.keys, self.rows, resume_state)


class _Discard(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass


class Discard(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Discard:
        return _Discard()


def combined(block: Any) -> list[tuple[str, tuple[int, int]]]:
    """A block's counts and sums by key."""
    keys, values = block
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    counts = np.diff(np.append(starts, len(keys)))
    totals = np.add.reduceat(values[order], starts)
    return [(str(k), (n, t)) for k, n, t in zip(found.tolist(), counts.tolist(), totals.tolist())]


def single(block: Any) -> list[tuple[str, tuple[int, int]]]:
    keys, values = block
    return [(str(k), (1, v)) for k, v in zip(keys.tolist(), values.tolist())]


def add(state: tuple[int, int] | None, value: tuple[int, int]) -> tuple[Any, Any]:
    new = value if state is None else (state[0] + value[0], state[1] + value[1])
    return new, new


def dataflow(keys: int, rows: int, combine: bool) -> Dataflow:
    flow = Dataflow("bench")
    blocks = op.input("numbers", flow, NumbersSource(keys, rows))
    pairs = op.flat_map("keyed", blocks, combined if combine else single)
    totals = op.stateful_map("totals", pairs, add)
    op.output("out", totals, Discard())
    return flow


def main() -> None:
    request = json.loads(sys.argv[1])
    setup_tracing(log_level="ERROR")
    from bytewax._bytewax import cluster_main  # the same entry as bytewax.run's, without its argument parsing

    recovery = RecoveryConfig(Path(request["recovery"]), backup_interval=timedelta(0))
    flow = dataflow(request["keys"], request["rows"], request["combine"])
    began = time.perf_counter()
    cluster_main(
        flow,
        request["addresses"],
        request["id"],
        epoch_interval=timedelta(seconds=request["interval_s"]),
        recovery_config=recovery,
        worker_count_per_proc=1,
    )
    say({"seconds": time.perf_counter() - began})


if __name__ == "__main__":
    main()
