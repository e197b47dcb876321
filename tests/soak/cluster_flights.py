"""The flights job as one submits it to a cluster: ``cluster_flights.py '{"folder": ..., "place": ..., ...}'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from examples.flights.job import settings, start


def main() -> None:
    plan = json.loads(sys.argv[1])
    conf = {**settings(Path(plan["folder"]), plan["place"]), **plan["conf"]}
    start(SparkSession.builder.config(map=conf).getOrCreate(), plan["place"], plan["database"]).awaitTermination()


if __name__ == "__main__":
    main()
