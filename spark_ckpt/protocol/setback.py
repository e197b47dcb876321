"""Whether what the sinks show and what the job's folder says belong together. Pure.

A target can be set back to an older copy while the job is stopped (a dump that is restored, ``RESTORE``, an older
folder), and so can the job's folder. Going on would leave rows out, or write them twice, without a word. So each start
compares, before it changes anything, for each of its sinks:

- *behind*: the target's newest checkpoint is older than the newest one that the job committed there;
- *ahead*: it is newer than every checkpoint that the folder has heard of.

What the job committed there is carried from completion record to completion record (``CompletionRecord.shown``):
a sink may get no rows for long, and older records are dropped.

Somebody may accept what was found, knowingly (``spark-ckpt accept``). That record holds for these two numbers only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_ckpt.protocol.records import AcceptedRecord, BatchRecord, CompletionRecord, Shown
from spark_ckpt.protocol.topology import Refuse


@dataclass(frozen=True)
class SinkFound:
    """What a sink's target says. ``newest``: the newest checkpoint of this job that it shows, 0 if it shows none;
    None: it cannot say. ``target``: where it is, in words."""

    newest: int | None
    target: str = ""


@dataclass(frozen=True)
class SetBack:
    """Sink ``sink`` shows ``found`` as its newest checkpoint. Behind: the job committed ``expected`` there. Ahead:
    ``expected`` is the newest that the folder has heard of."""

    sink: str
    target: str
    found: int
    expected: int

    @property
    def is_ahead(self) -> bool:
        return self.found > self.expected


# --- what was committed where ------------------------------------------------------------------------------------


def shown_by(
    record: CompletionRecord | None, life: str, confirmed: bool, abandoned: Collection[tuple[int, str]] = ()
) -> dict[str, tuple[int, str]]:
    """By sink: the newest checkpoint that was committed there when ``record`` was the job's newest, and the target.

    ``confirmed``: ``record`` itself is known to be committed. Nothing of a checkpoint that came from another life or
    another job, whose sinks know it by another identity.
    """
    if record is None or (record.origin <= 0 and (not life or record.life != life)):
        return {}
    shown = record.shown or {c.sink: Shown(record.checkpoint, 0) for c in record.committables}  # an older release's
    found = {}
    for sink, at in shown.items():
        own = at.checkpoint == record.checkpoint and record.origin > 0
        there = at.checkpoint if not own or (confirmed and (at.checkpoint, sink) not in abandoned) else at.before
        found[sink] = there, at.target
    return found


def shown_after(
    before: Mapping[str, tuple[int, str]], checkpoint: int, sinks: Iterable[str], targets: Mapping[str, str]
) -> dict[str, Shown]:
    """What the record of ``checkpoint`` says, which has rows for ``sinks``."""
    shown = {sink: Shown(at, 0, target) for sink, (at, target) in before.items()}
    for sink in sinks:
        shown[sink] = Shown(checkpoint, before.get(sink, (0, ""))[0], targets.get(sink, ""))
    return shown


# --- the comparison ----------------------------------------------------------------------------------------------


def set_back(
    expected: Mapping[str, tuple[int, str]], newest_known: int, found: Mapping[str, SinkFound]
) -> tuple[SetBack, ...]:
    """Those sinks of ``found`` that do not show what they should. ``expected``: as :func:`shown_by` gives it."""
    out = []
    for sink, there in found.items():
        if there.newest is None:
            continue
        least, target = expected.get(sink, (0, ""))
        if there.newest > newest_known:
            out.append(SetBack(sink, there.target, there.newest, newest_known))
        elif there.newest < least and not _writes_elsewhere(there, target):
            out.append(SetBack(sink, there.target, there.newest, least))
    return tuple(out)


def _writes_elsewhere(found: SinkFound, target: str) -> bool:
    """The query writes to another target now, on purpose: one that has nothing of this job."""
    return found.newest == 0 and bool(target) and bool(found.target) and found.target != target


def moved(expected: Mapping[str, tuple[int, str]], found: Mapping[str, SinkFound]) -> dict[str, tuple[str, str]]:
    """By sink: the target that it had and the one that it has, where that one shows nothing of this job."""
    out = {}
    for sink, there in found.items():
        least, target = expected.get(sink, (0, ""))
        if least and _writes_elsewhere(there, target):
            out[sink] = target, there.target
    return out


def waits_elsewhere(
    commit: Iterable[CompletionRecord], found: Mapping[str, SinkFound], abandoned: Collection[tuple[int, str]]
) -> Refuse | None:
    """A checkpoint is complete, and what it has for a sink waits in the target that the sink had: the query's new one
    has none of it."""
    for record in commit:
        for sink in dict.fromkeys(c.sink for c in record.committables):
            shown, there = record.shown.get(sink), found.get(sink)
            waits = shown is not None and shown.checkpoint == record.checkpoint
            if there is None or shown is None or not waits or (record.checkpoint, sink) in abandoned:
                continue
            if _writes_elsewhere(there, shown.target):
                k = record.checkpoint
                return Refuse(
                    f"checkpoint {k} is complete, and its rows for sink {sink!r} wait in {shown.target}: expected that "
                    f"target, found {there.target}. Start once with the target that it had, and change it then; or "
                    f"give these rows up: `spark-ckpt abandon DIR JOB {k} --sink {sink}`",
                    True,
                )
    return None


def is_accepted(found: SetBack, accepted: Iterable[AcceptedRecord]) -> bool:
    """A later set-back to the same checkpoint is another one: then more had been committed by then."""
    return any(found.is_ahead or found.expected <= a.known for a in _of(found, accepted))


def refuse_staged_before(
    job: str,
    differ: Iterable[SetBack],
    accepted: Collection[AcceptedRecord],
    batches: Iterable[BatchRecord],
    after: int,
) -> Refuse | None:
    """Whether the job would go on with rows that were staged before a set-back, which is accepted.

    They went with the target; or the folder's older batch records name what was committed since. No sink could ever
    commit them. ``batches``: those of the origin that goes on, from checkpoint ``after``.
    """
    by = {d.sink: max(a.generation for a in _of(d, accepted)) for d in differ}
    lost = sorted({c.sink for b in batches for c in b.staged if c.epoch > after and b.generation <= by.get(c.sink, 0)})
    if not lost:
        return None
    return Refuse(
        f"job {job!r}: the set-back is accepted, and batches at this checkpointLocation staged rows for "
        f"{' and '.join(map(repr, lost))} before it, which may be gone: expected another, empty checkpointLocation, "
        f"where the job reads them again from {f'checkpoint {after}' if after else 'the beginning'}"
    )


def _of(found: SetBack, accepted: Iterable[AcceptedRecord]) -> list[AcceptedRecord]:
    return [a for a in accepted if (a.sink, a.checkpoint) == (found.sink, found.found)]


# --- what is said ------------------------------------------------------------------------------------------------


def refuse_set_back(
    job: str, differ: Iterable[SetBack], completions: Iterable[CompletionRecord], found: Mapping[str, SinkFound]
) -> Refuse:
    """``completions``: those that are retained."""
    differ = tuple(differ)
    behind, ahead = [d for d in differ if not d.is_ahead], [d for d in differ if d.is_ahead]
    parts = [_behind(d) for d in behind] + [_ahead(d) for d in ahead]
    ways = []
    if behind:
        ways.append("put back the target's newer copy, if there is one, and start again")
        ways.append(_restoring(behind, list(completions), found))
    if ahead:
        ways.append("put back the job's newer folder, or set the target back to the checkpoint that the folder has")
    ways.append(_accepting(job, differ))
    text = "; ".join(parts) + ". Nothing was changed. Ways out:"
    return Refuse("".join([f"job {job!r}: {text}", *(f"\n- {way}" for way in ways)]))


def _name(d: SetBack) -> str:
    return f"sink {d.sink!r}" + (f" ({d.target})" if d.target else "")


def _behind(d: SetBack) -> str:
    shows = f"shows checkpoint {d.found} as its newest" if d.found else "shows no checkpoint of this job"
    how = "set back to an older copy" if d.found else "emptied, set back or made anew (perhaps by this start)"
    return (
        f"{_name(d)} {shows}: expected checkpoint {d.expected}, which the job committed there. The target was {how} "
        f"while the job was stopped, and to go on would leave out its rows of the checkpoints behind {d.found}"
    )


def _ahead(d: SetBack) -> str:
    known = f"checkpoint {d.expected} as its newest" if d.expected else "no checkpoint"
    return (
        f"{_name(d)} shows checkpoint {d.found}, and the job's folder knows {known}: the folder was set back to an "
        "older copy, or another copy of it ran with this sink"
    )


def _restoring(behind: list[SetBack], completions: list[CompletionRecord], found: Mapping[str, SinkFound]) -> str:
    fitting = [c for c in completions if all(_stands_at(c, d) for d in behind)]
    names = " and ".join(repr(d.sink) for d in behind)
    if not fitting:
        have = sorted(c.checkpoint for c in completions)
        return (
            f"of the checkpoints that are retained {have}, none is one where {names} stood as the target does now: to "
            "have all rows once again, empty the targets of all sinks and start with spark.ckpt.restore=none at an "
            "empty checkpointLocation, which reads all that the sources still have"
        )
    k = max(c.checkpoint for c in fitting)
    others = [s for s, f in found.items() if f.newest != 0 and s not in {d.sink for d in behind}]
    twice = f"; sinks that were not set back ({', '.join(others)}) get rows since then again" if others else ""
    return (
        f"start with spark.ckpt.restore={k} at an empty checkpointLocation: {names} gets all rows once, as far as the "
        f"sources still have them{twice}"
    )


def _stands_at(record: CompletionRecord, d: SetBack) -> bool:
    """Whether ``record``'s state is that of the rows which the target shows."""
    if record.origin <= 0:
        return False
    at = shown_by(record, record.life, True).get(d.sink)
    if at is not None:
        return at[0] == d.found
    # An older release did not record what earlier checkpoints had: only one that had nothing at all fits.
    return d.found == 0 and bool(record.shown)


def _accepting(job: str, differ: tuple[SetBack, ...]) -> str:
    calls = " and ".join(f"`spark-ckpt accept DIR {job} {d.found} --sink {d.sink}`" for d in differ)
    means = []
    if any(not d.is_ahead for d in differ):
        means.append("that rows are missing there for good")
    if any(d.is_ahead for d in differ):
        means.append("that rows since the folder's newest checkpoint are written there again")
    call = f"`spark_ckpt.job(dir, {job!r}).accept({differ[0].found}, sink={differ[0].sink!r})`"
    return (
        f"accept, knowingly, {' and '.join(means)}: {calls} (in Python {call}), then start again, at an empty "
        "checkpointLocation. Where the query writes to another target on purpose: give the sink another uid"
    )
