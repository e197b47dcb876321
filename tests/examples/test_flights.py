from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType

from examples.flights import batch, job, prepare
from examples.flights.compare import compare


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return prepare.load_flights()


@pytest.fixture(scope="module")
def expected(flights: pa.Table) -> pd.DataFrame:
    return batch.expected_flights(flights)


def test_the_input_is_every_flight_in_order_of_departure(flights: pa.Table) -> None:
    assert flights.num_rows == prepare.FLIGHTS
    table = flights.to_pandas()
    order = table["departed"].fillna(table["scheduled"])
    assert order.is_monotonic_increasing
    assert (table["id"] == range(len(table))).all()


def test_only_cancelled_flights_have_no_departure(flights: pa.Table) -> None:
    table = flights.to_pandas()
    assert table["departed"].isna().sum() == 8255
    assert table.loc[table["departed"].isna(), ["arrived", "air_time", "arr_delay"]].isna().all(axis=None)
    assert table.loc[table["departed"].notna(), "tailnum"].notna().all()
    assert table.loc[table["air_time"].notna(), "arrived"].notna().all()


def test_arrival_times_fit_departure_and_air_time(flights: pa.Table) -> None:
    table = flights.to_pandas()
    ground_min = (table["arrived"] - table["departed"]).dt.total_seconds() / 60 - table["air_time"]
    # Taxiing and holding; the rest are mistakes in the published data.
    assert (ground_min.dropna().between(0, 180)).mean() > 0.999


def test_the_files_in_order_of_name_are_the_flights_in_order(tmp_path: Path, flights: pa.Table) -> None:
    prepare.prepare(tmp_path / "input", 7)
    files = sorted((tmp_path / "input").iterdir())
    assert len(files) == 7
    assert pa.concat_tables([pq.read_table(f) for f in files]).equals(flights)


def test_the_batch_computation_agrees_with_a_loop_over_one_route_and_one_aircraft(expected: pd.DataFrame) -> None:
    route = expected[(expected["carrier"] == "B6") & (expected["origin"] == "JFK") & (expected["dest"] == "BQN")]
    delays: list[int] = []
    for row in route.itertuples():
        delays.append(row.dep_delay)
        assert (row.flights, row.mean_delay, row.max_delay) == (len(delays), sum(delays) / len(delays), max(delays))
    home, short = None, 0
    for n, row in enumerate(expected[expected["tailnum"] == "N324JB"].itertuples(), start=1):
        waited = None if home is None else (row.departed - home).total_seconds() / 60
        is_short = waited is not None and 0 <= waited < 40
        short += is_short
        assert (waited is None and pd.isna(row.turnaround_min)) or waited == row.turnaround_min
        assert (row.short, row.trips, row.short_trips) == (is_short, n, short)
        home = None if pd.isna(row.air_time) else row.arrived + pd.Timedelta(minutes=row.air_time)


def test_there_are_short_turnarounds_to_find(expected: pd.DataFrame) -> None:
    assert 100 < expected["short"].sum() < 1000


def test_equal_tables_compare_equal_in_any_order_of_rows(expected: pd.DataFrame) -> None:
    part = expected.head(5000)
    result = compare(part, part.sample(frac=1, random_state=1), "id")
    assert result.equal
    assert (result.rows, result.cells) == (5000, 5000 * len(part.columns))


def test_a_lost_row_is_a_difference(expected: pd.DataFrame) -> None:
    part = expected.head(100)
    result = compare(part, part.drop(index=17), "id")
    assert (result.missing, result.equal) == (1, False)
    assert result.examples == (f"id {part.loc[17, 'id']} is missing",)


def test_a_row_twice_is_a_difference(expected: pd.DataFrame) -> None:
    part = expected.head(100)
    result = compare(part, pd.concat([part, part.iloc[[3]]]), "id")
    assert (result.duplicated, result.equal) == (1, False)


def test_a_row_too_many_is_a_difference(expected: pd.DataFrame) -> None:
    result = compare(expected.head(99), expected.head(100), "id")
    assert (result.unexpected, result.equal) == (1, False)


@pytest.mark.parametrize(
    ("column", "value"),
    [("mean_delay", 1e-9), ("turnaround_min", 3.0), ("short", True), ("dest", "XXX"), ("arrived", None)],
)
def test_one_wrong_cell_is_a_difference(expected: pd.DataFrame, column: str, value: object) -> None:
    part = expected.head(100)
    changed = part.astype({column: object})
    changed.loc[changed.index[5], column] = value
    result = compare(part, changed, "id")
    assert (result.different, result.equal) == (1, False)
    assert column in result.examples[0]


def test_other_columns_are_refused(expected: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="expected the columns"):
        compare(expected.head(1), expected.head(1).drop(columns="short"), "id")


def test_aircraft_are_the_last_row_of_each(expected: pd.DataFrame) -> None:
    aircraft = batch.expected_aircraft(expected)
    assert aircraft["tailnum"].is_unique
    assert aircraft["trips"].sum() == len(expected)
    assert aircraft["short_trips"].sum() == expected["short"].sum()


def spark_state() -> GroupState:
    """What PySpark itself hands to the function for a key it has not seen."""
    schema = StructType()
    for column in job.STATE.split(", "):  # reading DDL would need a running Spark
        name, kind = column.lower().split(" ")
        schema = schema.add(name, kind)
    return GroupState(
        optionalValue=Row(),
        batchProcessingTimeMs=0,
        eventTimeWatermarkMs=-1,
        timeoutConf="NoTimeout",
        hasTimedOut=False,
        watermarkPresent=False,
        defined=False,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,
        keyAsUnsafe=b"",
        valueSchema=schema,
    )


def test_the_jobs_function_agrees_with_the_batch_computation_under_sparks_own_state(expected: pd.DataFrame) -> None:
    for tailnum in ("N324JB", "N725MQ", "N711HK"):
        flights = expected[expected["tailnum"] == tailnum]
        state, found = spark_state(), []
        for start in range(0, len(flights), 7):
            batch_rows = flights.iloc[start : start + 7, :15].sample(frac=1, random_state=start)
            for column in ("scheduled", "departed", "arrived"):  # as Spark gives them
                batch_rows[column] = batch_rows[column].dt.tz_localize(None)
            found += list(job.turnarounds((tailnum,), [batch_rows[:3], batch_rows[3:]], state))
        result = pd.concat(found)
        for column in ("scheduled", "departed", "arrived"):
            result[column] = result[column].dt.tz_localize("UTC")
        assert compare(flights, result, "id").examples == ()
