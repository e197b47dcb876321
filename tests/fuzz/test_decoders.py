"""No decoder of stored or received bytes takes any bytes otherwise than with a value or one of our errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzz import CORPUS
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "3600"))
"""How long the soak test takes, of all targets together."""


def fuzzed(found: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a decoder may take it along."""
    command = [sys.executable, "-m", "tests.fuzz.fuzz", "--found", str(found), *more]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)


def test_what_broke_a_decoder_once_and_some_more_inputs_are_taken(tmp_path: Path) -> None:
    done = fuzzed(tmp_path, "--inputs", "60", "--seconds", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name}: " in done.stdout for name in TARGETS)


def test_the_corpus_has_inputs_of_known_targets_only() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_takes_many_inputs(name: str, tmp_path: Path) -> None:
    done = fuzzed(tmp_path, "--seconds", str(SECONDS / len(TARGETS)), "--seed", str(os.getpid()), name)
    assert done.returncode == 0, done.stdout + done.stderr
