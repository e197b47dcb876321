"""A job of `foreachBatch`, and the same moved over, both killed where the database has rows and Spark does not know.

    python -m examples.foreach_batch

runs before.py and after.py, each killed with SIGKILL in its second commit and started again by the same call. One sees
that the first counts a batch twice, and that the second does not.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

FILES, ROWS = 5, 1_000
COMMITTED = {"before": "the database has the batch", "after": "after CommitSink"}
"""The moment behind the commit in the database, by the names of :mod:`spark_ckpt.faults`."""


def prepare(folder: Path) -> list[tuple[str, int, int]]:
    """The input, and the totals of all of it."""
    payments = [("abc"[i % 3], i) for i in range(FILES * ROWS)]
    (folder / "input").mkdir(parents=True)
    for number in range(FILES):
        rows = [{"customer": c, "amount": a} for c, a in payments[number * ROWS : (number + 1) * ROWS]]
        (folder / "input" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    amounts = {customer: [a for c, a in payments if c == customer] for customer in "abc"}
    return [(customer, len(found), sum(found)) for customer, found in amounts.items()]


def start(version: str, folder: Path, kill_at: str = "") -> None:
    """The job's own command. What kills it kills its process group, which is the driver with its JVM."""
    command = [sys.executable, "-m", f"examples.foreach_batch.{version}", str(folder)]
    in_group = ["sh", "-c", 'SPARK_CKPT_KILL_PID=-$$ exec "$@"', "sh", *command]
    with (folder / f"{version}.log").open("ab") as log:
        environment = {**os.environ, "SPARK_CKPT_KILL_AT": kill_at}
        done = subprocess.run(in_group, env=environment, stdout=log, stderr=log, start_new_session=True)
    end = {0: "came to its end", -signal.SIGKILL: "was killed"}.get(done.returncode, f"failed, see {log.name}")
    print(f"{version} {end}: {counted(totals(version, folder)):,} rows counted in the database", flush=True)


def totals(version: str, folder: Path) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(folder / f"{version}.db")) as db:
        return db.execute("SELECT customer, n, amount FROM totals ORDER BY customer").fetchall()


def counted(found: Iterable[tuple[str, int, int]]) -> int:
    return sum(n for _, n, _ in found)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="foreach-batch-"))
    expected = prepare(folder)
    print(f"the input has {counted(expected):,} rows in {FILES} files:", *(f"{c}: {a:,}" for c, _, a in expected))
    for version, place in COMMITTED.items():
        start(version, folder, kill_at=f"{place}#2={folder}/{version}-was-killed")
        start(version, folder)
        found = totals(version, folder)
        wrong = f"  WRONG by {counted(found) - counted(expected):+,} rows"
        print("  exactly once" if found == expected else wrong, *(f"{c}: {a:,}" for c, _, a in found))


if __name__ == "__main__":
    main()
