"""How long a plain Parquet write of the rows takes that a checkpoint wrote."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_REPEATS = 3


def raw_writes(query: Any, folder: str) -> dict[str, Any]:
    """The state files that the barrier's own batch wrote, written again with pyarrow's defaults, as many at a time as
    there were tasks: milliseconds, the best of a few. Files that earlier batches of the epoch wrote are left out, as
    they are in the checkpoint's ``write_ms``."""
    newest = query.job.completed()[-1]
    checkpoint = newest.checkpoint
    files = sorted(
        Path(f"{folder}/ckpt").glob(f"*/state/*/e{checkpoint:010d}-*.parquet"), key=lambda f: -f.stat().st_mtime
    )
    wanted, tables = newest.stats["totals"]["rows"], []
    for file in files:
        if sum(t.num_rows for t in tables) < wanted:
            tables.append(pq.read_table(file, partitioning=None))
    assert sum(t.num_rows for t in tables) == wanted, "the newest files are not those of the barrier's batch"
    files = files[: len(tables)]
    targets = [f"{folder}/raw-{number}.parquet" for number in range(len(tables))]
    tries = []
    with ThreadPoolExecutor(max(1, len(tables))) as tasks:
        for _ in range(_REPEATS):
            began = time.perf_counter()
            list(tasks.map(pq.write_table, tables, targets))
            tries.append((time.perf_counter() - began) * 1000)
    return {
        "checkpoint": checkpoint,
        "rows": sum(t.num_rows for t in tables),
        "files": len(files),
        "size_bytes": sum(f.stat().st_size for f in files),
        "raw_ms": min(tries),
    }
