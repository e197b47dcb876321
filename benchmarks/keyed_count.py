"""Keyed count and sum: spark_ckpt against plain Spark, side by side in one run.

    make bench           (or: python -m benchmarks.keyed_count [--quick])

Every engine runs in its own process, one after the other, on the same source. Prints a table with the ratios and
writes benchmarks/RESULTS.md. ``--quick`` runs few small batches, to see that it works; it writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.engines import CORES, Load

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
console = Console(width=110)

OURS, PANDAS, JVM = "ours", "pandas", "jvm"
NAMES = {
    OURS: "spark_ckpt aggregate, a checkpoint every 5 s",
    PANDAS: "Spark applyInPandasWithState (RocksDB)",
    JVM: "Spark JVM groupBy.agg (RocksDB)",
}


@dataclass(frozen=True)
class Case:
    """One engine under one load."""

    title: str
    engine: str
    load: Load


@dataclass(frozen=True)
class Measured:
    """The measured batches of a case."""

    case: Case
    rows: int
    batch_ms: tuple[int, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.batch_ms) / 1000

    @property
    def rows_per_s(self) -> float:
        """Over all measured batches, those with a checkpoint in them too."""
        return self.rows / (sum(self.batch_ms) / 1000)


@dataclass(frozen=True)
class Ratio:
    """A figure of ours against a target."""

    what: str
    value: float
    target: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target

    def cells(self) -> tuple[str, str, str, str]:
        bound = f"{'at most' if self.at_most else 'at least'} {self.target:g}"
        return (
            self.what,
            f"{self.value:.2f}" if self.value < 10 else f"{self.value:.0f}",
            bound,
            "yes" if self.met else "no",
        )


FEW = Load(keys=10_000, rows=1_000_000, batches=8, warm_up=4)
MANY = Load(keys=1_000_000, rows=1_000_000, batches=6, warm_up=3)
STATE = Load(keys=1_000_000, rows=100_000, batches=10, warm_up=3, fill=1)

CASES = [
    Case("10 K keys", OURS, FEW),
    Case("10 K keys", PANDAS, replace(FEW, batches=3, warm_up=1)),
    Case("10 K keys", JVM, FEW),
    Case("1 M keys", OURS, MANY),
    # A batch of 1 M keys would take half an hour: this one touches 20 K of the 1 M keys, each once as above.
    Case("1 M keys", PANDAS, replace(MANY, rows=20_000, batches=3, warm_up=1)),
    Case("1 M keys", JVM, replace(MANY, batches=4)),
    Case("100 K touched, 1 M stored", OURS, STATE),
    Case("100 K touched, 10 M stored", OURS, replace(STATE, keys=10_000_000, fill=10)),
]


def quick(case: Case) -> Case:
    load = replace(case.load, rows=min(case.load.rows, 20_000), keys=min(case.load.keys, 5_000), batches=2, warm_up=1)
    return replace(case, load=replace(load, fill=min(load.fill, 2), fill_rows=20_000))


def measure(case: Case) -> Measured:
    console.print(f"[bold]{case.title}[/]: {NAMES[case.engine]}")
    command = [sys.executable, "-m", "benchmarks.engines", case.engine, json.dumps(asdict(case.load))]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    batches = json.loads(done.stdout.splitlines()[-1])
    return Measured(case, sum(b["rows"] for b in batches), tuple(b["ms"] for b in batches))


def ratios(results: Sequence[Measured]) -> list[Ratio]:
    found = {(m.case.title, m.case.engine): m for m in results}

    def faster(title: str, engine: str) -> float:
        return found[title, OURS].rows_per_s / found[title, engine].rows_per_s

    small, large = (found[f"100 K touched, {stored} stored", OURS] for stored in ("1 M", "10 M"))
    return [
        Ratio("10 K keys: ours / applyInPandasWithState, rows/s", faster("10 K keys", PANDAS), 4),
        Ratio("10 K keys: ours / JVM aggregation, rows/s", faster("10 K keys", JVM), 0),
        Ratio("1 M keys: ours / applyInPandasWithState, rows/s", faster("1 M keys", PANDAS), 200),
        Ratio("1 M keys: ours / JVM aggregation, rows/s", faster("1 M keys", JVM), 3),
        Ratio("100 K touched: batch time with 10 M / 1 M stored", large.median_s / small.median_s, 1.3, at_most=True),
    ]


def rows_of(m: Measured) -> tuple[str, str, str, str, str]:
    batches = len(m.batch_ms)
    return m.case.title, NAMES[m.case.engine], f"{m.rows // batches:,}", f"{m.median_s:.2f}", f"{m.rows_per_s:,.0f}"


HEAD = ("keys", "engine", "rows a batch", "median batch, s", "rows/s")
RATIO_HEAD = ("ratio", "value", "target", "met")


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown(results: Sequence[Measured]) -> str:
    def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        lines = [head, ["---"] * len(head), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    versions = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy", "pandas", "deltalake"))
    return (
        "# Keyed count and sum\n\nWritten by `make bench`. Compare only within one run.\n\n"
        f"{table(HEAD, [rows_of(m) for m in results])}\n\n{table(RATIO_HEAD, [r.cells() for r in ratios(results)])}\n\n"
        f"- Machine: {_cpu()}, {os.cpu_count()} cores ({CORES} used), {_memory_gib():.0f} GiB; {platform.system()}.\n"
        f"- Python {platform.python_version()}, {versions}, {_java()}.\n"
        "- Rows/s counts all measured batches, those with a checkpoint too; warm-up batches are left out.\n"
        "- Ours takes a checkpoint every 5 s. The others have Spark's own checkpoint, every batch.\n"
        "- With 1 M keys a batch touches each key once. One batch of `applyInPandasWithState` touches 20 K of the "
        "1 M keys, each once, because it would take half an hour otherwise; it also never gets to store 1 M keys.\n"
        "- All sinks throw the rows away.\n"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    text = subprocess.run([java, "-version"], stderr=subprocess.PIPE, check=True).stderr.decode()
    return text.splitlines()[0].replace('"', "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few small batches; writes nothing")
    parser.add_argument("--only", help="only cases whose title or engine contains this; writes nothing")
    args = parser.parse_args()
    cases = [quick(c) for c in CASES] if args.quick else CASES
    if args.only:
        cases = [c for c in cases if args.only in c.title or args.only == c.engine]
    results = [measure(case) for case in cases]
    show("Keyed count and sum", HEAD, [rows_of(m) for m in results])
    if args.only:
        return 0
    found = ratios(results)
    show("Ratios", RATIO_HEAD, [r.cells() for r in found])
    if args.quick:
        return 0
    RESULTS.write_text(markdown(results))
    console.print(f"written to {RESULTS.relative_to(ROOT)}")
    return 0 if all(r.met for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
