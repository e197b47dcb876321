"""Joins, de-duplication, windows, processors, aggregates and random chains through Spark Connect, in one process of
their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = ("join, three by alias", "columns", "operated")
"""In the test command; columns have a static join, random chains other ones."""

BOTH = """
import sys
from tests.generated import over_connect as chains
from tests.spark import over_connect as operators

folder, *names = sys.argv[1:]
sys.exit(operators.main(f"{folder}/operators", *names) or chains.main(f"{folder}/chains", "2", "2"))
"""
"""One start of Spark for all: it takes longer than the queries do."""


def _over_connect(folder: Path, *program: str) -> None:
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, f"{root}/python_datasource", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *program],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-5000:]


@pytest.mark.smoke
def test_stateful_operators_over_connect_are_those_of_spark_and_chains_give_what_batch_gives(tmp_path: Path) -> None:
    for program in ("operators", "chains"):
        (tmp_path / program).mkdir()
    _over_connect(tmp_path, "-c", BOTH, str(tmp_path), *SHORT)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_all_cases_over_connect_are_those_of_spark(tmp_path: Path) -> None:
    _over_connect(tmp_path, "-m", "tests.spark.over_connect", str(tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_relations_of_connect_are_translated(tmp_path: Path) -> None:
    _over_connect(tmp_path, "-m", "tests.spark.relations_over_connect", str(tmp_path))
