"""Writes ``spark_ckpt/sources/julian_zones.json``: what Spark adds to times of files in the old calendar, by time zone.

Spark has a table of it, a resource of its jar ``spark-sql-api``, in which the shift of the calendar and that of the
zone's clock are one sum. Here they are taken apart: the shift of the calendar is arithmetic. A zone has the offset of
its clock in files of the old calendar, in seconds, and then pairs: from which second on, how many seconds its clock
was off in the new one.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyspark

from spark_ckpt.sources.old_calendar import DAY_S, FIRST_DAY, rebased_days

TARGET = Path(__file__).parents[1] / "spark_ckpt" / "sources" / "julian_zones.json"


def zones() -> dict[str, list[int]]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as opened:
        table = json.loads(opened.read("julian-gregorian-rebase-micros.json"))
    return {zone["tz"]: _apart(zone["switches"], zone["diffs"]) for zone in table}


def _apart(switches: list[int], sums: list[int]) -> list[int]:
    clock_s = FIRST_DAY * DAY_S - switches[0]
    days = (np.array(switches) + clock_s) // DAY_S
    parts = np.array(sums) - (rebased_days(days) - days) * DAY_S
    found = [clock_s]
    for switch, part in zip(switches, parts.tolist(), strict=True):
        if len(found) == 1 or found[-1] != part:
            found += [switch, part]
    return found


if __name__ == "__main__":
    lines = [
        f"{json.dumps(zone)}:{json.dumps(found, separators=(',', ':'))}" for zone, found in sorted(zones().items())
    ]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
