"""A job at a glance: its state and why, how old what its sinks show is, the size of its state. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_ckpt.config_values import parse_duration_ms
from spark_ckpt.monitoring.facts import Facts
from spark_ckpt.protocol.events import OperatorAck, SourceAck, TimeSeen
from spark_ckpt.protocol.pending import PendingCheckpoint
from spark_ckpt.protocol.records import CompletionRecord, GenerationRecord, TriggerRecord
from spark_ckpt.protocol.setback import shown_by
from spark_ckpt.sources.places import counted_in
from spark_ckpt.storage.history import UidSize

SHORTEST_STUCK_MS = 60_000
"""A checkpoint may take a minute, whatever the interval."""
RATE_MS = 60_000
"""Rows a second are those of so long."""
_INTERVALS = 3
_UNKNOWN = UidSize(0, 0, 0)


class State(Enum):
    """Of a job; the value is what people read."""

    WAITS = "waits"
    ROLLING_BACK = "rolling back"
    STUCK = "stuck"
    PAUSED = "paused"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    CRASHED = "crashed"
    NEW = "never started"


@dataclass(frozen=True)
class SinkView:
    """``shows``: the newest checkpoint that its target shows, 0 for none. It lacks rows that were read ``behind_ms``
    ago; None before the first checkpoint. ``event_time_ms``: the watermark of what it shows. ``waiting``: checkpoints
    that are complete and not committed there yet."""

    id: str
    target: str
    shows: int
    behind_ms: int | None
    event_time_ms: int | None
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True)
class OperatorView:
    """One state table of a keyed operator at the newest checkpoint. ``late``: rows that it left out in the newest
    batches. ``alignment_ms``: how long its slowest subtask held rows back for the newest checkpoint whose phases are
    known; None if none are."""

    uid: str
    keys: int
    size_bytes: int
    files: int
    watermark_ms: int | None
    late: int
    alignment_ms: int | None = None


@dataclass(frozen=True)
class SourceView:
    """One source. ``reads``: what, without secrets; ``offset``: where it stood at the newest checkpoint.
    ``rows_per_s``: read in the last minute; None if no driver runs the job, or batches do not tell when they were.
    ``behind``: what it had not read yet at the newest batch, in what it ``counts`` (``rows``, ``files``, ...; empty if
    that is not known); None: it does not tell."""

    uid: str
    reads: str
    offset: object
    rows_per_s: float | None = None
    behind: int | None = None
    counts: str = ""


@dataclass(frozen=True)
class Overview:
    """``since_ms``: since when the job is in ``state``, and ``why`` it is. ``start``: how many starts there were.

    ``checkpoint`` is the newest complete one, ``completed_ms`` when it was; ``durations_ms`` of the newest ones, oldest
    first. ``counts``: checkpoints by outcome, since the job began.
    """

    job: str
    state: State
    why: str
    since_ms: int | None
    start: int
    checkpoint: int | None
    completed_ms: int | None
    sinks: tuple[SinkView, ...]
    operators: tuple[OperatorView, ...]
    sources: tuple[SourceView, ...]
    durations_ms: tuple[int, ...]
    counts: Mapping[str, int]
    settings: Mapping[str, str]
    facts: Facts

    @property
    def settings_from(self) -> Mapping[str, str]:
        """Where each of ``settings`` was set: ``query``, ``session`` or ``default``; empty if that is not recorded."""
        return self.facts.newest.settings_from if self.facts.newest is not None else {}

    @property
    def behind_ms(self) -> int | None:
        """Of the sink that is behind most."""
        return max((s.behind_ms for s in self.sinks if s.behind_ms is not None), default=None)

    @property
    def interval_ms(self) -> int:
        """Between two triggers, as it is set; 0 if it is not known."""
        return _interval_ms(self.settings)

    @property
    def keys(self) -> int:
        return sum(o.keys for o in self.operators)

    @property
    def state_bytes(self) -> int:
        return sum(o.size_bytes for o in self.operators)


def overview_of(facts: Facts) -> Overview:
    state, why, since_ms = _state(facts)
    newest = facts.completions[-1] if facts.completions else None
    start = facts.newest
    return Overview(
        job=facts.job,
        state=state,
        why=why,
        since_ms=since_ms,
        start=len(facts.starts),
        checkpoint=None if newest is None else newest.checkpoint,
        completed_ms=None if newest is None else newest.completed_ms,
        sinks=_sinks(facts, start),
        operators=_operators(facts, newest),
        sources=_sources(facts, newest, start),
        durations_ms=facts.durations_ms,
        counts=dict(facts.statistics.get("counts", {})),
        settings=dict(start.settings) if start is not None else {},
        facts=facts,
    )


# --- state -----------------------------------------------------------------------------------------------------------


def _state(facts: Facts) -> tuple[State, str, int | None]:
    start = facts.newest
    if start is None:
        return State.NEW, "", None
    if facts.waits:
        return State.WAITS, "a start waits: see `spark-ckpt plan`, and let it go on by `spark-ckpt approve`", None
    if start.to_set_back:
        return State.ROLLING_BACK, f"a rollback to checkpoint {start.restored_from} is to be finished", start.started_ms
    if facts.heard is not None:
        return _stuck(facts, start) or _paused(facts) or (State.RUNNING, "", start.started_ms)
    if facts.ended is None:
        done_ms = facts.completions[-1].completed_ms if facts.completions else start.started_ms
        return (
            State.CRASHED,
            "its driver ended without a word; the same command goes on",
            facts.last_heard_ms or done_ms,
        )
    if facts.ended.error is None:
        held = "" if facts.paused is None else f"and paused, so its next start reads nothing: {facts.paused.reason}"
        return State.STOPPED, held, facts.ended.time_ms
    return State.FAILED, f"{facts.ended.error}: {facts.ended.text}".removesuffix(": "), facts.ended.time_ms


def _paused(facts: Facts) -> tuple[State, str, int | None] | None:
    pause = facts.paused
    return None if pause is None else (State.PAUSED, pause.reason, pause.time_ms)


def patience_ms(settings: Mapping[str, str]) -> int:
    """How long a checkpoint may be open before the job counts as stuck."""
    return max(_INTERVALS * _interval_ms(settings), SHORTEST_STUCK_MS)


def _interval_ms(settings: Mapping[str, str]) -> int:
    try:
        return parse_duration_ms(settings.get("interval", ""))
    except ValueError:
        return 0  # set to no duration, such as "manual"


def _stuck(facts: Facts, start: GenerationRecord) -> tuple[State, str, int | None] | None:
    before_ms = facts.now_ms - patience_ms(start.settings)
    for record in facts.completions:
        if record.completed_ms < before_ms and record.checkpoint not in facts.committed and record.committables:
            sinks = ", ".join(sorted({c.sink for c in record.committables}))
            return State.STUCK, f"checkpoint {record.checkpoint} is complete and not committed in {sinks}", before_ms
    for trigger in facts.open_triggers:
        if trigger.time_ms < before_ms:
            return (
                State.STUCK,
                f"checkpoint {trigger.checkpoint} waits for {waits_for(facts, trigger)}",
                trigger.time_ms,
            )
    return None


def waits_for(facts: Facts, trigger: TriggerRecord) -> str:
    """Who has not acknowledged the checkpoint, as far as batches are recorded."""
    start = facts.newest
    assert start is not None
    pending = PendingCheckpoint(trigger.checkpoint, start.topology)
    for batch in facts.batches:
        for event in batch.events:
            if isinstance(event, SourceAck | OperatorAck) and event.checkpoint == trigger.checkpoint:
                pending = pending.acknowledge(event)[0]
        pending = pending.barrier(batch.barriers.get(trigger.checkpoint, 0))
    return ", ".join(pending.missing()) or "its completion"


# --- parts -----------------------------------------------------------------------------------------------------------


def _sinks(facts: Facts, start: GenerationRecord | None) -> tuple[SinkView, ...]:
    if start is None:
        return ()
    done = [c for c in facts.completions if c.checkpoint in facts.committed]
    newest = facts.completions[-1] if facts.completions else None
    shown = shown_by(newest, start.life, newest is not None and newest in done, facts.abandoned)
    return tuple(_sink(facts, sink, shown.get(sink, (0, "")), done) for sink in start.topology.sinks)


def _sink(facts: Facts, sink: str, shown: tuple[int, str], done: list[CompletionRecord]) -> SinkView:
    # A checkpoint without rows for the sink brings it up to date as well.
    cut = done[-1] if done else None
    return SinkView(
        id=sink,
        target=shown[1],
        shows=shown[0],
        behind_ms=None if cut is None else max(0, facts.now_ms - cut.triggered_ms),
        event_time_ms=None if cut is None else _watermark_ms(facts, cut.batch),
        waiting=tuple(
            c.checkpoint
            for c in facts.completions
            if c.checkpoint not in facts.committed and any(m.sink == sink for m in c.committables)
        ),
    )


def _operators(facts: Facts, newest: CompletionRecord | None) -> tuple[OperatorView, ...]:
    uids: Iterable[str] = newest.tables if newest is not None else ()
    alignment_ms = _alignment_ms(facts)
    seen: dict[str, TimeSeen] = {}
    late: Counter[str] = Counter()
    for _, times in sorted(_times(facts).items()):
        seen.update({t.uid: t for t in times})
        for t in times:
            late[t.uid] += t.late
    found = []
    for uid in uids:
        size, time = facts.state.get(uid, _UNKNOWN), seen.get(uid)
        watermark_us = None if time is None else time.watermark_us
        found.append(
            OperatorView(
                uid,
                size.keys,
                size.size_bytes,
                size.files,
                None if watermark_us is None else watermark_us // 1000,
                late[uid],
                alignment_ms.get(uid),
            )
        )
    return tuple(found)


def _alignment_ms(facts: Facts) -> dict[str, int]:
    """Of the slowest subtask of each operator."""
    phases = next((r.phases for r in reversed(facts.history) if r.phases), {})
    return {
        uid: max((times.get("alignment_ms", 0) for times in parts.values()), default=0)
        for uid, parts in phases.get("operators", {}).items()
    }


def rows_per_s(facts: Facts) -> dict[str, float]:
    """By source, over the last minute or since the oldest batch that is known. Empty if nothing can be said."""
    at = {batch: ms for record in facts.batches for batch, ms in record.at.items()}
    if facts.heard is None or not at:
        return {}
    since_ms = max(facts.now_ms - RATE_MS, min(at.values()))
    took_s = (facts.now_ms - since_ms) / 1000
    if took_s < 1:
        return {}
    counted: Counter[str] = Counter()
    rows = {batch: read for record in facts.batches for batch, read in record.rows.items()}
    for batch, read in rows.items():
        if at.get(batch, 0) > since_ms:
            counted.update(read)
    return {source: n / took_s for source, n in counted.items()}


def _sources(facts: Facts, newest: CompletionRecord | None, start: GenerationRecord | None) -> tuple[SourceView, ...]:
    if start is None:
        return ()
    rates, batch = rows_per_s(facts), max(facts.batches, key=lambda b: b.batch, default=None)
    behind = {} if batch is None else batch.figures.behind
    offsets = {} if newest is None else newest.sources
    topology = start.topology
    return tuple(
        SourceView(
            uid,
            topology.reads.get(uid, ""),
            offsets.get(uid, {}).get("inner"),
            rates.get(uid, 0.0) if rates else None,
            behind.get(uid),
            counted_in(topology.reads.get(uid, "")),
        )
        for uid in topology.sources
    )


def _times(facts: Facts) -> dict[int, tuple[TimeSeen, ...]]:
    """What operators went by, by batch: each record tells of those before it, too."""
    return {n: seen for batch in facts.batches for n, seen in batch.times.items()}


def _watermark_ms(facts: Facts, batch: int) -> int | None:
    """The query's, up to that batch: the lowest of all that tell one."""
    times = {n: seen for n, seen in _times(facts).items() if n <= batch and seen}
    if not times:
        return None
    known = [t.watermark_us for t in times[max(times)] if t.watermark_us is not None]
    return min(known) // 1000 if known else None
