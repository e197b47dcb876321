"""Times of text files that name no zone are those of the session's clock, as in Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.ddl import parse_ddl

# What Spark 4.2 made of these texts by `spark.read.json` in a session of that zone.
AS_IN_SPARK = [
    ("America/New_York", "2024-03-10T02:30:00", "2024-03-10T07:30:00"),  # the clock goes from 2 to 3
    ("America/New_York", "2024-11-03 01:30:00.5", "2024-11-03T05:30:00.500000"),  # it shows that twice
    ("America/New_York", "2024-07-01", "2024-07-01T04:00:00"),
    ("America/New_York", "1880-01-01T00:00:00", "1880-01-01T04:56:02"),
    ("America/New_York", "2500-07-01T00:00:00", "2500-07-01T04:00:00"),
    ("America/New_York", "2024-07-01T00:00:00Z", "2024-07-01T00:00:00"),
    ("+05:30", "2024-07-01T00:00:00", "2024-06-30T18:30:00"),
    ("GMT-2", "2024-07-01T00:00:00", "2024-07-01T02:00:00"),
    ("UTC", "2024-07-01T00:00:00", "2024-07-01T00:00:00"),
]
DDL = "t timestamp, s struct<t:timestamp,d:date>, l array<timestamp>, n timestamp_ntz"


def rows(folder: Path, kind: str, ddl: str, **options: str) -> list[dict[str, Any]]:
    given = {"path": str(folder), "fileFormat": kind, "discoveryInterval": "0s", **options}
    reader = InnerReader(
        open_source("files", given, parse_ddl(ddl), str(folder.with_name("job")))._source, parse_ddl(ddl)
    )
    end = reader.latest(reader.initial(), False)
    found = [batch for split in reader.splits(reader.initial(), end) for batch in reader.read(split)]
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(("zone", "text", "utc"), AS_IN_SPARK)
def test_a_time_without_a_zone_is_one_of_that_clock(tmp_path: Path, kind: str, zone: str, text: str, utc: str) -> None:
    (tmp_path / "in").mkdir()
    nested = {"t": text, "s": {"t": text, "d": "2024-01-01"}, "l": [text, None], "n": "2024-01-01T00:00:00"}
    lines = [json.dumps(nested), "{}", '{"s": {}, "l": []}'] if kind == "json" else [text]
    (tmp_path / "in" / "a").write_text("".join(f"{line}\n" for line in lines))
    at = datetime.fromisoformat(utc).replace(tzinfo=timezone.utc)
    found = rows(tmp_path / "in", kind, DDL if kind == "json" else "t timestamp", timeZone=zone)
    if kind == "csv":
        assert found == [{"t": at}]
        return
    first, second, third = found
    assert (first["t"], first["s"]["t"], first["l"]) == (at, at, [at, None])
    assert first["n"] == datetime(2024, 1, 1), "it has no zone, whatever the session's is"
    assert second == {"t": None, "s": None, "l": None, "n": None}
    assert third == {"t": None, "s": {"t": None, "d": None}, "l": [], "n": None}


def test_the_zone_is_the_sessions_unless_one_is_given(tmp_path: Path) -> None:
    def settled(kind: str, **options: str) -> dict[str, str]:
        given = {"path": str(tmp_path), "fileFormat": kind, **options}
        return open_source("files", given, None, "none").settled_options(given, lambda _: "Europe/Berlin")

    assert [settled(kind)["timeZone"] for kind in ("json", "csv")] == ["Europe/Berlin"] * 2
    assert settled("json", timezone="Asia/Tokyo")["timezone"] == "Asia/Tokyo"
    assert "timeZone" not in settled("json", timezone="Asia/Tokyo")
    assert "timeZone" not in settled("parquet")


def test_a_zone_that_only_java_knows_is_refused_where_there_are_times(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert rows(tmp_path / "in", "json", "n int, t timestamp_ntz", timeZone="PST") == []
    for ddl in ("t timestamp", "l array<struct<t:timestamp>>"):
        with pytest.raises(ConfigError, match=r"region such as Europe/Paris or an offset such as \+02:00, found 'PST'"):
            rows(tmp_path / "in", "json", ddl, timeZone="PST")
