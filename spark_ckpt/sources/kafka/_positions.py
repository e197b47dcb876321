"""Positions in topics, and what is computed of them alone: how far a batch goes and how its ranges are cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"  # as Kafka writes it


Places = dict[Partition, int]
"""Of each partition the offset of the next record to read."""


@dataclass(frozen=True)
class Position:
    """Where the next batch begins. ``ids`` are the topics' ids: a topic that is made again has another."""

    places: Places
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> Position:
        places = {Partition(t, int(p)): int(at) for t, ps in offset["offsets"].items() for p, at in ps.items()}
        return cls(places, dict(offset["ids"]))

    def offset(self) -> dict[str, Any]:
        """The JSON that checkpoints keep: Spark's for Kafka, and the ids."""
        return {"offsets": as_json(self.places), "ids": {topic: self.ids[topic] for topic in sorted(self.ids)}}

    def start_of(self, partition: Partition, behind: Position) -> int:
        """Where a batch that ends at ``behind`` begins in ``partition``: at 0 where that or its topic is new."""
        same = self.ids.get(partition.topic) == behind.ids.get(partition.topic)
        return self.places.get(partition, 0) if same else 0


class Range(NamedTuple):
    """The records ``[start, end)`` of a partition, or fewer: a transaction's markers take offsets, too."""

    partition: Partition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class KafkaSplit(InputPartition):
    """What one task reads at a time. ``topic_id`` is that of the topic the range was planned for."""

    def __init__(self, range_: Range, topic_id: str) -> None:
        super().__init__(None)
        self.range = range_
        self.topic_id = topic_id
        self.rows = range_.size


def as_json(places: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """``places`` as Spark writes them: topic -> partition -> offset."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(places):
        found.setdefault(partition.topic, {})[str(partition.number)] = places[partition]
    return found


def ranges_between(start: Position, end: Position) -> list[Range]:
    """What a batch reads, without empty ranges; where ``end`` is in front of the start nothing is read."""
    found = (Range(p, start.start_of(p, end), at) for p, at in sorted(end.places.items()))
    return [r for r in found if r.size > 0]


def new_records(start: Position, end: Position) -> int:
    return sum(r.size for r in ranges_between(start, end))


def limited(start: Position, end: Position, most: int) -> Position:
    """As far from ``start`` to ``end`` as some ``most`` records reach: each partition by its share of what is there.

    As in Spark, a share below one record is one, so that no small partition starves.
    """
    ranges = ranges_between(start, end)
    total = sum(r.size for r in ranges)
    if total <= most:
        return end
    places = dict(end.places)
    for r in ranges:
        share = most * (r.size / total)
        places[r.partition] = min(r.end, r.start + (math.ceil(share) if share < 1 else math.floor(share)))
    return Position(places, end.ids)


def bounded(start: Position, found: Position, end: Places) -> Position | None:
    """``found``, each partition no further than ``end``; one that ``end`` does not have is not read. None where
    ``start`` is behind ``end``."""
    places = {p: min(found.places.get(p, start.places.get(p, 0)), to) for p, to in end.items()}
    if any(start.places.get(p, 0) > to for p, to in places.items()):
        return None
    topics = {p.topic for p in end}
    return Position(places, {topic: id_ for topic, id_ in found.ids.items() if topic in topics})


def cut(ranges: Iterable[Range], least: int | None, most_records: int | None) -> Iterator[Range]:
    """``ranges`` in about ``least`` pieces, none of more than ``most_records``; large ones are cut first."""
    pieces = [piece for r in ranges for piece in _equal(r, -(-r.size // most_records) if most_records else 1)]
    if least is None or len(pieces) >= least:
        return iter(pieces)
    total = sum(r.size for r in pieces)
    whole = {r for r in pieces if _parts(r.size, total, least) == 1}
    rest, left = total - sum(r.size for r in whole), max(least - len(whole), 1)
    return (p for r in pieces for p in ([r] if r in whole else _equal(r, _parts(r.size, rest, left))))


def _parts(size: int, total: int, least: int) -> int:
    return max(1, math.floor(size / total * least + 0.5))


def _equal(r: Range, parts: int) -> list[Range]:
    edges = [r.start + r.size * i // parts for i in range(parts + 1)]
    return [Range(r.partition, low, high) for low, high in pairwise(edges) if low < high]
