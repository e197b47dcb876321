"""``make mutants``: break one rule at a time and see that a fast test notices: of decisions in ``protocol/``, of what
executes them in ``jobs/``, ``runtime/`` and ``storage/``, of the sinks' commits.

Each mutation replaces a text that must occur exactly once, in a copy of the package, where the unit tests of that room
and the simulation run until one fails. A mutation that survives is a rule that no test holds. No Spark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
_PROTOCOL = (
    "source", "source_time", "drain", "coordinator", "aligner", "commit", "startup", "recovery", "refusal", "abandon",
    "scenarios", "checkpoint_state", "weights", "aligner_table", "life", "lost_barriers", "evolution", "setback",
)  # fmt: skip
_SHELL = (
    "sources/test_source_reader.py", "storage/test_start_facts.py", "storage/test_torn_records.py",
    "storage/test_damage.py",
)  # fmt: skip
_STORAGE = ("storage/test_record_store.py", "storage/test_state_table.py", "storage/test_gc.py")
_SINKS = (
    "sinks/test_sink_conformance.py", "sinks/test_memory_sink.py", "sinks/test_files_sink.py",
    "sinks/test_deliveries.py", "sinks/test_side_by_side.py",
)  # fmt: skip
_LOCAL = "not postgres and not Postgres and not maria and not Maria and not kafka and not Kafka and not iceberg"
FEW_SEEDS, SEEDS = 60, 300
"""Most of what breaks the job as a whole shows in a few seeds, sooner than in unit tests of the shell."""

TOO_LONG_S = 1800


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
    return (ROOT / "spark_ckpt" / mutation.file).read_text()


def _try(mutation: Mutation) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns(".*", "generated")
        for part in ("spark_ckpt", "tests", "examples"):
            shutil.copytree(ROOT / part, copy / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copy)
        (copy / "spark_ckpt" / mutation.file).write_text(_source(mutation).replace(mutation.old, mutation.new))
        found = (what for what, arguments in _checks(mutation) if _fails(copy, arguments))
        return Outcome(mutation, next(found, None))


def _checks(mutation: Mutation) -> Iterator[tuple[str, list[str]]]:
    """What may notice, the quickest first."""
    simulate = ["-m", "spark_ckpt.testing.simulate", "--seeds"]
    pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-k", _LOCAL]
    unit = "unit tests", [*pytest, *(f"tests/{t}" for t in _tests(mutation.file))]
    few = "simulation", [*simulate, str(FEW_SEEDS)]
    room = mutation.file.partition("/")[0]
    yield from {"protocol": (unit, few), "sinks": (unit,)}.get(room, (few, unit))
    if room != "sinks":
        yield "simulation", [*simulate, str(SEEDS), "--first", str(FEW_SEEDS)]


def _tests(file: str) -> tuple[str, ...]:
    room = file.partition("/")[0]
    if room == "sinks":
        return _SINKS
    if file == "jobs/compared_sinks.py":
        return ("sinks/test_set_back.py",)
    own = {"jobs": _SHELL, "runtime": _SHELL, "storage": _STORAGE}.get(room, ("storage/test_damage.py",))
    return (*own, *(f"protocol/test_protocol_{name}.py" for name in _PROTOCOL))


def _fails(folder: Path, arguments: list[str]) -> bool:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            check=False,
            timeout=TOO_LONG_S,
        )
    except subprocess.TimeoutExpired:
        return True  # it waits for ever
    return done.returncode != 0


def _shown(outcome: Outcome) -> Outcome:
    m = outcome.mutation
    sys.stdout.write(f"{outcome.noticed_by or 'SURVIVED':<12} {m.file:<26} {m.rule}\n")
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
