"""Where a job begins and ends, by its options. Driver, once in a job's life."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources._ends import time_ms
from spark_ckpt.sources.kafka._brokers import Brokers
from spark_ckpt.sources.kafka._options import EARLIEST, LATEST, starting_offsets
from spark_ckpt.sources.kafka._positions import Partition, Places


def first_places(brokers: Brokers, parsed: Mapping[str, Any], partitions: list[Partition]) -> Places:
    """Raises ``InvalidInputError`` for offsets of other partitions, of none, or out of range."""
    times = _times(parsed, "starting", partitions)
    if times is not None:
        return _at_times(brokers, times, parsed["startingOffsetsByTimestampStrategy"])
    wanted = parsed["startingOffsets"]
    return _resolved(brokers, LATEST if wanted is None else wanted, partitions, "startingOffsets")


def last_places(brokers: Brokers, parsed: Mapping[str, Any], partitions: list[Partition]) -> Places | None:
    """None for a stream without an end. Raises as :func:`first_places`."""
    times = _times(parsed, "ending", partitions)
    if times is not None:
        return _at_times(brokers, times, "latest")
    wanted = parsed["endingOffsets"]
    return None if wanted is None else _resolved(brokers, wanted, partitions, "endingOffsets")


def ends_of(brokers: Brokers, asked: str | Mapping[str, Any], partitions: list[Partition]) -> Places:
    """Where a run ends, by a time that is over, or offsets, which may still be to come. Raises as :func:`first_places`,
    and ``ValueError`` for what is neither."""
    time = time_ms(asked)
    if time is not None:
        return _at_times(brokers, dict.fromkeys(partitions, time), "latest")
    if isinstance(asked, str):
        raise ValueError(asked)
    wanted = starting_offsets(asked)
    assert isinstance(wanted, dict)
    _same_partitions(wanted, partitions, "endingAt")
    known = {EARLIEST: brokers.earliest(partitions), LATEST: brokers.latest(partitions)}
    return {p: known[at][p] if at in known else at for p, at in wanted.items()}


def _times(parsed: Mapping[str, Any], side: str, partitions: list[Partition]) -> Places | None:
    """Spark's precedence: one time for all, then a time for each partition."""
    if parsed[f"{side}Timestamp"] is not None:
        return dict.fromkeys(partitions, parsed[f"{side}Timestamp"])
    found: Places | None = parsed[f"{side}OffsetsByTimestamp"]
    if found is not None:
        _same_partitions(found, partitions, f"{side}OffsetsByTimestamp")
    return found


def _at_times(brokers: Brokers, times: Places, strategy: str) -> Places:
    found = brokers.at_times(times)
    late = sorted(p for p, at in found.items() if at < 0)
    if late and strategy == "error":
        raise InvalidInputError(
            f"No offset matched from request of topic-partition {late[0]} and timestamp {times[late[0]]}; give an "
            "earlier time, or set startingOffsetsByTimestampStrategy to latest"
        )
    return {**found, **brokers.latest(late)}


def _resolved(brokers: Brokers, wanted: Places | int, partitions: list[Partition], option: str) -> Places:
    if wanted == EARLIEST:
        return brokers.earliest(partitions)
    if wanted == LATEST:
        return brokers.latest(partitions)
    assert isinstance(wanted, dict)
    _same_partitions(wanted, partitions, option)
    first, last = brokers.earliest(partitions), brokers.latest(partitions)
    places = {p: {EARLIEST: first[p], LATEST: last[p]}.get(at, at) for p, at in wanted.items()}
    for p, at in places.items():
        if not first[p] <= at <= last[p]:
            raise InvalidInputError(
                f"option '{option}' of source 'kafka': expected an offset from {first[p]} to {last[p]} for {p}, "
                f"found {at}"
            )
    return places


def _same_partitions(wanted: Places, partitions: list[Partition], option: str) -> None:
    if wanted.keys() != set(partitions):
        raise InvalidInputError(
            f"If {option} contains specific offsets, you must specify all TopicPartitions. Use -1 for latest, -2 for "
            f"earliest. Expected {', '.join(map(str, sorted(partitions)))}, found {', '.join(map(str, sorted(wanted)))}"
        )
