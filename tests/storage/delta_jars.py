"""Where the jars of delta-spark are, for tests that read tables on the JVM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ARTIFACT = "io.delta:delta-spark_4.2_2.13:4.4.0"
_FETCH = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={ARTIFACT}"]


def delta_jars() -> list[str]:
    """Paths of the jars, fetched by Maven if they are not in its local repository.

    Raises ``RuntimeError`` saying what to do: without the jars the tests that need them fail.
    """
    found = _local()
    if not found:
        if shutil.which("mvn") is None:
            raise RuntimeError(f"Expected {ARTIFACT} in {_repository()}, found neither it nor mvn. Install Maven.")
        fetched = subprocess.run(_FETCH, capture_output=True, text=True, timeout=900, check=False)
        found = _local()
        if not found:
            said = (fetched.stdout + fetched.stderr)[-2000:]
            raise RuntimeError(f"Expected `{' '.join(_FETCH)}` to bring the jars, found that it failed:\n{said}")
    return found


def _repository() -> Path:
    return Path.home() / ".m2" / "repository" / "io" / "delta"


def _local() -> list[str]:
    jars = sorted(str(jar) for jar in _repository().glob("*/4.4.0/*-4.4.0.jar"))
    needed = ("delta-spark_4.2_2.13", "delta-storage")
    return jars if all(any(f"/{name}-" in jar for jar in jars) for name in needed) else []
