"""What the example of ``foreachBatch`` moved over prints: one file of five counts twice before, and none after."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOTALS = "a: 4,165,833 b: 4,167,500 c: 4,164,167"


@pytest.mark.soak  # four starts of Spark
def test_the_job_killed_behind_its_commit_counts_twice_before_and_once_after(tmp_path: Path) -> None:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python_datasource")]),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "examples.foreach_batch"],
        env={**os.environ, **environment},
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    logs = "".join(f"\n{log}:\n{log.read_text()[-3000:]}" for log in tmp_path.rglob("*.log"))
    assert done.returncode == 0, done.stdout + logs
    said = done.stdout.splitlines()
    assert said[:4] == [
        f"the input has 5,000 rows in 5 files: {TOTALS}",
        "before was killed: 2,000 rows counted in the database",
        "before came to its end: 6,000 rows counted in the database",
        "  WRONG by +1,000 rows a: 4,665,333 b: 4,668,333 c: 4,663,334",
    ], logs
    assert re.fullmatch(r"after was killed: [234],000 rows counted in the database", said[4]), logs
    assert said[5:] == ["after came to its end: 5,000 rows counted in the database", f"  exactly once {TOTALS}"], logs
