"""Payments as they come: JSON with event times that are late, and some of them twice. The same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

MERCHANTS = 200
CATEGORIES = ("food", "fuel", "travel", "books", "tools")
LATE_S = 30
"""The most that a payment may be late; the job's watermark is a minute."""
AGAIN_WITHIN = 40
"""A payment that comes twice does so within as many others."""
_BEGIN = datetime(2026, 3, 29, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Payment:
    payment: str
    merchant: int
    cents: int
    at: str
    """ISO 8601 with milliseconds, in UTC."""

    def json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def merchants() -> list[tuple[int, str]]:
    """(merchant, category) of the table. Every tenth merchant of the payments is not in it."""
    return [(m, CATEGORIES[m % len(CATEGORIES)]) for m in range(MERCHANTS) if m % 10]


def payments(count: int, seed: int = 1, per_second: int = 20) -> Iterator[Payment]:
    """``count`` payments; every twentieth comes again, every tenth is late. ``per_second`` of event time."""
    draw = random.Random(seed)
    again: list[tuple[int, Payment]] = []
    for number in range(count):
        late_s = draw.uniform(0, LATE_S) if number % 10 == 3 else 0
        at = _BEGIN + timedelta(seconds=number / per_second - late_s)
        payment = Payment(
            f"p{seed}-{number}",
            draw.randrange(MERCHANTS),
            draw.randrange(1, 50_000),
            at.isoformat(timespec="milliseconds"),
        )
        yield payment
        if number % 20 == 7:
            again.append((number + draw.randrange(1, AGAIN_WITHIN), payment))
        while again and again[0][0] <= number:
            yield again.pop(0)[1]
    yield from (payment for _, payment in again)
