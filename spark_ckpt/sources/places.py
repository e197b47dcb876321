"""Whether one offset of a source is as far as another, by the offsets alone: for who has no reader. Pure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from spark_ckpt.errors import ConfigError

Offset = Mapping[str, Any]


def _kafka(at: Offset, target: Offset) -> bool:
    """Each partition that ``target`` names for itself; one of which nothing is read yet stands at 0."""
    have = at["offsets"]
    wanted = [(topic, p, int(n)) for topic, places in target["offsets"].items() for p, n in places.items()]
    return all(have.get(topic, {}).get(p, 0) >= n for topic, p, n in wanted)


def _by(place: Callable[[Offset], tuple[int, ...]]) -> Callable[[Offset, Offset], bool]:
    return lambda at, target: place(at) >= place(target)


def _sql(at: Offset, target: Offset) -> bool:
    """``{"after": None}`` and ``{"from": value}`` stand in front of all rows, the value's own among them."""
    wanted = target["after"] if "after" in target else target["from"]
    if wanted is None or at == target:
        return True
    have, want = None if at.get("after") is None else _ordered(at["after"]), _ordered(wanted)
    if have is not None and type(have) is not type(want):
        raise ValueError(target)
    return have is not None and bool(have >= want)


def _ordered(value: Any) -> Any:
    """As the database orders it; texts are ordered by rules that only the database has."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return dt.datetime.fromisoformat(value)


_REACHED: Mapping[str, Callable[[Offset, Offset], bool]] = {
    "kafka": _kafka,
    "delta": _by(lambda o: (int(o["version"]), int(o.get("index", 0)))),
    "files": _by(lambda o: (int(o["file"]), int(o.get("row", 0)))),
    "rate": _by(lambda o: (int(o["second"]),)),
    "rate-micro-batch": _by(lambda o: (int(o["value"]),)),
    "sql": _sql,
}


def kind_of(reads: str) -> str:
    """Of what a job's records say that a source reads: its kind comes first."""
    return reads.split(" ")[0].lower()


_COUNTED = {"kafka": "rows", "sql": "rows", "files": "files", "delta": "versions", "iceberg": "snapshots"}


def counted_in(reads: str) -> str:
    """What the source counts by that it has not read yet; empty if that is not known."""
    return _COUNTED.get(kind_of(reads), "")


def require_comparable(uid: str, reads: str) -> None:
    """Raises ``ConfigError`` for a source whose offsets tell no order."""
    kind = kind_of(reads)
    if kind not in _REACHED:
        raise ConfigError(
            f"source {uid!r} ({kind or 'of an unknown kind'}) has offsets that cannot be compared: expected one of "
            f"{', '.join(sorted(_REACHED))}"
        )


def reached(uid: str, reads: str, at: Offset, target: Offset) -> bool:
    """Whether all in front of ``target`` was read by a source that stands ``at``. Raises ``ConfigError`` for a source
    that cannot tell, and for a ``target`` that is no offset of it."""
    require_comparable(uid, reads)
    try:
        return _REACHED[kind_of(reads)](at, target)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"expected an offset of source {uid!r}, as `spark-ckpt status` shows them, such as {json.dumps(dict(at))}; "
            f"found {json.dumps(target, default=str)}"
        ) from error
