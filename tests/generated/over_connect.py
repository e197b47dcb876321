"""Bundles of chains through Spark Connect: ``python -m tests.generated.over_connect FOLDER SIZE SEED...``.

A process of its own, because classic Spark and Connect do not go together in one. Exits with 1 if a chain came out
wrong.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.generated import by_value
from tests.generated.bundles import check_bundle, say
from tests.generated.lab import Lab
from tests.generated.session import made_session


def main(folder: str, size: str, *seeds: str) -> int:
    by_value.register()
    spark = made_session(Path(folder), remote="local[2]")
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
