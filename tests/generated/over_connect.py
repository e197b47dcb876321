"""Bundles of chains through Spark Connect: ``python -m tests.generated.over_connect FOLDER SIZE SEED...``.

A process of its own, because classic Spark and Connect do not go together in one. Exits with 1 if a chain came out
wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.execution.plan_text import plan_nodes
from tests.generated import by_value
from tests.generated.bundles import check_bundle, say
from tests.generated.lab import Lab
from tests.generated.session import made_session


def main(folder: str, size: str, *seeds: str) -> int:
    by_value.register()
    spark = made_session(Path(folder), remote="local[2]")
    check_names_with_line_breaks(spark)
    lab, wrong, began = Lab(spark, Path(folder)), 0, time.monotonic()
    for seed in map(int, seeds):
        try:
            check_bundle(lab, seed, {}, int(size))
        except AssertionError as error:
            wrong += 1
            say(str(error))
        say(f"Connect, bundle {seed} of {size} chains: {time.monotonic() - began:.0f} s, {wrong} wrong")
    spark.stop()
    return 1 if wrong else 0


def check_names_with_line_breaks(spark: Any) -> None:
    """On Connect a plan is known by its text, which begins with the names of the columns."""
    rows = spark.createDataFrame([(1, 2)], "`line\nbreak` int, `== Optimized Logical Plan ==` int")
    found = [node.name for node in plan_nodes(rows.where("`line\nbreak` > 0").withColumn("a\nb", F.lit(1)))]
    assert found[:2] == ["Project", "Filter"], found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
