"""Runs of two or more engines, taking turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import Run, SparkWorker, summary


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a name, the engine it runs on, and what it runs."""

    name: str
    role: str
    run: Run


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def take_turns(
    workers: Mapping[str, SparkWorker], sides: Sequence[Side], repeats: int, quick: bool
) -> dict[str, dict[str, Any]]:
    """Every side ``repeats`` times, A B A B; each side's figures by its name."""
    found: dict[str, list[dict[str, Any]]] = {s.name: [] for s in sides}
    for turn in range(1 if quick else repeats):
        # There and back: what drifts (heat, caches) does not favour the same side each time.
        for side in sides if turn % 2 == 0 else list(reversed(sides)):
            say(f"{side.name}, turn {turn + 1}")
            run = side.run.quick() if quick else side.run
            answer = workers[side.role].run(run)
            found[side.name].append({**summary(answer, run), "checkpoints": answer.get("checkpoints")})
    return {name: merged(turns) for name, turns in found.items()}


def merged(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The turns of one side as one: the median over all batches, rows/s as the median of the turns."""
    batch_ms = [ms for t in turns for ms in t["batch_ms"]]
    checkpoints = [c for t in turns for c in t["checkpoints"] or [] if c["outcome"] == "completed"]
    return {
        "rows_a_batch": round(sum(t["rows"] for t in turns) / len(batch_ms)),
        "batches": len(batch_ms),
        "batch_ms": batch_ms,
        "median_s": statistics.median(batch_ms) / 1000,
        "mean_s": statistics.mean(batch_ms) / 1000,
        "rows_per_s": statistics.median(t["rows_per_s"] for t in turns),
        "turns_rows_per_s": [t["rows_per_s"] for t in turns],
        "memory": {k: max(t["memory"][k] for t in turns) for k in turns[0]["memory"]},
        "checkpoints": len(checkpoints),
        "checkpoint_ms": [c["duration_ms"] for c in checkpoints],
    }


def compare(sides: Sequence[Side], repeats: int, quick: bool, **session: Any) -> dict[str, dict[str, Any]]:
    """``take_turns`` with a session for every engine named; they are gone afterwards."""
    with ExitStack() as stack:
        workers = {
            role: stack.enter_context(SparkWorker(role, **session)) for role in dict.fromkeys(s.role for s in sides)
        }
        return take_turns(workers, sides, repeats, quick)
