"""What is aimed at, and what was measured. Pure; an aim whose section was not measured has no value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cost_model import fit_and_check, points_of, worst_held_out
from benchmarks.latency.events import RATES, cell
from benchmarks.latency.figures import EVERYWHERE
from benchmarks.latency.shown import AIMS_S
from benchmarks.workers.queries import GROUPS, TOP_N

Results = Mapping[str, Mapping[str, Any]]
"""Section -> its data."""

FLINK = "Flink SQL"
FEW, MANY = "10000 keys", "1000000 keys"


@dataclass(frozen=True)
class Aim:
    """A ratio of one section, and its bound. ``at_most``: smaller is better."""

    group: str
    what: str
    bound: float
    value: Callable[[Results], float]
    at_most: bool = False

    def measure(self, results: Results) -> float | None:
        """None if a figure it needs was not measured."""
        try:
            found = self.value(results)
        except (KeyError, IndexError, ZeroDivisionError):
            return None
        return found if math.isfinite(found) else None

    def met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


def speed(section: str, a: str, b: str) -> Callable[[Results], float]:
    """Rows/s of ``a`` over rows/s of ``b``."""
    return lambda r: r[section][a]["rows_per_s"] / r[section][b]["rows_per_s"]


def batch_time(section: str, a: str, b: str) -> Callable[[Results], float]:
    return lambda r: r[section][a]["median_s"] / r[section][b]["median_s"]


def _largest(results: Results) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """State sections at 1 M and at the most keys that were stored, from one run."""
    sizes = sorted(results["state"].values(), key=lambda s: s["stored"])
    if len(sizes) < 2:
        raise KeyError("only one size")
    return sizes[0], sizes[-1]


def growth(results: Results) -> float:
    small, large = _largest(results)
    return large["median_s"] / small["median_s"]


def restore(results: Results) -> float:
    small, large = _largest(results)
    return large["restore"]["first_batch_s"] / small["restore"]["first_batch_s"]


def of_checkpoints(name: str) -> Callable[[Results], float]:
    """The mean over the checkpoints of the phase with 100 K touched keys: at the most stored keys over at 1 M."""

    def value(results: Results) -> float:
        small, large = (_mean_by_touched(s["history"], name)[100_000] for s in _largest(results))
        return large / small

    return value


def _mean_by_touched(history: Sequence[Mapping[str, Any]], name: str) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for checkpoint in history:
        if checkpoint["touched"] is not None:
            found.setdefault(checkpoint["touched"], []).append(checkpoint[name])
    return {touched: sum(values) / len(values) for touched, values in found.items()}


def beyond(start: str, other: str, figure: str, raw: str) -> Callable[[Results], float]:
    """What ``start`` takes beyond ``other``, over what raw Parquet takes. Nothing is known if it took less: the machine
    was disturbed."""

    def value(results: Results) -> float:
        found = results["savepoints"]
        more = found["starts"][start][figure] - found["starts"][other][figure]
        return more / found["raw"][raw] if more >= 0 else math.nan

    return value


def against_raw(figure: str, raw: str) -> Callable[[Results], float]:
    return lambda r: r["savepoints"][figure] / r["savepoints"]["raw"][raw]


def _fields(results: Results) -> float:
    starts = results["savepoints"]["starts"]
    return starts["fields"]["first_batch_s"] / starts["restored"]["first_batch_s"]


def model_error(results: Results) -> float:
    _, checks = fit_and_check(points_of(results))
    return worst_held_out(checks)


def _sides(name: str, keys: str) -> tuple[str, str]:
    return f"ours, {name}, {keys}", f"pandas, {name}, {keys}"


def _queries() -> Iterator[Aim]:
    """Each operator against Spark's, as fast with few keys and five times with many; and as fast as Flink SQL."""
    for section, name in [(section, name) for section, names in GROUPS.items() for name in names]:
        for keys, label, against_spark in ((FEW, "10 K keys", 1), (MANY, "1 M keys", 5)):
            ours, what = f"ours, {name}, {keys}", f"{name}, {label}, rows/s"
            if name != TOP_N:
                yield Aim("Spark JVM operator", what, against_spark, speed(section, ours, f"spark, {name}, {keys}"))
            yield Aim("Flink SQL", what, 1, speed(section, ours, f"Flink SQL, {name}, {keys}"))


