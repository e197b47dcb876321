"""What the job must have produced, computed from all flights at once with pandas; shares no code with the job."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from examples.flights.prepare import minutes

AIRCRAFT = ["tailnum", "id", "carrier", "dest", "trips", "short_trips"]


def expected_flights(flights: pa.Table) -> pd.DataFrame:
    """Every flight that departed, with the running figures of its route and the turnaround of its aircraft."""
    flown = flights.to_pandas(integer_object_nulls=False)
    flown = flown[flown["departed"].notna()].sort_values("id")
    return _turnarounds(_running(flown)).reset_index(drop=True)


def _running(flown: pd.DataFrame) -> pd.DataFrame:
    delay = flown.groupby(["carrier", "origin", "dest"])["dep_delay"]
    count = delay.cumcount() + 1
    return flown.assign(flights=count, mean_delay=delay.cumsum() / count, max_delay=delay.cummax())


def _turnarounds(flown: pd.DataFrame) -> pd.DataFrame:
    home = flown["arrived"] + minutes(flown["air_time"])
    waited = flown["departed"] - home.groupby(flown["tailnum"]).shift()
    turnaround = waited.dt.total_seconds() / 60
    flown = flown.assign(turnaround_min=turnaround, short=turnaround.between(0, 40, inclusive="left"))
    aircraft = flown.groupby("tailnum")
    return flown.assign(trips=aircraft.cumcount() + 1, short_trips=aircraft["short"].cumsum())


def expected_aircraft(flights: pd.DataFrame) -> pd.DataFrame:
    """The last row of every aircraft, from :func:`expected_flights`."""
    return flights.groupby("tailnum", sort=True).tail(1).sort_values("tailnum")[AIRCRAFT].reset_index(drop=True)
