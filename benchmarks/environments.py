"""An environment a peer, made on first use below ``.bench/``; ours runs in the environment of the suite itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".bench"


@dataclass(frozen=True)
class Environment:
    """``packages`` in a virtual environment of this name; none: the environment of the suite."""

    name: str
    packages: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python") if self.packages else sys.executable

    def provide(self) -> None:
        """Install what is missing. Raises ``CalledProcessError`` if pip fails."""
        if not self.packages:
            return
        stamp = self.folder / f".stamp-{hashlib.sha256(repr(self.packages).encode()).hexdigest()[:16]}"
        if stamp.exists():
            return
        print(f"[bench] making {self.folder} with {', '.join(self.packages)}", file=sys.stderr, flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        _checked([sys.executable, "-m", "venv", str(self.folder)])
        _checked([self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *self.packages])
        stamp.touch()

    def variables(self) -> dict[str, str]:
        """The environment variables of a process in it."""
        paths = os.pathsep.join([str(ROOT), str(ROOT / "python_datasource")])
        bin_folder = str(Path(self.python).parent)
        return {
            **os.environ,
            "PYTHONPATH": paths,
            "PYSPARK_PYTHON": self.python,
            "PYSPARK_DRIVER_PYTHON": self.python,
            "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", "")]),
            "VIRTUAL_ENV": str(Path(bin_folder).parent),
            # Spark's driver binds to the host's name, which containers often cannot resolve.
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        }


def _checked(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# Plain Spark with the very versions that ours runs with.
_SPARK = tuple(f"{name}=={version(name)}" for name in ("pyspark", "pandas", "pyarrow", "numpy", "protobuf"))

OURS = Environment("ours")
SPARK = Environment("spark", _SPARK)
FLINK = Environment("flink", ("apache-flink==2.3.0",))
BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "numpy"))
PEERS = (SPARK, FLINK, BYTEWAX)
