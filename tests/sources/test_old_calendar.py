"""Days and times that Spark 2 and Hive wrote are those that Spark reads, also in lists, maps and structs."""

from __future__ import annotations

import datetime as dt
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from deltalake import write_deltalake

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.files import FilesSource
from spark_ckpt.sources.old_calendar import Modes, rebase_of, rebased_days, rebased_seconds

UTC = dt.timezone.utc
OLD_DAY, OLD_TIME = dt.date(1001, 1, 7), dt.datetime(1001, 1, 7, 12, tzinfo=UTC)
NEW_DAY, NEW_TIME = dt.date(1001, 1, 1), dt.datetime(1001, 1, 1, 12, tzinfo=UTC)
"""What the first are, if they were written in the old calendar by a clock of UTC."""
LEGACY, CORRECTED, EXCEPTION = "legacy", "corrected", "exception"
DATES, INT96, VERSION, ZONE = (
    f"org.apache.spark.{key}" for key in ("legacyDateTime", "legacyINT96", "version", "timeZone")
)


def sparks_table() -> dict[str, tuple[list[int], list[int]]]:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as opened:
        table = json.loads(opened.read("julian-gregorian-rebase-micros.json"))
    return {zone["tz"]: (zone["switches"], zone["diffs"]) for zone in table}


def test_seconds_of_every_zone_are_those_of_sparks_table() -> None:
    """At each second where Spark's sum changes, beside it, and between."""
    table = sparks_table()
    assert len(table) > 500
    for zone, (switches, sums) in table.items():
        at = np.array([s + d for s in switches for d in (-1, 0, 1, 86_399, 40_000_000)])
        at = at[at >= switches[0]]
        expected = at + np.array(sums)[np.searchsorted(switches, at, side="right") - 1]
        assert (rebased_seconds(at, zone, "a file") == expected).all(), zone


def test_days_are_those_of_the_same_year_month_and_day() -> None:
    """Spark's: what ``LocalDate.of(year, month, 1).plusDays(day - 1)`` is of a ``GregorianCalendar``."""
    pairs = [
        (-141_427, -141_427),  # 1582-10-15, the first of the new calendar
        (-141_428, -141_438),  # 1582-10-04
        (-171_597, -171_606),  # 1500-02-28 ...
        (-171_596, -171_605),  # ... 1500-02-29, which only the Julian calendar has, becomes 03-01
        (-171_595, -171_605),  # 1500-03-01
        (-719_164, -719_162),  # 0001-01-01
        (18_321, 18_321),
    ]
    old, new = np.array(pairs).T
    assert rebased_days(old).tolist() == new.tolist()


@pytest.mark.parametrize(("zone", "hours"), [("+02:00", 2), ("GMT-05:30", -5.5), ("UTC+01", 1)])
def test_an_offset_is_a_zone_whose_clock_was_never_off(zone: str, hours: float) -> None:
    local_midnight = -141_427 * 86_400 - int(hours * 3600)
    at = np.array([local_midnight - 1, local_midnight, 0])
    assert (rebased_seconds(at, zone, "a file") - at).tolist() == [-864_000, 0, 0]


