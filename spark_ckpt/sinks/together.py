"""Trying and committing the sinks of a checkpoint: those that share their step are asked together. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from spark_ckpt.errors import CorruptStorageError, FencedError, InvalidInputError, RetryableError
from spark_ckpt.protocol.setback import SinkFound
from spark_ckpt.protocol.steps import SinkRefused, Tried
from spark_ckpt.sinks.base import Part, PartError, TwoPhaseSink
from spark_ckpt.sinks.registry import bare
from spark_ckpt.sinks.side_by_side import Call, Outcome, side_by_side
from spark_ckpt.storage.retry import Retry, may_pass
from spark_ckpt.types import CommitPermit

Failed = Callable[[int, BaseException], None]
"""Told of each failure of a part, by its number; the part may be tried again, or not."""
REFUSALS = (InvalidInputError, CorruptStorageError)
"""By which a target says that it does not take the rows."""


def _unmarked(place: str) -> None:
    """Nobody wants to know."""


def _unheard(part: int, error: BaseException) -> None:
    """Nobody wants to know."""


def try_sinks(parts: Mapping[str, Part], retry: Retry, failed: Failed = _unheard) -> Tried:
    """What targets would refuse; ``parts`` by the sink's name. Raises what hinders the asking, of which ``failed`` is
    told."""
    names, newest = list(parts), [_newest(p) for p in parts.values()]
    rejected: dict[str, int] = {}

    def ask(group: Sequence[int]) -> None:
        chosen = [newest[i] for i in group]
        counts = retry.call(lambda: chosen[0].sink.try_commit(chosen), _telling(group, failed, REFUSALS))
        rejected.update({names[i]: rows for i, rows in zip(group, counts or (), strict=False) if rows})

    refused = []
    for i, error in enumerate(_each(newest, ask)):
        if isinstance(error, REFUSALS):
            refused.append(SinkRefused(names[i], str(error)))
        elif error is not None:
            raise error
    return Tried(tuple(refused), rejected)


def commit_sinks(
    permit: CommitPermit,
    parts: Sequence[Part],
    retry: Retry,
    mark: Callable[[str], None] = _unmarked,
    failed: Failed = _unheard,
) -> tuple[Exception | None, ...]:
    """What each raised, in order; None where it is committed, or where one that it shares its step with raised.
    ``mark``: called before and after each commit; ``failed``: each time one fails."""
    newest = [_newest(p) for p in parts]

    def commit(group: Sequence[int]) -> None:
        chosen = [newest[i] for i in group]
        for _ in group:
            mark("before CommitSink")
        # A commit may be repeated, whatever became of it, as after a crash.
        retry.call(lambda: chosen[0].sink.commit_together(permit, chosen), _telling(group, failed, (FencedError,)))
        for i in group:
            _, older = parts[i].sink.newest(parts[i].committables)
            if older:  # a crash here: nothing names them, gc removes them
                parts[i].sink.abort(older)
        for _ in group:
            mark("after CommitSink")

    return tuple(_each(newest, commit))


def ask_sinks(job: str, sinks: Mapping[str, TwoPhaseSink], retry: Retry) -> dict[str, SinkFound]:
    """The newest checkpoint of ``job``, an identity, that each of ``sinks`` shows, by the sink's name."""
    newest = {n: retry.call(partial(s.newest_checkpoint, job, n), may_be_repeated) for n, s in sinks.items()}
    return {n: SinkFound(newest[n], s.target) for n, s in sinks.items()}


def _telling(
    group: Sequence[int], failed: Failed, besides: tuple[type[Exception], ...]
) -> Callable[[BaseException], bool]:
    """:func:`may_be_repeated`, which tells of what it is asked about, ``besides`` what is no failure."""

    def asked(error: BaseException) -> bool:
        part, cause = (error.part, error.error) if isinstance(error, PartError) else (0, error)
        if not isinstance(cause, besides):
            failed(group[part], cause)
        return may_be_repeated(error)

    return asked


def _newest(part: Part) -> Part:
    sink = bare(part.sink)
    return Part(sink, sink.newest(part.committables)[0])


def _each(parts: Sequence[Part], action: Callable[[Sequence[int]], None]) -> list[Exception | None]:
    """``action`` for each group of parts, side by side; what it raised, at the part that it is about."""
    groups = _groups([p.sink for p in parts])
    outcomes = side_by_side([_call(action, group, parts[group[0]].sink) for group in groups])
    errors: list[Exception | None] = [None] * len(parts)
    for group, outcome in zip(groups, outcomes, strict=True):
        i, error = _at(outcome)
        errors[group[i]] = error
    return errors


def _call(action: Callable[[Sequence[int]], None], group: Sequence[int], sink: TwoPhaseSink) -> Call[None]:
    return Call(lambda: action(group), type(sink))


def _at(outcome: Outcome[None]) -> tuple[int, Exception | None]:
    error = outcome.error
    return (error.part, error.error) if isinstance(error, PartError) else (0, error)


def _groups(sinks: Sequence[TwoPhaseSink]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for i, sink in enumerate(sinks):
        shared = sink.shares
        found.setdefault(i if shared is None else (type(sink), shared), []).append(i)
    return list(found.values())


def may_be_repeated(error: BaseException) -> bool:
    """Whether what a sink does may succeed if it is done again."""
    error = error.error if isinstance(error, PartError) else error
    return isinstance(error, RetryableError) or may_pass(error)
