"""The tutorial runs as it stands: its files are written, its commands run, in an empty folder.

In the test command, its files are checked by mypy only: tests/config/test_types_reach_the_user.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r'^```(?:python title="(?P<file>[\w.]+)"|(?P<bash>bash))\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.mark.soak  # Spark again and again
@pytest.mark.timeout(3000)
def test_the_tutorial_runs_from_an_empty_folder_to_a_killed_and_resumed_job(tmp_path: Path) -> None:
    said = ""
    for block in BLOCK.finditer(PAGE):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
        else:
            said += run(block["text"], tmp_path)
    assert said.count("completed") >= 3, said  # one before the kill, listed twice
    assert said.count("final") == 1, said
    for promised in ("2000", "2050"):
        line = f"{promised} orders of 5 customers, none lost and none twice"
        assert f"It prints `{line}`." in PAGE
        assert said.count(line) == 1, said
    assert "{'customer': 'a', 'n': " in said, said
    starts = {line.split()[3] for line in said.splitlines() if "completed" in line}
    assert starts == {"1", "2"}, said


def run(commands: str, folder: Path) -> str:
    """What the commands print; whatever they left running is ended."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "python_datasource")])
    tools = f"{folder}/bin"
    Path(tools).mkdir(exist_ok=True)
    for name, command in (("python", ""), ("spark-ckpt", " -m spark_ckpt")):
        (Path(tools) / name).write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
        (Path(tools) / name).chmod(0o755)
    env = {**os.environ, "PYTHONPATH": path, "PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "140"}
    done = subprocess.Popen(
        ["bash", "-ec", commands],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = done.communicate(timeout=900)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(done.pid, signal.SIGKILL)
    logs = "".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in folder.glob("*.log"))
    assert done.returncode == 0, f"{commands}{said}{logs}"
    return said
