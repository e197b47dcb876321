"""What a source says of event time besides its rows: that it is idle, and that its input is at its end.

Either is said as the watermark of a stream of its own: so it takes effect in the epoch it belongs to, passes through
every operator on its way and stands in checkpoints, as every watermark does; and the larger, later word wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def idle_stream(source: str) -> str:
    """Its watermark is the source's :func:`turns`. No ``withWatermark`` makes a stream of such a name."""
    return f"{source}/idle"


def end_stream(source: str) -> str:
    """Its watermark is the checkpoint whose barrier stands at the end of the source's input."""
    return f"{source}/end"


def is_time(stream: str) -> bool:
    """Whether its watermark is an event time, and not one of the two words above."""
    return not stream.endswith(("/idle", "/end"))


def windows_stream(uid: str) -> str:
    """Its watermark is the end of the last window that any row was in: what operator ``uid`` tells its own tasks."""
    return f"{uid}/windows"


def turns(before: int, quiet_ms: int | None, idle_ms: int | None) -> int:
    """How often the source fell idle and came back; odd: it is idle (Flink: WatermarkStatus, ``withIdleness``).

    ``quiet_ms``: how long nothing came, None if something just did. ``idle_ms`` None: sources do not fall idle.
    """
    if idle_ms is None:
        return before
    idle = quiet_ms is not None and (before % 2 == 1 or quiet_ms >= idle_ms)
    return before + (idle != (before % 2 == 1))


def is_idle(watermarks: Mapping[str, int], sources: Iterable[str]) -> bool:
    """Whether all ``sources`` are, by the watermarks that an operator has seen."""
    return all(watermarks.get(idle_stream(source), 0) % 2 == 1 for source in sources)


def all_at_end(watermarks: Mapping[str, int], sources: Iterable[str], checkpoint: int) -> bool:
    """Whether the input of all ``sources`` is at its end at the barrier of ``checkpoint``."""
    return all(watermarks.get(end_stream(source)) == checkpoint for source in sources)
