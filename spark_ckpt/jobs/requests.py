"""Manual requests: how a user's process asks the running job for a checkpoint or savepoint.

``requests/R`` is there from the moment it is asked until a trigger takes it up: ``triggers/K`` then names it.
``answers/R``, created if absent, is the last word: checkpoint K, an error, or that it was withdrawn. It has one winner:
either the job's commit answers, or whoever asked (or the job, when the time is over) withdraws.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from spark_ckpt import clock
from spark_ckpt.errors import CheckpointFailedError, CorruptStorageError, InvalidInputError
from spark_ckpt.jobs._savepoint_target import require_free
from spark_ckpt.jobs.records import JobRecords, report
from spark_ckpt.protocol import codec
from spark_ckpt.protocol.codec import later
from spark_ckpt.protocol.records import Kind
from spark_ckpt.protocol.source_steps import ManualRequest
from spark_ckpt.storage.filesystem import normalize_url
from spark_ckpt.storage.job_paths import JobPaths, request_of
from spark_ckpt.storage.record_store import Exists, RecordStore

_POLL_S = 0.1
_OLD_TIMEOUT_MS = 600_000
"""Requests of releases that wrote no deadline: nobody waited longer by default."""


@dataclass(frozen=True)
class Answer:
    """``checkpoint`` None: ``error`` says why it was withdrawn. With both, the checkpoint is complete and its savepoint
    could not be written."""

    checkpoint: int | None
    error: str | None = None


@dataclass(frozen=True)
class Asked:
    """``requests/R``."""

    kind: Kind
    time_ms: int
    target: str | None
    terminal: bool
    deadline_ms: int | None = later(None)
    drain: bool = later(False)


def create_request(
    store: RecordStore,
    kind: str,
    target: str | None = None,
    terminal: bool = False,
    timeout_s: float = 600.0,
    drain: bool = False,
) -> str:
    """Any process: leave a request; returns its id. The job's first source takes it up within a poll interval, and
    nobody does once ``timeout_s`` have passed."""
    now_ms = clock.now_ms()
    request = f"{now_ms:013d}-{uuid.uuid4().hex[:8]}"
    # Where it is relative to is known here, and not to the process that will answer.
    absolute = None if target is None else normalize_url(target)
    deadline_ms = now_ms + int(timeout_s * 1000)
    asked = Asked(kind, now_ms, absolute, terminal, deadline_ms, drain)
    store.create(JobPaths.request(request), "request", codec.write(asked))
    return request


def open_requests(store: RecordStore) -> list[ManualRequest]:
    """All requests that were neither taken up nor withdrawn, oldest first.

    One that has its answer is none, though storage may have failed when it was to be removed, and the trigger that took
    it up may be gone by now.
    """
    found = []
    for name in store.names("requests"):
        path = JobPaths.listed("requests", name)
        try:
            body = store.read(path, "request")
            if body is not None and read_answer(store, request_of(name)) is None:
                found.append(_request(request_of(name), codec.read(Asked, body, path)))
        except CorruptStorageError as damage:
            report(damage)  # whoever asked waits in vain, and asks again
    return found


def _request(request: str, asked: Asked) -> ManualRequest:
    deadline_ms = asked.time_ms + _OLD_TIMEOUT_MS if asked.deadline_ms is None else asked.deadline_ms
    return ManualRequest(request, asked.kind, asked.time_ms, asked.target, asked.terminal, deadline_ms, asked.drain)


def drop_request(store: RecordStore, request: str) -> None:
    store.delete(JobPaths.request(request))


def answer_request(store: RecordStore, request: str, answer: Answer) -> Answer:
    """Say the last word if nobody has, or if nobody can read what was said; returns what was said."""
    path = JobPaths.answer(request)
    body = codec.write(answer)
    try:
        found = store.create(path, "answer", body)
        return codec.read(Answer, found.body, path) if isinstance(found, Exists) else answer
    except CorruptStorageError as damage:
        report(damage)  # every start would meet it, before it confirms the checkpoint
        store.replace(path, "answer", body)
        return answer


def read_answer(store: RecordStore, request: str) -> Answer | None:
    path = JobPaths.answer(request)
    try:
        body = store.read(path, "answer")
        return None if body is None else codec.read(Answer, body, path)
    except CorruptStorageError as damage:
        report(damage)  # whoever asked waits in vain until its time is over
        return None


def withdraw_request(store: RecordStore, request: str, reason: str) -> Answer:
    """Nobody waits for it any more; returns the answer that stands, if the job was quicker."""
    said = answer_request(store, request, Answer(None, reason))
    # Stopped here: it is withdrawn; the job's first source drops it when its time is over.
    drop_request(store, request)
    return said


def drop_old_answers(store: RecordStore, before_ms: int) -> None:
    """Answers that everybody has read: their ids begin with the time when they were asked."""
    for name in store.names("answers"):
        if name[:13].isdigit() and int(name[:13]) < before_ms:
            request = request_of(name)
            # The request first: without its answer it must not look open.
            drop_request(store, request)
            store.delete(JobPaths.answer(request))


def leave_request(
    records: JobRecords, kind: str, target: str | None, terminal: bool, timeout_s: float, drain: bool = False
) -> str:
    """:func:`create_request`. Raises ``InvalidInputError`` if ``target`` is not free; then the job is not asked."""
    if target is not None:
        require_free(RecordStore(target, records.store.storage_options, records.store.folder.retry), records.store.url)
    return create_request(records.store, kind, target, terminal, timeout_s, drain)


def ask(
    records: JobRecords,
    kind: str,
    target: str | None,
    terminal: bool,
    timeout_s: float,
    alive: Callable[[], None],
    drain: bool = False,
) -> int:
    """Ask the running job for a checkpoint and wait until it is committed; returns its id.

    ``alive`` raises when waiting makes no sense any more. Raises ``CheckpointFailedError`` if the checkpoint was
    aborted or time ran out, ``InvalidInputError`` if the savepoint could not be written; a ``target`` that is not free
    is refused before the job is asked. Then the request is withdrawn: the job does not take it up later, gives up what
    it has begun, and goes on. Only a ``drain`` whose barrier was sent goes on draining, with a final checkpoint of its
    own.
    """
    deadline = time.monotonic() + timeout_s
    request = leave_request(records, kind, target, terminal, timeout_s, drain)
    try:
        found = _wait(RequestWatch(records, request), deadline, alive)
    except BaseException as e:
        said = withdraw_request(records.store, request, f"whoever asked for it stopped waiting: {type(e).__name__}")
        # The job was quicker: its answer stands.
        if said.checkpoint is None or not isinstance(e, CheckpointFailedError):
            raise
        found = _answered(request, said)
    if found.unwritten:
        raise InvalidInputError(found.error)
    assert found.checkpoint is not None
    return found.checkpoint


OPEN, COMPLETE, FAILED = "open", "complete", "failed"


@dataclass(frozen=True)
class Requested:
    """What became of a request: ``state`` is ``open``, ``complete`` or ``failed``. ``checkpoint``: the one that answers
    it, as far as it has begun. ``error``: why it failed; ``unwritten``: only the savepoint did, the checkpoint is
    complete."""

    request: str
    state: str
    checkpoint: int | None = None
    error: str | None = None
    unwritten: bool = False

    def __str__(self) -> str:
        at = "" if self.checkpoint is None else f", checkpoint {self.checkpoint}"
        return f"{self.state}{at}{'' if self.error is None else f': {self.error}'}"


class RequestWatch:
    """Looks what became of ``request``, again and again: each trigger is read once."""

    def __init__(self, records: JobRecords, request: str) -> None:
        self._records, self.request = records, request
        self._taken: int | None = None
        self._seen: set[int] = set()

    def look(self) -> Requested:
        """Raises ``InvalidInputError`` if nothing is known of such a request."""
        records, request = self._records, self.request
        # First: whoever takes it up writes the trigger, or the answer, and then removes it.
        waits = records.store.exists(JobPaths.request(request))
        answer = read_answer(records.store, request)
        if answer is not None and records.newest_committed() >= (answer.checkpoint or 0):
            return _answered(request, answer)
        taken = self._trigger()
        gone = records.aborted(taken) if taken is not None else None
        if gone is not None:
            return Requested(request, FAILED, taken, f"checkpoint {taken} was aborted: {gone.reason}")
        if answer is None and taken is None and not waits:
            raise InvalidInputError(f"expected a request to this job of the last day, found {request!r}")
        return Requested(request, OPEN, taken)

    def _trigger(self) -> int | None:
        """The checkpoint that took it up."""
        for k in self._records.ids("triggers") if self._taken is None else ():
            trigger = self._records.trigger(k) if k not in self._seen else None
            self._seen.add(k)
            self._taken = k if trigger is not None and trigger.request == self.request else self._taken
        return self._taken


def _answered(request: str, answer: Answer) -> Requested:
    if answer.checkpoint is None:
        return Requested(request, FAILED, None, f"request {request} was withdrawn: {answer.error}")
    if answer.error is None:
        return Requested(request, COMPLETE, answer.checkpoint)
    error = f"the savepoint was not written, and checkpoint {answer.checkpoint} is complete without it: {answer.error}"
    return Requested(request, FAILED, answer.checkpoint, error, unwritten=True)


def _wait(watch: RequestWatch, deadline: float, alive: Callable[[], None]) -> Requested:
    """The job's answer, once the checkpoint is confirmed as committed."""
    while time.monotonic() < deadline:
        found = watch.look()
        if found.state == COMPLETE or found.unwritten:
            return found
        if found.state == FAILED:
            raise CheckpointFailedError(found.error)
        alive()
        time.sleep(_POLL_S)
    raise CheckpointFailedError(
        f"request {watch.request} was not answered in time and is withdrawn; is the query running and not stuck in a "
        "batch?"
    )
