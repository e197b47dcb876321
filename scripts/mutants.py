"""``make mutants``: break one rule at a time and see that a fast test notices: of decisions in ``protocol/``, of what
executes them in ``jobs/``, ``runtime/`` and ``storage/``, of the sinks' commits.

Each mutation replaces a text that must occur exactly once, in a copy of the package, where the unit tests of that room
and the simulation run until one fails. A mutation that survives is a rule that no test holds. No Spark. First the same
tests run in a copy without a mutation: what fails there would notice everything.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutations import MUTATIONS, Mutation
from mutations.rollback import FILES as ROLLBACK
from mutations.savepoints import FILES as SAVEPOINTS

ROOT = Path(__file__).resolve().parents[1]
_PROTOCOL = (
    "source", "source_time", "drain", "coordinator", "aligner", "commit", "startup", "recovery", "refusal", "abandon",
    "scenarios", "checkpoint_state", "weights", "aligner_table", "life", "lost_barriers", "evolution", "setback",
    "damage", "rollback", "source_starts", "restore_plan",
)  # fmt: skip
_SHELL = (
    "sources/test_source_reader.py", "storage/test_start_facts.py", "storage/test_torn_records.py",
    "storage/test_damage.py", "storage/test_gc.py", "storage/test_state_written_anew.py",
)  # fmt: skip
_AS_THINGS = tuple(
    f"storage/test_{name}.py" for name in ("savepoint_targets", "savepoints_as_things", "scheduled_savepoints")
)
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
    wrong = [*filter(None, map(_wrong, chosen)), *_fail_without_mutation(chosen)]
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    if wrong:
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [_shown(o) for o in pool.map(_try, chosen)]
    survived = [o for o in outcomes if o.noticed_by is None]
    sys.stdout.write(f"{len(outcomes)} mutations, {len(survived)} survived\n")
    return 1 if survived else 0


def _source(mutation: Mutation) -> str:
    return (ROOT / "spark_ckpt" / mutation.file).read_text()


def _wrong(mutation: Mutation) -> str | None:
    if _source(mutation).count(mutation.old) != 1:
        return f"not found exactly once in {mutation.file}: {mutation.old!r}"
    try:
        compile(_broken(mutation), mutation.file, "exec")
    except SyntaxError as e:
        return f"no Python any more in {mutation.file}, {mutation.rule}: {e}"
    return None


def _fail_without_mutation(mutations: list[Mutation]) -> list[str]:
    checks = {frozenset(arguments): (what, arguments) for m in mutations for what, arguments in _checks(m.file)}
    with _copy() as copy:
        failed = [(what, _failure(copy, arguments)) for what, arguments in checks.values()]
    return [f"{what} fail without a mutation: {why}" for what, why in failed if why is not None]


def _broken(mutation: Mutation) -> str:
    return _source(mutation).replace(mutation.old, mutation.new)


@contextmanager
def _copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns(".*", "generated")
        for part in ("spark_ckpt", "tests", "examples"):
            shutil.copytree(ROOT / part, copy / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copy)
        yield copy


def _try(mutation: Mutation) -> Outcome:
    with _copy() as copy:
        (copy / "spark_ckpt" / mutation.file).write_text(_broken(mutation))
        found = (_failure(copy, arguments) for _, arguments in _checks(mutation.file))
        return Outcome(mutation, next(filter(None, found), None))


def _checks(file: str) -> Iterator[tuple[str, list[str]]]:
    """What may notice, the quickest first."""
    simulate = ["-m", "spark_ckpt.testing.simulate", "--seeds"]
    pytest = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-k", _LOCAL]
    unit = "unit tests", [*pytest, *(f"tests/{t}" for t in _tests(file))]
    nearest = "nearest tests", [*pytest, *(f"tests/{t}" for t in _nearest(file))]
    few = "simulation", [*simulate, str(FEW_SEEDS)]
    room = file.partition("/")[0]
    yield from {"protocol": (nearest, unit, few), "sinks": (unit,)}.get(room, (few, unit))
    if room != "sinks":
        yield "simulation", [*simulate, str(SEEDS), "--first", str(FEW_SEEDS)]


def _tests(file: str) -> tuple[str, ...]:
    room = file.partition("/")[0]
    if room == "sinks":
        return _SINKS
    if file == "jobs/compared_sinks.py":
        return ("sinks/test_set_back.py",)
    if file in SAVEPOINTS:
        return _AS_THINGS
    if file in ROLLBACK:
        return ("storage/test_rollback.py",)
    own = {"jobs": _SHELL, "runtime": _SHELL, "storage": _STORAGE}.get(
        room, ("storage/test_damage.py", "storage/test_rollback.py")
    )
    return (*own, *(f"protocol/test_protocol_{name}.py" for name in _PROTOCOL))


def _nearest(file: str) -> tuple[str, ...]:
    """Most rules are noticed here, and a few modules start in a fraction of the time that all need."""
    word = Path(file).stem.strip("_").partition("_")[0]
    names = [name for name in _PROTOCOL if name.startswith(word)] or ["commit"]
    return tuple(f"protocol/test_protocol_{name}.py" for name in names)


def _failure(folder: Path, arguments: list[str]) -> str | None:
    """What failed, in a line."""
    # Options of the caller's pytest do not count: a --basetemp would be one folder for both jobs.
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOO_LONG_S,
        )
    except subprocess.TimeoutExpired:
        return "it waits for ever"
    return None if done.returncode == 0 else _reason(f"{done.stdout}\n{done.stderr}")


def _reason(output: str) -> str:
    """The test that failed, or the last line: the simulation's error."""
    lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))), lines[-1])[:100]


def _shown(outcome: Outcome) -> Outcome:
    m = outcome.mutation
    sys.stdout.write(f"{m.file:<26} {m.rule}: {outcome.noticed_by or 'SURVIVED'}\n")
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
