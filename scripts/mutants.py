"""``make mutants``: break one rule of ``spark_ckpt/protocol`` at a time and see that a fast test notices.

Each mutation replaces a text that must occur exactly once, in a copy of the package, where the unit tests of the
protocol run and, if they pass, the simulation. A mutation that survives is a rule that no test holds. No Spark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
UNIT = (
    "source",
    "source_time",
    "drain",
    "coordinator",
    "aligner",
    "commit",
    "startup",
    "scenarios",
    "checkpoint_state",
    "weights",
    "aligner_table",
)
SEEDS = 300


@dataclass(frozen=True)
class Outcome:
    mutation: Mutation
    noticed_by: str | None


def main() -> int:
    """Exit code 0 if none survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose file or rule contains this")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only in f"{m.file} {m.rule}"]
    stale = [m for m in chosen if _source(m).count(m.old) != 1]
    for m in stale:
        sys.stdout.write(f"not found exactly once in {m.file}: {m.old!r}\n")
    if stale:
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [_shown(o) for o in pool.map(_try, chosen)]
    survived = [o for o in outcomes if o.noticed_by is None]
    sys.stdout.write(f"{len(outcomes)} mutations, {len(survived)} survived\n")
    return 1 if survived else 0


def _source(mutation: Mutation) -> str:
    return (ROOT / "spark_ckpt/protocol" / mutation.file).read_text()


def _try(mutation: Mutation) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / "spark_ckpt", copy / "spark_ckpt", ignore=ignored)
        shutil.copytree(ROOT / "tests/protocol", copy / "tests/protocol", ignore=ignored)
        changed = _source(mutation).replace(mutation.old, mutation.new)
        (copy / "spark_ckpt/protocol" / mutation.file).write_text(changed)
        tests = [f"tests/protocol/test_protocol_{name}.py" for name in UNIT]
        found = [t for t in tests if (copy / t).exists()]
        pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *found]
        if _fails(copy, pytest):
            return Outcome(mutation, "unit tests")
        if _fails(copy, ["-m", "spark_ckpt.testing.simulate", "--seeds", str(SEEDS)]):
            return Outcome(mutation, "simulation")
        return Outcome(mutation, None)


def _fails(folder: Path, arguments: list[str]) -> bool:
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode != 0


def _shown(outcome: Outcome) -> Outcome:
    m = outcome.mutation
    sys.stdout.write(f"{outcome.noticed_by or 'SURVIVED':<12} {m.file:<18} {m.rule}\n")
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
