"""What every Java of Spark's is started with that tests start, in the test's process or in one of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from spark_ckpt.spark_versions import spark_version


def _settings() -> Path:
    """Spark 4.0 has the class of the file manager in another package, so it has a copy of its own."""
    given = Path(__file__).with_name("spark_conf") / "spark-defaults.conf"
    if spark_version() >= (4, 1):
        return given
    own = Path(sys.prefix, "spark_conf", given.name)
    own.parent.mkdir(exist_ok=True)
    made = own.with_suffix(f".{os.getpid()}")  # others may do the same
    made.write_text(given.read_text().replace(".streaming.checkpointing.", ".streaming."))
    return made.replace(own)


SETTINGS = _settings()
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Made with the environment (``scripts/archive_classes.py``). Without it, a start takes half as long again."""


def start_java_as_tests_do() -> None:
    """The settings come by name: with a folder of them in front of the jars, Java takes no archive."""
    os.environ.pop("SPARK_CONF_DIR", None)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {SETTINGS} pyspark-shell"
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""
