"""Memory that arrays leave is taken again by the next ones, and what the user has set stays as it is. Without Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_ckpt.runtime import _worker_memory as worker_memory

FAULTS = """
import resource
import numpy as np
from spark_ckpt.runtime._worker_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        sum(np.ones(1 << 20) for _ in range(4))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

np.ones(1 << 20)
print(faults(), keep_freed_memory(), faults() and faults())
"""


GLIBC = sys.platform == "linux" and "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")


@pytest.mark.skipif(not GLIBC, reason="other C libraries have no such settings")
def test_arrays_take_the_memory_of_those_before_them() -> None:
    """How many pages 20 rounds over arrays of 8 MB ask the system for."""
    env = {name: value for name, value in os.environ.items() if name not in worker_memory._VARIABLES}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=env, capture_output=True, text=True, check=True)
    before, kept, after = done.stdout.split()
    assert kept == "True"
    assert int(after) < int(before) / 10


@pytest.mark.parametrize("variable", worker_memory._VARIABLES)
def test_what_the_user_has_set_stays(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1000000")
    assert not worker_memory.keep_freed_memory()
