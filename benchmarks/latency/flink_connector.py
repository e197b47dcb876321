"""The jar with Flink's connector for Kafka, fetched on first use into ``.bench/`` by Maven."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.environments import FOLDER

VERSION = "5.0.0-2.2"
"""The newest there is: made for Flink 2.2, whose interfaces 2.3 keeps."""
_ARTIFACT = f"org.apache.flink:flink-sql-connector-kafka:{VERSION}"


def provide_connector() -> Path:
    """Where it is. Raises ``CalledProcessError`` if Maven fails, ``FileNotFoundError`` if there is no Maven."""
    jar = FOLDER / "jars" / f"flink-sql-connector-kafka-{VERSION}.jar"
    if not jar.exists():
        print(f"[bench] fetching {_ARTIFACT} into {jar.parent}", flush=True)
        # Maven brings the Java it was tested with; the one made for Spark may lack modules it wants.
        environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        copy = ["dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={jar.parent}"]
        subprocess.run(["mvn", "-q", "-B", *copy], check=True, env=environment)
    return jar
