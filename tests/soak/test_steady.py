"""Two hours of small batches: what a job keeps, and how long a batch takes, does not grow with its age.

``make soak PYTEST_ARGS=tests/soak/test_steady.py STEADY_MINUTES=120 STEADY_KEEP=folder`` keeps
the samples and the plot.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.kill.processes import REPOSITORY, Session, await_condition, environment
from tests.postgres_server import PostgresServer
from tests.soak.steady_plot import draw

MINUTES = float(os.environ.get("STEADY_MINUTES", "120"))
SAMPLES = 120
KEEP = os.environ.get("STEADY_KEEP", "")
SLACK = 50
"""Files, rows, KiB, MiB or ms that are no growth: what is there for one checkpoint more or less."""
DEPTH = {"tmp": 1, "cache": 1, "warehouse": 1}
"""Folders whose own folders' names are random."""
Sample = dict[str, float]
LEDGERS = ("spark_ckpt_ledger", "spark_ckpt_stages")

# Rows in the sinks are no leak; the history keeps one row a checkpoint, and the small files of the last hour.
MAY_GROW = ("delta", "files", "jobs/steady/history")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer().start()
    yield server
    server.stop()


@pytest.mark.soak
def test_nothing_grows_with_the_age_of_a_job(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    plan = json.dumps({"dir": str(tmp_path), "postgres": url})
    command = [sys.executable, str(REPOSITORY / "tests/soak/steady_job.py"), plan]
    samples = []
    with Session(command, tmp_path / "log", environment()) as job:
        progress = tmp_path / "progress.jsonl"
        await_condition("the first batch", lambda: progress.exists() and progress.stat().st_size > 0)
        began = time.monotonic()
        for number in range(1, SAMPLES + 1):
            time.sleep(max(0.0, began + number * MINUTES * 60 / SAMPLES - time.monotonic()))
            assert job.process.poll() is None, (tmp_path / "log").read_text()[-5000:]
            samples.append(sample(tmp_path, job, postgres.dsn(url.rpartition("/")[2])))
            print(json.dumps(samples[-1]), file=sys.__stderr__, flush=True)
        (tmp_path / "stop").touch()
        assert job.wait() == 0, (tmp_path / "log").read_text()[-5000:]
    if KEEP:
        Path(KEEP, "steady.json").write_text(json.dumps(samples))
        draw(samples, Path(KEEP, "steady.svg"))
    names = sorted({name for sample in samples for name in sample if not may_grow(name)})
    grown = [said for name in names if (said := growth(name, samples))]
    assert not grown, "\n".join(grown)


def sample(folder: Path, job: Session, dsn: str) -> Sample:
    """Bytes and numbers of files by folder, ledger rows, MiB by kind of process, and how long late batches took."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.parent != folder and path.is_file():
            parts = path.relative_to(folder).parts[:-1]
            place = "/".join(parts[: DEPTH.get(parts[0], 4)])
            found[f"files in {place}"] += 1
            found[f"KiB in {place}"] += size_of(path) // 1024
    with psycopg.connect(dsn) as database:
        for table in LEDGERS:
            (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
            found[f"rows in {table}"] = rows
    for pid in job.members():
        kind, mib = process(pid, job.process.pid)
        found[f"MiB of {kind}"] += mib
    batches = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    found["batches"] = batches[-1]["batch"]
    found["ms a batch"] = round(statistics.median(b["ms"] for b in batches[-60:]))
    return {"minute": round((time.time() - batches[0]["time"]) / 60, 1), **found}


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # collected since it was listed
        return 0


def process(pid: int, driver: int) -> tuple[str, int]:
    """What kind of process it is, and its private memory in MiB."""
    try:
        found = psutil.Process(pid)
        memory = found.memory_info()
        kind = "JVM" if found.name() == "java" else "driver" if pid == driver else "Python workers"
    except psutil.NoSuchProcess:
        return "Python workers", 0
    return kind, (memory.rss - memory.shared) >> 20


def growth(name: str, samples: Sequence[Sample]) -> str | None:
    """What the last quarter of ``samples`` says against the second, if it is more; the first is for warming up."""
    quarter = len(samples) // 4
    values = [sample.get(name, 0.0) for sample in samples]
    before, after = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
    return f"{name}: {before:.0f}, later {after:.0f}" if after > 1.25 * before + SLACK else None


def may_grow(name: str) -> bool:
    return name in ("minute", "batches") or any(f" in {place}" in name for place in MAY_GROW)
