"""The peers that are no Spark: rows/s as the slope between two sizes, so that start-up does not count."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster import free_ports
from benchmarks.environments import BYTEWAX, FLINK
from benchmarks.measuring import CORES, end_process, read_answer, start_process
from benchmarks.memory import Sampler

_CHECKPOINT_S = 5
_WORK_S, _MOST_ROWS = 4.0, 80_000_000


@dataclass(frozen=True)
class Sizes:
    """``small`` and ``large`` rows, each run ``repeats`` times; the first run of a process warms its JVM."""

    keys: int
    small: int
    large: int
    repeats: int = 1

    def quick(self) -> Sizes:
        return Sizes(max(100, self.keys // 100), max(2000, self.small // 50), max(6000, self.large // 50))


def slope(sizes: Sizes, small_s: Sequence[float], large_s: Sequence[float]) -> float:
    """Rows/s between the two sizes, of the medians."""
    seconds = statistics.median(large_s) - statistics.median(small_s)
    return (sizes.large - sizes.small) / seconds if seconds > 0 else float("nan")


def growing(seconds: Callable[[int], float], small: int, quick: bool = False) -> dict[str, Any]:
    """Rows/s as the slope from ``small`` rows to as many as take some seconds longer. The first run warms the JVM."""
    seconds(small)
    small_s, large = seconds(small), 3 * small
    large_s = seconds(large)
    while large_s < small_s + _WORK_S and large < _MOST_ROWS and not quick:
        large *= 3
        large_s = seconds(large)
    sizes = Sizes(0, small, large)
    return {
        "rows": [small, large],
        "small_s": [small_s],
        "large_s": [large_s],
        "rows_per_s": slope(sizes, [small_s], [large_s]),
    }


def flink(module: str, sizes: Sizes, **options: Any) -> dict[str, Any]:
    """``flink_sql`` or ``flink_process``: warm-up, then small and large, in one JVM."""
    rows = [sizes.small, *[sizes.small, sizes.large] * sizes.repeats]
    request = {"keys": sizes.keys, "rows": rows, **options}
    process = start_process(FLINK, f"benchmarks.workers.{module}", json.dumps(request))
    try:
        with Sampler(process.pid) as sampler:
            seconds = read_answer(process)["seconds"][1:]
    finally:
        end_process(process)
    return _result(sizes, seconds[::2], seconds[1::2], sampler, options)


def bytewax(sizes: Sizes, combine: bool) -> dict[str, Any]:
    """Two processes with one worker each (two threads of one process would share Python's lock)."""
    small: list[float] = []
    large: list[float] = []
    peaks = []
    for _ in range(sizes.repeats):
        for rows, seconds in ((sizes.small, small), (sizes.large, large)):
            took, sampler = _bytewax_run(sizes.keys, rows, combine)
            seconds.append(took)
            peaks.append(sampler)
    return _result(sizes, small, large, peaks[-1], {"combine": combine})


def _bytewax_run(keys: int, rows: int, combine: bool) -> tuple[float, Sampler]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-bytewax-", ignore_cleanup_errors=True) as folder,
        ExitStack() as ends,
    ):
        _recovery_partitions(folder)
        request = {
            "keys": keys, "rows": rows, "combine": combine, "recovery": folder, "interval_s": _CHECKPOINT_S,
            "addresses": [f"127.0.0.1:{port}" for port in free_ports(CORES)],
        }  # fmt: skip
        processes = []
        for number in range(CORES):
            argument = json.dumps({**request, "id": number})
            processes.append(start_process(BYTEWAX, "benchmarks.workers.bytewax_flow", argument))
            ends.callback(end_process, processes[-1])
        sampler = ends.enter_context(Sampler(*(p.pid for p in processes)))
        seconds = max(read_answer(p)["seconds"] for p in processes)
    return seconds, sampler


def _recovery_partitions(folder: str) -> None:
    BYTEWAX.provide()
    command = [BYTEWAX.python, "-m", "bytewax.recovery", str(Path(folder)), str(CORES)]
    subprocess.run(command, env=BYTEWAX.variables(), check=True)


def _result(
    sizes: Sizes, small: Sequence[float], large: Sequence[float], sampler: Sampler, options: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "keys": sizes.keys,
        "rows": [sizes.small, sizes.large],
        "small_s": list(small),
        "large_s": list(large),
        "rows_per_s": slope(sizes, small, large),
        "memory": sampler.peak.to_json(),
        "options": dict(options),
    }
