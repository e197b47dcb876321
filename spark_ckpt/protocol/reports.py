"""What the tasks of a batch report for its progress, as one of each kind. Nothing is decided by it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spark_ckpt.protocol.events import Asked, Event, RowsRead, TimeSeen


class Reports:
    """In any order, and of reports that were folded before: the same."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.rows: dict[str, int] = {}
        """Read, by source."""
        self.behind: dict[str, int] = {}
        """What each source had not read yet, if it told."""
        self.times: dict[str, TimeSeen] = {}
        """By operator."""
        self.asked: Counter[str] = Counter()
        """Of storage, by kind."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> bool:
        """Whether ``event`` is one of these; others change nothing."""
        if isinstance(event, RowsRead):
            self.rows[event.source] = self.rows.get(event.source, 0) + event.rows
            if event.behind is not None:
                self.behind[event.source] = max(self.behind.get(event.source, 0), event.behind)
        elif isinstance(event, TimeSeen):
            old = self.times.get(event.uid)
            self.times[event.uid] = event if old is None else _together(old, event)
        elif isinstance(event, Asked):
            self.asked.update(event.counts)
        else:
            return False
        return True

    def events(self) -> list[Event]:
        """They as one of each, always in the same order."""
        found: list[Event] = [RowsRead(s, rows, self.behind.get(s)) for s, rows in sorted(self.rows.items())]
        found += [Asked(dict(sorted(self.asked.items())))] if self.asked else []
        return [*found, *self.seen()]

    def seen(self) -> tuple[TimeSeen, ...]:
        return tuple(time for _, time in sorted(self.times.items()))


def _together(a: TimeSeen, b: TimeSeen) -> TimeSeen:
    known = [w for w in (a.watermark_us, b.watermark_us) if w is not None]
    return TimeSeen(a.uid, min(known, default=None), a.late + b.late)
