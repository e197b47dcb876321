"""``python -m spark_ckpt.testing.simulate --seeds 100000``: many seeds, or one of them verbosely (``--seed N``)."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence

from spark_ckpt.testing.simulation.run import Report, run_seed
from spark_ckpt.testing.simulation.scenario import SABOTAGES


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 if every seed went well; else 1, and the failing seed is printed."""
    options = _options(argv)
    if options.seed is not None:
        return _one(options.seed, options.sabotage)
    return _many(range(options.first, options.first + options.seeds), options.sabotage)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spark_ckpt.testing.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this seed only and print what happens")
    parser.add_argument("--sabotage", choices=SABOTAGES, default="", help="break this rule, to see it noticed")
    return parser.parse_args(argv)


def _one(seed: int, sabotage: str) -> int:
    trace: list[str] = []
    try:
        report = run_seed(seed, sabotage, trace)
    except Exception:  # noqa: BLE001 - whatever a seed finds is shown with its trace
        _say("\n".join(trace))
        traceback.print_exc()
        return 1
    _say("\n".join(trace))
    _say(str(report))
    return 0


def _many(seeds: range, sabotage: str) -> int:
    begin_s = shown_s = time.monotonic()
    reports: list[Report] = []
    for seed in seeds:
        try:
            reports.append(run_seed(seed, sabotage))
        except Exception:  # noqa: BLE001 - whatever a seed finds is reported with its number
            traceback.print_exc()
            _say(f"seed {seed} failed; replay it with: python -m spark_ckpt.testing.simulate --seed {seed}")
            return 1
        if time.monotonic() - shown_s > 5:
            shown_s = time.monotonic()
            _say(f"{len(reports)} of {len(seeds)} seeds, {len(reports) / (shown_s - begin_s):.0f} a second")
    _say(summary(reports, time.monotonic() - begin_s))
    return 0


def summary(reports: Sequence[Report], seconds: float) -> str:
    def total(name: str) -> int:
        return sum(getattr(r, name) for r in reports)

    return (
        f"{len(reports)} seeds in {seconds:.1f} s, no difference: {total('points')} points passed, "
        f"{total('starts')} starts, {total('restores')} restores, {total('checkpoints')} checkpoints, "
        f"{total('aborted')} aborted, {total('savepoints')} savepoints, {total('forks')} new jobs from one\n"
        + ", ".join(f"{what}: {n}" for what, n in sorted(sum((r.seen for r in reports), Counter()).items()))
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
