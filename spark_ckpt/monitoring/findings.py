"""What is wrong with a job, or is about to be, and what to do: ``spark-ckpt doctor``. Pure.

Each check is a function of the overview that yields what it finds. A check that needs more history than there is
finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import median

from spark_ckpt.config_values import parse_duration_ms
from spark_ckpt.monitoring.overview import Overview, State
from spark_ckpt.monitoring.words import age_text, instant_text
from spark_ckpt.sources.places import kind_of
from spark_ckpt.storage.history import HistoryRow

RECENT = 10
"""So many checkpoints are compared with as many before them."""
_IN_A_ROW = 3
_GROWS = 2.0
_SKEW = 4.0
_SKEW_ROWS = 1000
_BEHIND = 5
_CLOCK_MS = 5_000
_NOTICEABLE_MS = 1000
_CATCH_UP_S = 600
_SINK_SHARE = 0.5
_NEAR = 0.8
_UNNAMED = 10
_TRANSACTION, _TRANSACTION_MS = "kafka.transaction.timeout.ms", 900_000
_DAY_MS = 86_400_000
_KEPT = {"kafka": (7 * _DAY_MS, "the topic"), "delta": (30 * _DAY_MS, "the table's log")}
"""What sources keep by default, by kind."""
_STANDING = (State.STOPPED, State.CRASHED, State.FAILED, State.PAUSED)
_HELD = "a slow or skewed task holds barriers back: `spark-ckpt stats --subtasks`"
_PHASE = "see which phase it is in `spark-ckpt stats`"


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """``code`` is for programs, ``what`` says what was found, ``todo`` what helps."""

    code: str
    severity: Severity
    what: str
    todo: str


def findings_of(overview: Overview) -> tuple[Finding, ...]:
    """Errors first."""
    found = [finding for check in CHECKS for finding in check(overview)]
    return tuple(sorted(found, key=lambda f: f.severity is not Severity.ERROR))


def _error(code: str, what: str, todo: str) -> Finding:
    return Finding(code, Severity.ERROR, what, todo)


def _warning(code: str, what: str, todo: str) -> Finding:
    return Finding(code, Severity.WARNING, what, todo)


def _completed(overview: Overview) -> list[HistoryRow]:
    return [r for r in overview.facts.history if r.outcome == "completed"]


def _duration(overview: Overview, name: str) -> int | None:
    try:
        return parse_duration_ms(overview.settings.get(name, ""))
    except ValueError:
        return None


# --- checks ----------------------------------------------------------------------------------------------------------


def not_running(overview: Overview) -> Iterator[Finding]:
    if overview.state is State.CRASHED:
        yield _error(
            "crashed",
            "no driver runs the job, and the last one ended without a word: it was killed, or its machine was",
            "start the same command again: it goes on from where it was, nothing is lost or doubled",
        )
    elif overview.state is State.FAILED:
        yield _error(
            "failed",
            f"the query ended with {overview.why}",
            "do what the message says, or mend that line; the driver's log has more. Then start the same command again",
        )
    elif overview.state is State.WAITS:
        yield _warning("waits", "a start waits for an approval", "look at `spark-ckpt plan`, then `spark-ckpt approve`")
    elif overview.state is State.ROLLING_BACK:
        yield _error("rollback", overview.why, "call the same `spark-ckpt rollback` again; it finishes what it began")


def paused(overview: Overview) -> Iterator[Finding]:
    pause = overview.facts.paused
    if pause is not None:
        yield _warning(
            "paused",
            f"the job is paused since {instant_text(pause.time_ms)} UTC, and reads nothing: {pause.reason}",
            "let it go on by `spark-ckpt resume` when the reason is gone, and while sources still keep what waits",
        )


def stuck(overview: Overview) -> Iterator[Finding]:
    if overview.state is not State.STUCK:
        return
    waiting = sorted({sink.id for sink in overview.sinks if sink.waiting})
    if waiting:
        yield _error(
            "stuck-commit",
            f"{overview.why} for longer than its patience",
            f"look into the driver's log for what sink {waiting[0]} says; if it can never take the rows, "
            "`spark-ckpt abandon` gives them up, with the job stopped",
        )
    else:
        yield _error(
            "stuck-checkpoint",
            overview.why,
            "look in Spark's UI for a task that does not end; a slow task or a full disk delays the barrier",
        )


def failing(overview: Overview) -> Iterator[Finding]:
    newest = overview.facts.history[-_IN_A_ROW:]
    if len(newest) == _IN_A_ROW and all(r.outcome != "completed" for r in newest):
        causes = ", ".join(sorted({r.reason or r.outcome for r in newest}))
        yield _error(
            "failing",
            f"the newest {_IN_A_ROW} checkpoints did not complete: {causes}",
            "nothing new is shown until one completes: remove the cause",
        )


def growing(overview: Overview) -> Iterator[Finding]:
    rows = _completed(overview)
    yield from _growing("alignment", "alignment", [r.alignment_ms for r in rows], _HELD)
    yield from _growing("duration", "the duration of checkpoints", _durations_ms(rows), _PHASE)


def _growing(code: str, what: str, values_ms: Sequence[int], todo: str) -> Iterator[Finding]:
    if len(values_ms) < 2 * RECENT:
        return
    before, now = median(values_ms[-2 * RECENT : -RECENT]), median(values_ms[-RECENT:])
    if now > _NOTICEABLE_MS and now > _GROWS * before:
        yield _warning(f"growing-{code}", f"{what} grew from {before / 1000:.1f} to {now / 1000:.1f} s", todo)


def too_slow(overview: Overview) -> Iterator[Finding]:
    interval_ms, timeout_ms = _duration(overview, "interval"), _duration(overview, "timeout")
    recent = [r.duration_ms or 0 for r in _completed(overview)[-RECENT:]]
    if len(recent) < RECENT:
        return
    if interval_ms and median(recent) > interval_ms:
        yield _warning(
            "longer-than-interval",
            f"a checkpoint takes {median(recent) / 1000:.1f} s, and one is due every {interval_ms / 1000:.1f} s",
            "checkpoints come later than asked for: give spark.ckpt.interval a larger value, or more tasks",
        )
    if timeout_ms and max(recent) > 0.8 * timeout_ms:
        yield _warning(
            "near-timeout",
            f"a checkpoint took {max(recent) / 1000:.1f} s; it is given up after {timeout_ms / 1000:.1f} s",
            "give spark.ckpt.timeout a larger value",
        )


def endless_state(overview: Overview) -> Iterator[Finding]:
    rows, start = _completed(overview)[-2 * RECENT :], overview.facts.newest
    if len(rows) < 2 * RECENT or start is None:
        return
    for uid, told in start.topology.operators.items():
        keys = [r.state[uid].keys for r in rows if uid in r.state]
        always = len(keys) == len(rows) and all(b > a for a, b in pairwise(keys))
        if always and told.get("timeout") in (None, "", "NoTimeout") and keys[-1] > _GROWS * keys[0]:
            yield _warning(
                "endless-state",
                f"the state of {uid} has no end: {keys[0]:,} keys, {keys[-1]:,} after {len(keys)} checkpoints",
                "let keys end: a watermark, a window, or a time-out of a function with state",
            )


def skewed(overview: Overview) -> Iterator[Finding]:
    for uid, operator in overview.facts.statistics.get("operators", {}).items():
        parts = {n: m["written_rows"]["mean"] for n, m in operator["subtasks"].items() if "written_rows" in m}
        if len(parts) < 2:
            continue
        largest = max(parts, key=lambda n: parts[n])
        usual = median(parts.values())
        if parts[largest] > _SKEW_ROWS and parts[largest] > _SKEW * max(usual, 1):
            yield _warning(
                "skew",
                f"subtask {largest} of {uid} changes {parts[largest]:,.0f} rows a checkpoint, the median {usual:,.0f}",
                "a few keys have most of the rows: aggregate in two steps, or choose a finer key",
            )


def stale(overview: Overview) -> Iterator[Finding]:
    interval_ms = _duration(overview, "interval")
    if overview.state is not State.RUNNING or not interval_ms:
        return
    for sink in overview.sinks:
        if sink.behind_ms is not None and sink.behind_ms > _BEHIND * max(interval_ms, 10 * _NOTICEABLE_MS):
            yield _warning(
                "stale",
                f"sink {sink.id} shows what was read {sink.behind_ms / 1000:.0f} s ago, with a checkpoint due every "
                f"{interval_ms / 1000:.1f} s",
                "checkpoints do not complete in time: see `spark-ckpt list`",
            )


def lagging(overview: Overview) -> Iterator[Finding]:
    """By rows: what other sources count says nothing of time."""
    if overview.state is not State.RUNNING:
        return
    for source in overview.sources:
        rate, left = source.rows_per_s, source.behind
        if source.counts == "rows" and rate and left and left / rate > _CATCH_UP_S:
            yield _warning(
                "lagging",
                f"source {source.uid} has {left:,} rows in front of it, {age_text(int(1000 * left / rate))} at the "
                f"{rate:,.0f} rows a second of the last minute",
                "see where a batch's time goes in Spark's UI; give the query more cores or partitions, and a larger "
                "limit of rows a batch if there is one",
            )


def slow_sink(overview: Overview) -> Iterator[Finding]:
    """A savepoint is written in the same phase, so those are left out."""
    rows = [r for r in _completed(overview) if r.kind == "checkpoint" and r.phases][-RECENT:]
    took_ms = [r.phases["driver"].get("commit_sinks_ms", 0) for r in rows]
    if len(rows) == RECENT and median(took_ms) > max(_NOTICEABLE_MS, _SINK_SHARE * median(_durations_ms(rows))):
        sinks = ", ".join(sink.id for sink in overview.sinks)
        yield _warning(
            "slow-sink",
            f"the commits of the sinks ({sinks}) take {median(took_ms) / 1000:.1f} s of a checkpoint's "
            f"{median(_durations_ms(rows)) / 1000:.1f} s",
            "look at the target: locks, small files, its load; seldomer checkpoints make fewer and larger commits",
        )


def failing_sinks(overview: Overview) -> Iterator[Finding]:
    """By the newest failure of each: at a checkpoint that waits for it, or at one of the newest."""
    facts, newest = overview.facts, max(overview.facts.committed, default=0)
    waiting = {c.checkpoint for c in facts.completions} - facts.committed | {t.checkpoint for t in facts.open_triggers}
    for last in facts.failing:
        where = f"sink {last.sink}, which writes to {last.target},"
        if last.checkpoint in waiting and (last.checkpoint, last.sink) not in facts.abandoned:
            yield _error(
                "failing-sink",
                f"{where} does not take checkpoint {last.checkpoint}: it failed {last.tries} times since "
                f"{instant_text(last.since_ms)} UTC, the last {age_text(facts.now_ms - last.time_ms)} ago by "
                f"{last.error}",
                "make the target take it; a job that has ended commits it when it is started again. If it can never "
                "take the rows, `spark-ckpt abandon` gives them up, with the job stopped",
            )
        elif newest - last.checkpoint < RECENT:
            yield _warning(
                "retried-sink",
                f"{where} failed {last.tries} times at checkpoint {last.checkpoint}, the last at "
                f"{instant_text(last.time_ms)} UTC by {last.error}",
                "look at the target and the way to it: load, locks, time-outs. What fails for longer than "
                "spark.ckpt.retry.timeout ends the query",
            )


def _durations_ms(rows: Sequence[HistoryRow]) -> list[int]:
    return [r.duration_ms or 0 for r in rows]


def transactions(overview: Overview) -> Iterator[Finding]:
    """Of Kafka sinks: the broker aborts a transaction that is open for too long."""
    longest_ms = max(_durations_ms(_completed(overview)[-RECENT:]), default=0) + overview.interval_ms
    waiting = {sink.id for sink in overview.sinks if sink.waiting}
    for sink in (s for s in overview.facts.sinks if s.format == "kafka"):
        limit_ms = _number(sink.options.get(_TRANSACTION)) or _TRANSACTION_MS
        if longest_ms > _NEAR * limit_ms:
            yield _warning(
                "transaction-timeout",
                f"transactions of sink {sink.id} are open for up to {age_text(longest_ms)}, and the broker aborts them "
                f"after {age_text(limit_ms)} ({_TRANSACTION})",
                f"raise {_TRANSACTION}, and the brokers' transaction.max.timeout.ms, or lower spark.ckpt.interval",
            )
        if overview.facts.heard is None and sink.id in waiting and sink.options.get("staging") == "kafka":
            yield _error(
                "open-transaction",
                f"rows of sink {sink.id} are complete and wait in a transaction, which the broker aborts after "
                f"{age_text(limit_ms)}: then they are lost",
                "start the job at once: it commits them",
            )


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None


def sources_that_forget(overview: Overview) -> Iterator[Finding]:
    """What a job that stands still wants to go on from is kept by its sources for a time."""
    done = overview.facts.completions
    if overview.completed_ms is None or overview.state not in _STANDING or done[-1].drained:
        return
    stands_ms = overview.facts.now_ms - overview.completed_ms
    for source in overview.sources:
        keeps_ms, what = _KEPT.get(kind_of(source.reads), (0, ""))
        if keeps_ms and stands_ms > keeps_ms / 2:
            yield _warning(
                "source-forgets",
                f"the job stands where it was {age_text(stands_ms)} ago, and {what} of source {source.uid} keeps "
                f"{age_text(keeps_ms)} unless it is set otherwise",
                "start the job before what it has to read next is gone, or keep it for longer there",
            )


def unnamed(overview: Overview) -> Iterator[Finding]:
    for uid, count in overview.facts.unnamed.items():
        if count >= _UNNAMED:
            yield _warning(
                "unnamed-files",
                f"{count:,} state files of {uid} are older than a day, and no checkpoint names them: crashes left them",
                "stop the job when it suits, and let `spark-ckpt gc` remove them",
            )


def settings_that_bite(overview: Overview) -> Iterator[Finding]:
    interval_ms, timeout_ms = _duration(overview, "interval"), _duration(overview, "timeout")
    pause_ms = _duration(overview, "minPause")
    if interval_ms and pause_ms and pause_ms > interval_ms:
        yield _warning(
            "pause-above-interval",
            f"spark.ckpt.minPause is {pause_ms / 1000:g} s, and spark.ckpt.interval {interval_ms / 1000:g} s: "
            "checkpoints come as seldom as the former says",
            "make spark.ckpt.minPause the smaller one, or set the interval that is meant",
        )
    if interval_ms and timeout_ms and timeout_ms < interval_ms:
        yield _warning(
            "timeout-below-interval",
            f"spark.ckpt.timeout is {timeout_ms / 1000:g} s, less than spark.ckpt.interval of {interval_ms / 1000:g} s",
            "a checkpoint may take its interval at least: give spark.ckpt.timeout a larger value",
        )


def clocks(overview: Overview) -> Iterator[Finding]:
    ahead_ms = (overview.facts.heard.time_ms if overview.facts.heard is not None else 0) - overview.facts.now_ms
    if ahead_ms > _CLOCK_MS:
        yield _warning(
            "clock",
            f"the driver's clock is {ahead_ms / 1000:.0f} s ahead of this machine's",
            "synchronise clocks: ages shown here are wrong by as much, and so is who counts as alive",
        )


def unreadable(overview: Overview) -> Iterator[Finding]:
    for problem in overview.facts.problems:
        yield _error("unreadable", problem, "`spark-ckpt verify` reads all that the job needs, and says what helps")


CHECKS: tuple[Callable[[Overview], Iterable[Finding]], ...] = (
    not_running,
    paused,
    stuck,
    failing,
    growing,
    too_slow,
    endless_state,
    skewed,
    stale,
    lagging,
    slow_sink,
    failing_sinks,
    transactions,
    sources_that_forget,
    unnamed,
    settings_that_bite,
    clocks,
    unreadable,
)