def seconds(engine: str, interval: str, rate: int, sink: str, figure: str) -> Callable[[Results], float]:
    """A latency of the section of that name."""
    return lambda r: r["latency"][cell(engine, interval, rate)]["sinks"][sink][figure]


def _latencies() -> Iterator[Aim]:
    """Into all three sinks: in seconds, and beside what Flink needs into Kafka alone."""
    for interval, bounds in AIMS_S.items():
        for rate in RATES:
            for figure, bound in zip(("p50_s", "p99_s"), bounds):
                what = f"interval {interval}, {rate // 1000} K events/s, {figure[:3]}"
                ours = seconds("ours", interval, rate, EVERYWHERE, figure)
                theirs = seconds(FLINK, interval, rate, "kafka", figure)
                yield Aim("seconds from an event's time to all three sinks", what, bound, ours, at_most=True)
                yield Aim(
                    "Flink SQL into Kafka, exactly once",
                    f"ours into all three, {what}",
                    1,
                    lambda r, ours=ours, theirs=theirs: ours(r) / theirs(r),  # type: ignore[misc]
                    at_most=True,
                )


_PROCESSOR = "plain PySpark transformWithState"
_PANDAS, _JVM = "plain PySpark applyInPandasWithState", "Spark JVM aggregation"
AIMS: tuple[Aim, ...] = (
    Aim(_PANDAS, "10 K keys, rows/s", 10, speed("pandas", f"ours, {FEW}", f"pandas, {FEW}")),
    Aim(_PANDAS, "1 M keys, rows/s", 300, speed("pandas", f"ours, {MANY}", f"pandas, {MANY}")),
    Aim(
        _PANDAS,
        "the same session function, 100 K keys, rows/s",
        5,
        speed("sessions", "ours, 100 K keys a batch", "pandas, 8 K of the keys a batch"),
    ),
    *(
        Aim(_PROCESSOR, f"{name}, 10 K keys, rows/s", 10, speed("processors", *_sides(name, FEW)))
        for name in ("processor of rows", "processor of DataFrames", "processor with timers")
    ),
    Aim(
        _PROCESSOR, "processor of rows, 1 M keys, rows/s", 100, speed("processors", *_sides("processor of rows", MANY))
    ),
    Aim(_JVM, "10 K keys, rows/s", 1, speed("keyed", f"ours, {FEW}", f"jvm, {FEW}")),
    Aim(_JVM, "1 M keys, rows/s", 6, speed("keyed", f"ours, {MANY}", f"jvm, {MANY}")),
    Aim(_JVM, "behind a filter, 10 K keys, rows/s", 1.6, speed("filtered", f"ours, {FEW}", f"jvm, {FEW}")),
    Aim(_JVM, "behind a filter, 1 M keys, rows/s", 12, speed("filtered", f"ours, {MANY}", f"jvm, {MANY}")),
    Aim("Flink SQL", "10 K keys, rows/s", 2, speed("peers", f"ours, {FEW}", f"Flink SQL, {FEW}")),
    Aim("Flink SQL", "1 M keys, rows/s", 2, speed("peers", f"ours, {MANY}", f"Flink SQL, {MANY}")),
    *_queries(),
    *_latencies(),
    Aim("PyFlink", "10 K keys, rows/s", 50, speed("peers", f"ours, {FEW}", f"PyFlink, {FEW}")),
    Aim("PyFlink", "1 M keys, rows/s", 50, speed("peers", f"ours, {MANY}", f"PyFlink, {MANY}")),
    *(
        Aim("Bytewax", f"{name}, {how}, rows/s", 3, speed("peers", f"ours, {keys}", f"{peer}, {keys}"))
        for how, peer in (("a row an item", "Bytewax"), ("added up with numpy first", "Bytewax, combined with numpy"))
        for name, keys in (("10 K keys", FEW), ("1 M keys", MANY))
    ),
    *(
        Aim(
            "ours without checkpoints",
            f"{name}, rows/s",
            0.95,
            speed("keyed", f"ours, {k}", f"ours without checkpoints, {k}"),
        )
        for name, k in (("10 K keys", FEW), ("1 M keys", MANY))
    ),
    Aim(
        "plain Parquet files",
        "Delta, exactly once, rows/s",
        0.9,
        speed("stateless", "Delta, exactly once", "plain Parquet files"),
    ),
    Aim(
        "a raw pyarrow Parquet write",
        "snapshot of the same rows, time",
        2,
        lambda r: r["snapshot"]["write_ms"] / r["snapshot"]["raw_ms"],
        at_most=True,
    ),
    Aim("raw Parquet", "savepoint of 10 M keys, time", 2, against_raw("savepoint_s", "write_s"), at_most=True),
    Aim(
        "raw Parquet",
        "restore of 10 M keys to the first batch, beyond a fresh start",
        1.5,
        beyond("restored", "fresh", "first_batch_s", "read_s"),
        at_most=True,
    ),
    Aim("raw Parquet", "all rows of a savepoint of 10 M keys read", 1.5, against_raw("read_s", "read_s"), at_most=True),
    Aim(
        "raw Parquet",
        "migration of 10 M keys by a function, time of the start beyond that of a restore",
        4,
        beyond("function", "restored", "started_s", "rewrite_s"),
        at_most=True,
    ),
    Aim("a restore without changes", "fields that changed, 10 M keys, to the first batch", 1.2, _fields, at_most=True),
    *(
        Aim(
            "everything off",
            f"metrics, traces, JSON log and page on, {size} batches, rows/s",
            0.99,
            speed("operated", f"on, {size} batches", f"off, {size} batches"),
        )
        for size in ("large", "small")
    ),
    Aim(_JVM, "1 K-row batches, batch time", 1.1, batch_time("small", "ours", "jvm"), at_most=True),
    Aim(_PANDAS, "1 K-row batches, batch time", 1.1, batch_time("small", "ours", "pandas"), at_most=True),
    Aim("1 M keys stored", "most keys stored, 100 K touched, batch time", 1.2, growth, at_most=True),
    Aim(
        "1 M keys stored",
        "most keys stored, bytes a checkpoint writes",
        1.2,
        of_checkpoints("written_bytes"),
        at_most=True,
    ),
    Aim("1 M keys stored", "most keys stored, time of a checkpoint", 1.2, of_checkpoints("duration_ms"), at_most=True),
    Aim("1 M keys stored", "most keys stored, restore to the first batch", 3, restore, at_most=True),
    Aim("measured batches", "cost model, worst relative error on held-out points", 0.25, model_error, at_most=True),
    Aim(_JVM, "cluster of two executors, 10 K keys, rows/s", 1, speed("cluster", f"ours, {FEW}", f"jvm, {FEW}")),
    Aim(_JVM, "cluster of two executors, 1 M keys, rows/s", 6, speed("cluster", f"ours, {MANY}", f"jvm, {MANY}")),
    Aim(_PANDAS, "cluster of two executors, 10 K keys, rows/s", 10, speed("cluster", f"ours, {FEW}", f"pandas, {FEW}")),
    Aim(
        _PANDAS, "cluster of two executors, 1 M keys, rows/s", 300, speed("cluster", f"ours, {MANY}", f"pandas, {MANY}")
    ),
    *(
        Aim("evenly spread keys", f"{name}, rows/s", 0.9, speed("skew", f"ours, {name}", "ours, even"))
        for name in ("Zipf 1.2", "one hot key")
    ),
)
