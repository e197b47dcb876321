"""A Spark session that reads Delta tables on the JVM, and the jars it needs."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

_SPARK = ".".join(pyspark.__version__.split(".")[:2])
_NAME, _VERSION = f"delta-spark_{_SPARK}_2.13", "4.4.0"
ARTIFACT = f"io.delta:{_NAME}:{_VERSION}"
_FETCH = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={ARTIFACT}"]


@contextlib.contextmanager
def delta_session() -> Iterator[SparkSession]:
    """A session in a JVM of its own, with delta-spark and UTC. For a fixture of module scope: it starts for seconds."""
    if pyspark.__version__ >= "4.3":
        pytest.skip(f"delta-spark has no jar for Spark {pyspark.__version__}")
    _stop_jvm()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(delta_jars()))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()
        _stop_jvm()


def _stop_jvm() -> None:
    """Jars count only when a JVM starts, and pyspark keeps the one that an earlier test module started."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


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
    """Those of this Spark: the folder may have others, too."""
    jars = sorted(_repository().glob(f"*/{_VERSION}/*-{_VERSION}.jar"))
    own = {jar.parts[-3]: str(jar) for jar in jars if not jar.name.startswith("delta-spark") or _NAME in jar.name}
    return list(own.values()) if {_NAME, "delta-storage"} <= own.keys() else []
