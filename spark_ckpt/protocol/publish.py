"""Makes a complete checkpoint visible: the only module that asks for a commit permit.

Part of the sink's commit: see :mod:`spark_ckpt.protocol.commit` for the order of all steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spark_ckpt.errors import CkptError, FencedError
from spark_ckpt.protocol._fencing import fence
from spark_ckpt.protocol._view import JobView, Steps
from spark_ckpt.protocol.abandon import with_ways_out
from spark_ckpt.protocol.permit import permit_for
from spark_ckpt.protocol.records import REJECTED_ROWS, SAVEPOINT, CommittedRecord, CompletionRecord
from spark_ckpt.protocol.steps import (
    AnswerRequest,
    AppendHistory,
    CommitSink,
    CommitSinks,
    SavepointFailed,
    WriteCommitted,
    WriteSavepoint,
)
from spark_ckpt.types import CheckpointId, Committable


def publish(
    view: JobView,
    record: CompletionRecord,
    now_ms: int,
    subtasks: Mapping[str, Mapping[int, Mapping[str, int]]] | None = None,
) -> Steps:
    """Make a complete checkpoint visible. The only place that asks for a commit permit."""
    permit = permit_for(record, view.job, view.oldest)
    sinks = by_sink(record.committables, record.topology.sinks)
    abandoned = [sink for sink, _ in sinks if (record.checkpoint, sink) in view.abandoned]
    commits = tuple(CommitSink(permit, sink, group) for sink, group in sinks if sink not in abandoned)
    if commits:
        raised = yield CommitSinks(commits)
        # Stopped in it or here: the record authorises the rest; the next start commits every sink again, which changes
        # nothing where it was done.
        _check_committed(view, commits, raised)
    failed: SavepointFailed | None = None
    if record.kind == SAVEPOINT and record.target is not None:
        # After the sinks: whoever restores the savepoint, perhaps under another job's name that no ledger knows, finds
        # nothing left to commit. Before `committed/K`: that announces it, so it is complete when announced.
        failed = yield WriteSavepoint(record)
        # Stopped here: no `committed/K`, so the next start commits and writes it again.
    # A driver that was fenced since must not confirm what its successor may have dropped by now.
    yield from fence(view)
    unwritten = failed.reason if failed else None
    if record.request is not None:
        # Before `committed/K`, after which nobody comes here again: no request stays open that was answered.
        yield AnswerRequest(record.request, CheckpointId(record.checkpoint), unwritten)
        # Stopped here: as above; the answer stands.
    done = CommittedRecord(record.checkpoint, view.generation, now_ms, unwritten, tuple(abandoned))
    yield WriteCommitted(done)
    # Stopped here: K is done; the history misses a row, and what may be dropped is dropped after the next checkpoint.
    yield replace(history_of_completion(record, done), subtasks=subtasks or {})
    return replace(view, committed=view.committed | {record.checkpoint})


def _check_committed(view: JobView, commits: Sequence[CommitSink], raised: Sequence[Exception | None]) -> None:
    """Raise what the first sink raised that was not committed; its message names the others, too."""
    failed = [(c, e) for c, e in zip(commits, raised, strict=True) if e is not None]
    if not failed:
        return
    fenced = next((e for _, e in failed if isinstance(e, FencedError)), None)
    if fenced is not None:
        raise fenced
    (commit, error), *more = failed
    others = "".join(f"; sink {c.sink!r} failed, too: {_said(e)}" for c, e in more)
    text = with_ways_out(_said(error) + others, view.job, commit.permit.checkpoint, commit.sink)
    if not isinstance(error, CkptError):
        raise CkptError(text) from error
    error.args = (text,)
    raise error


def _said(error: Exception) -> str:
    """What a user's sink says may hold secrets."""
    return str(error) if isinstance(error, CkptError) else type(error).__name__


def by_sink(
    committables: Iterable[Committable], order: tuple[str, ...] = ()
) -> list[tuple[str, tuple[Committable, ...]]]:
    """The committables of each sink that has any, in the order they were staged; sinks of ``order`` first."""
    groups: dict[str, list[Committable]] = {sink: [] for sink in order}
    for c in committables:
        groups.setdefault(c.sink, []).append(c)
    return [(sink, tuple(g)) for sink, g in groups.items() if g]


def history_of_completion(record: CompletionRecord, done: CommittedRecord | None) -> AppendHistory:
    remarks = [f"given up in sink {sink!r}" for sink in (done.abandoned if done else ())]
    rejected = {uid: values[REJECTED_ROWS] for uid, values in record.stats.items() if REJECTED_ROWS in values}
    remarks += [f"{rows} row(s) rejected in sink {sink!r}" for sink, rows in rejected.items()]
    if done and done.savepoint_error:
        remarks.append(f"savepoint not written: {done.savepoint_error}")
    return AppendHistory(
        CheckpointId(record.checkpoint),
        record.kind,
        "completed",
        record.generation,
        record.origin,
        record.batch,
        record.triggered_ms,
        record.completed_ms,
        "; ".join(remarks) or None,
        record.target,
        record.stats,
    )