def written(path: Path, said: dict[str, str], int96: bool = False) -> pq.ParquetFile:
    kind = pa.struct([("d", pa.date32()), ("t", pa.timestamp("us", "UTC"))])
    columns = {
        "d": pa.array([OLD_DAY, None, dt.date(2020, 2, 29)]),
        "t": pa.array([OLD_TIME, None, dt.datetime(2020, 2, 29, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "n": pa.array([OLD_TIME.replace(tzinfo=None)] * 3, pa.timestamp("us")),
        "s": pa.array([{"d": OLD_DAY, "t": OLD_TIME}, None, {"d": None, "t": OLD_TIME}], kind),
        "a": pa.array([[OLD_DAY, None], None, []], pa.list_(pa.date32())),
        "m": pa.array([[(OLD_DAY, {"d": OLD_DAY, "t": OLD_TIME})], None, []], pa.map_(pa.date32(), kind)),
    }
    if int96:
        columns = {"t": columns["t"]}
    write(path, pa.table(columns), said, int96)
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def write(path: Path, table: pa.Table, said: dict[str, str], int96: bool = False) -> None:
    """As others than Arrow do, with ``said`` in the footer."""
    writer = pq.ParquetWriter(path, table.schema, use_deprecated_int96_timestamps=int96, store_schema=False)
    with writer:
        writer.write_table(table)
        writer.add_key_value_metadata(said)


RULES = [
    ({}, CORRECTED, False),
    ({}, LEGACY, True),
    ({VERSION: "2.4.8"}, CORRECTED, True),
    ({VERSION: "3.0.0"}, LEGACY, False),
    ({VERSION: "4.2.0"}, EXCEPTION, False),
    ({VERSION: "4.2.0", DATES: ""}, CORRECTED, True),
    ({VERSION: "4.2.0", INT96: ""}, LEGACY, False),
]


@pytest.mark.parametrize(("said", "mode", "is_old"), RULES)
def test_what_the_file_says_counts_before_what_is_asked_for(
    tmp_path: Path, said: dict[str, str], mode: str, is_old: bool
) -> None:
    with written(tmp_path / "a.parquet", {**said, ZONE: "UTC"}) as file:
        rebase = rebase_of(file, Modes(mode, EXCEPTION), "a file")
        batch = next(file.iter_batches())
        for rows in (batch, batch.slice(0, 1), batch.slice(1), batch.slice(2, 1)):
            found = rows if rebase is None else rebase(rows)
            found.validate(full=True)
            assert found.to_pylist() == (_new(rows.to_pylist()) if is_old else rows.to_pylist())


def _new(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: part if key == "n" else _new(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_new, value))
    return {OLD_DAY: NEW_DAY, OLD_TIME: NEW_TIME}.get(value, value) if isinstance(value, dt.date) else value


@pytest.mark.parametrize(
    ("said", "mode", "is_old"),
    [
        ({}, LEGACY, True),
        ({}, CORRECTED, False),
        ({VERSION: "3.0.3"}, CORRECTED, True),
        ({VERSION: "3.1.0"}, LEGACY, False),
        ({VERSION: "4.2.0", INT96: ""}, CORRECTED, True),
        ({VERSION: "4.2.0", DATES: ""}, LEGACY, False),
    ],
)
def test_times_that_are_int96_have_a_rule_of_their_own(
    tmp_path: Path, said: dict[str, str], mode: str, is_old: bool
) -> None:
    with written(tmp_path / "a.parquet", {**said, ZONE: "UTC"}, int96=True) as file:
        rebase = rebase_of(file, Modes(EXCEPTION, mode), "a file")
        batch = next(file.iter_batches())
        found = batch if rebase is None else rebase(batch)
    assert found["t"][0].as_py().replace(tzinfo=UTC) == (NEW_TIME if is_old else OLD_TIME)


@pytest.mark.parametrize(("int96", "option"), [(False, "datetimeRebaseMode"), (True, "int96RebaseMode")])
def test_what_may_be_either_ends_the_query_if_asked_and_the_message_helps(
    tmp_path: Path, int96: bool, option: str
) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in" / "a.parquet", {}, int96).close()
    with pytest.raises(InvalidInputError, match=rf"a\.parquet, column [dt]: .*option {option}=LEGACY"):
        read(tmp_path / "in", **{option: "EXCEPTION"}, badRecords="skip")
    assert read(tmp_path / "in", **{option: "LEGACY"})["t"][0].as_py() == NEW_TIME


def read(path: Path, **options: str) -> pa.Table:
    source = FilesSource({"path": str(path), "fileFormat": "parquet", **options})
    source.metadata_url = str(path.with_name("job"))
    return rows(InnerReader(source, source.schema()))


def rows(reader: InnerReader) -> pa.Table:
    end = reader.latest(reader.initial(), True)
    return pa.Table.from_batches([b for s in reader.splits(reader.initial(), end) for b in reader.read(s)])


def test_files_of_a_delta_table_are_read_likewise(tmp_path: Path) -> None:
    table = pa.table({"d": [OLD_DAY], "t": pa.array([OLD_TIME], pa.timestamp("us", "UTC"))})
    write_deltalake(str(tmp_path / "t"), table)

    def of(**options: str) -> dict[str, Any]:
        source = open_source("delta", {"path": str(tmp_path / "t"), **options}, None, str(tmp_path / "none"))
        return dict(rows(source.reader(source.schema())).to_pylist()[0])

    assert of() == {"d": OLD_DAY, "t": OLD_TIME}
    assert of(datetimeRebaseMode="LEGACY") == {"d": NEW_DAY, "t": NEW_TIME}
    with pytest.raises(InvalidInputError, match="READ_ANCIENT_DATETIME"):
        of(datetimeRebaseMode="EXCEPTION")
    (file,) = (tmp_path / "t").glob("*.parquet")
    write(file, pq.read_table(file), {VERSION: "2.4.8", ZONE: "UTC"})
    assert of() == {"d": NEW_DAY, "t": NEW_TIME}


def test_an_unknown_zone_is_told_of(tmp_path: Path) -> None:
    with written(tmp_path / "a.parquet", {VERSION: "2.4.8", ZONE: "Mars/Olympus"}) as file:
        rebase = rebase_of(file, Modes(), "a file")
        assert rebase is not None
        with pytest.raises(InvalidInputError, match="zone 'Mars/Olympus': expected a region"):
            rebase(next(file.iter_batches()))


def test_the_sessions_settings_count_where_no_option_is_given() -> None:
    given = {"path": "/x", "fileFormat": "parquet", "int96RebaseMode": "LEGACY"}
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInRead": "EXCEPTION",
        "spark.sql.streaming.fileStreamSink.ignoreMetadata": "false",
    }
    found = open_source("files", given, None, "none").settled_options(given, settings.__getitem__)
    assert (found["datetimeRebaseMode"], found["int96RebaseMode"]) == ("EXCEPTION", "LEGACY")


def test_other_formats_have_no_such_option() -> None:
    with pytest.raises(ConfigError, match="int96RebaseMode apply to fileFormat parquet only"):
        FilesSource({"path": "/x", "fileFormat": "orc", "int96RebaseMode": "LEGACY"})
