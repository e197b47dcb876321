"""What the suite ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.environments import PEERS

_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "deltalake")


def describe() -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "java": _java(),
        "ours": [f"{name} {version(name)}" for name in _PACKAGES],
        "peers": {e.name: list(e.packages) for e in PEERS},
        "commit": commit(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    done = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], stderr=subprocess.PIPE, check=True)
    return done.stderr.decode().splitlines()[0].replace('"', "")


def commit() -> str | None:
    """Of the checkout, with a mark if files differ from it; None outside one."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or None
