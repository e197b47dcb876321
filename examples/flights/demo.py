"""The demo: run the flights job, kill its driver in the middle, start it again, and compare with a batch computation.

make demo        (or: python -m examples.flights.demo [s3])

With ``s3``, input, checkpoints and the Delta table are on an S3 server that the demo starts and stops.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from rich.console import Console

import spark_ckpt
from examples.flights import batch
from examples.flights.compare import Comparison, compare
from examples.flights.prepare import prepare
from spark_ckpt.cli.history import history_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".demo"
FILES = 36
KILL_AT = 0.4
"""Kill the driver when this part of the flights is committed."""
SILENCE_S = 10.0
"""Show something at least this often."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Committed:
    """What a reader of the two sinks sees."""

    flights: int
    trips: int

    def __str__(self) -> str:
        return f"{self.flights:,} flights in the Delta table, {self.trips:,} trips in the database"


class Sinks:
    """Reads what is committed, as any reader of the two sinks would."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._table: DeltaTable | None = None

    def committed(self) -> Committed:
        return Committed(self._delta_rows(), _sqlite_trips())

    def _delta_rows(self) -> int:
        try:
            if self._table is None:
                self._table = DeltaTable(f"{self._place}/flights")
            self._table.update_incremental()
        except TableNotFoundError:
            return 0
        return sum(self._table.get_add_actions(flatten=True)["num_records"].to_pylist())


def _sqlite_trips() -> int:
    database = FOLDER / "aircraft.db"
    if not database.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        try:
            return int(connection.execute("SELECT coalesce(sum(trips), 0) FROM aircraft").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the table is not there yet, or is being written


def run_job(place: str, total: int, kill_at: int | None) -> int:
    """Run the job's process until it ends, or kill it once ``kill_at`` flights are committed. Returns the exit code."""
    url = [place] if "://" in place else []
    command = [sys.executable, "-m", "examples.flights.job", str(FOLDER), *url]
    with (FOLDER / "job.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    shown = " ".join([FOLDER.name, *url])
    console.print(f"  started  python -m examples.flights.job {shown}   (pid {process.pid})")
    try:
        _watch(process, Sinks(place), total, kill_at)
    finally:
        if process.poll() is None:
            kill_driver(process.pid)
    return process.wait()


def kill_driver(pid: int) -> None:
    killed = kill_session(pid)
    console.print(f"  killed   {killed} processes with SIGKILL: the driver (pid {pid}), its JVM, its Python workers")


def kill_session(pid: int) -> int:
    """SIGKILL for a driver, its JVM and its Python workers, as if the machine had lost power; returns how many.

    They are the processes of the session that the driver was started in.
    """
    victims = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _session(p) == pid]
    for victim in sorted(victims):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    return len(victims)


def _session(process: Path) -> int | None:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # it has ended meanwhile
    return int(fields[3])


def _watch(process: subprocess.Popen[bytes], sinks: Sinks, total: int, kill_at: int | None) -> None:
    began, shown, spoke = time.monotonic(), Committed(0, 0), 0.0
    while process.poll() is None:
        now, took = sinks.committed(), time.monotonic() - began
        if now != shown or took - spoke > SILENCE_S:
            console.print(f"  {took:5.1f} s  {now.flights / total:4.0%}  committed: {now}")
            shown, spoke = now, took
        if kill_at is not None and now.flights >= kill_at:
            return
        time.sleep(0.1)


def compare_sinks(place: str, flights: pa.Table) -> list[tuple[str, Comparison]]:
    """Both sinks against the batch computation."""
    expected = batch.expected_flights(flights)
    aircraft = batch.expected_aircraft(expected)
    # Not to_pyarrow_table: its threads call back into Python, which aborts a process that is just about to exit.
    query = QueryBuilder().register("flights", DeltaTable(f"{place}/flights")).execute("SELECT * FROM flights")
    found = pa.table(query.read_all()).to_pandas()
    with contextlib.closing(sqlite3.connect(FOLDER / "aircraft.db")) as connection:
        names = ", ".join(batch.AIRCRAFT)
        upserted = pd.read_sql_query(f"SELECT {names} FROM aircraft", connection)
    return [
        ("Delta table flights", compare(expected, found, "id")),
        ("SQLite table aircraft", compare(aircraft, upserted, "tailnum")),
    ]


def report(name: str, result: Comparison) -> None:
    if result.equal:
        console.print(f"  {name}: {result.rows:,} rows, {result.cells:,} cells, all equal to the batch computation")
        return
    console.print(
        f"  {name}: DIFFERENT. {result.missing:,} rows missing, {result.unexpected:,} unexpected, "
        f"{result.duplicated:,} duplicated; {result.different:,} cells differ"
    )
    for example in result.examples:
        console.print(f"    {example}")


def fail(text: str) -> int:
    console.print(f"\n[bold red]FAILED[/]: {text}")
    log = FOLDER / "job.log"
    if log.exists():
        console.print(
            f"The end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]), markup=False
        )
    return 1


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    if sys.argv[1:] != ["s3"]:
        return run(str(FOLDER))
    from examples.flights import s3  # its packages come with the extra demo_s3

    FOLDER.mkdir()
    with s3.server(FOLDER / "s3.log") as url:
        console.print(f"Input, checkpoints and the Delta table are at {url}, on an S3 server of this demo's own")
        return run(url, s3.upload)


def run(place: str, upload: Callable[[Path, str], None] = lambda *_: None) -> int:
    """The demo, with input, checkpoints and Delta table at ``place``."""
    began = time.monotonic()
    console.print("[bold]1. Input[/]: every flight that left New York in 2013")
    flights = prepare(FOLDER / "input", FILES)
    upload(FOLDER / "input", place)
    total = flights.num_rows - flights["departed"].null_count
    console.print(f"  {flights.num_rows:,} flights in {FILES} Parquet files; {total:,} departed")

    console.print(f"[bold]2. The job[/], killed with SIGKILL when {KILL_AT:.0%} of the flights are committed")
    code = run_job(place, total, kill_at=int(total * KILL_AT))
    if code != -signal.SIGKILL:
        return fail(f"the job ended with exit code {code} before it could be killed")
    at_kill = Sinks(place).committed()
    console.print(f"           committed at that time: {at_kill}")
    if at_kill.flights >= total:
        return fail("everything was committed already; the kill proved nothing")

    console.print("[bold]3. The same command again[/]")
    code = run_job(place, total, kill_at=None)
    if code != 0:
        return fail(f"the job ended with exit code {code}")

    console.print("[bold]4. What happened[/]")
    checkpoints = spark_ckpt.job(f"{place}/checkpoints", "flights").checkpoints()
    console.print(f"\n{history_text(checkpoints, console.width)}\n", markup=False)

    console.print("[bold]5. Both sinks against a batch computation (pandas), row by row[/]")
    results = compare_sinks(place, flights)
    for name, result in results:
        report(name, result)
    if not all(result.equal for _, result in results):
        return fail("the sinks differ from the batch computation")
    console.print(f"[bold green]Exactly once[/]: no row lost, none twice, in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
