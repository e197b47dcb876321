"""The two-phase sink interface: what a sink must do so that a checkpoint can commit it exactly once.

After Flink's ``TwoPhaseCommittingSink``: writers run on executors and stage; the driver commits or aborts what
they staged once the checkpoint's completion record exists, possibly from another process after a crash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import BadRowError, InvalidInputError
from spark_ckpt.storage.retry import Retry
from spark_ckpt.types import CheckpointId, CommitPermit, Committable, Epoch


@dataclass(frozen=True)
class WriterContext:
    """Where a writer runs. ``attempt`` is unique to the task attempt, so staged names never collide; it has letters,
    digits and dashes only. ``job`` and ``sink`` may have any character that a name may have.

    ``job`` is the same identity as that of the permit that commits the rows: a job that starts anew in another folder,
    or after its folder was removed, has another one, though its name is the same.
    ``schema`` is the data's Arrow schema, without control columns. ``replacing`` is as in :class:`TwoPhaseSink`.
    ``refused`` is there with option ``rejects``: it takes a table of one row that the target does not take, and why;
    see :func:`spark_ckpt.sinks.rejects.accepted`.
    """

    job: str
    sink: str
    generation: int
    epoch: Epoch
    batch: int
    partition: int
    attempt: str
    schema: pa.Schema
    replacing: bool = False
    refused: Callable[[pa.Table, BadRowError], None] | None = None


@dataclass(frozen=True)
class JobPlace:
    """What a job has for its sinks: its settings, and ``url``, a folder below its own that a sink may make and fill, on
    the storage that ``config`` says."""

    url: str
    config: JobConfig = field(repr=False)


class SinkWriter(ABC):
    """Stages the rows of one task and epoch. Executor; one thread; lives for one task."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage ``batch``, which has the schema of the context: Spark's types in Arrow's ordinary layout. It may be
        buffered until :meth:`prepare_commit`."""

    @abstractmethod
    def prepare_commit(self) -> Sequence[bytes]:
        """Make everything written durable but invisible, and say how to commit it.

        Called once, after the last ``write``. What it returns must let *any* process commit or abort later, with
        the sink's options only; it must hold no secret. The task may still fail afterwards: what it staged is
        then garbage that :meth:`TwoPhaseSink.gc` finds. Without rows there is nothing to stage and to return, unless
        ``replacing``: then it is staged that there are none.
        """

    @abstractmethod
    def close(self) -> None:
        """Release resources. Called always, after ``prepare_commit`` or after a failure; must not raise."""


@dataclass(frozen=True)
class Part:
    """What one sink has in a checkpoint."""

    sink: TwoPhaseSink
    committables: Sequence[Committable]


class PartError(Exception):
    """``error`` is what part number ``part`` of several raised; none of them was committed."""

    def __init__(self, part: int, error: Exception) -> None:
        super().__init__(part, error)
        self.part, self.error = part, error


@dataclass(frozen=True)
class PastRows:
    """The rows that a target showed at a checkpoint. ``at``: where the target has them, in its own words, such as
    ``version 12``. ``read``: all of them, in this process, again with each call."""

    at: str
    read: Callable[[], pa.RecordBatchReader]


class TwoPhaseSink(ABC):
    """A target that takes part in checkpoints. Made from its options alone, on driver and executors alike.

    Constructing one does no I/O. It raises ``ConfigError`` for unknown or malformed options, naming the valid ones; the
    option ``columns`` is for every sink, and is taken care of before it gets here.

    Whether yours keeps to all that is said here is tried by the tests of
    :class:`spark_ckpt.testing.sink_conformance.SinkConformance`, which you inherit.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = ()
    """The valid option names, in the spelling of the documentation; matching ignores case."""

    CAN_REPLACE: ClassVar[bool] = False
    """Whether :attr:`replacing` is understood."""

    REJECTS: ClassVar[tuple[str, ...]] = ()
    """For a class with the option ``rejects``: the option that says where its rows go, and those that a sink of this
    class at another such place needs, too; ``a.*`` is a family. Its writers give bad rows to the context's
    ``refused``."""

    REJECTS_AS: ClassVar[Mapping[str, str]] = {}
    """Options that the sink for refused rows has besides."""

    SIDE_BY_SIDE: ClassVar[bool] = False
    """Whether a thread of its own may call :meth:`commit`, and :meth:`SinkWriter.prepare_commit` of its writers, while
    other threads do the same for sinks of other classes. Never two threads for one class. A checkpoint is then visible
    after the slowest of its sinks, and not after the sum of them."""

    replacing: bool = False
    """Output mode complete: what a checkpoint commits takes the place of all rows that the target had, in one step
    with their going. Set before any method is called."""

    place: JobPlace | None = None
    """What the job has for this sink. Set before any method is called, on driver and executors; None without a job."""

    on_step: Callable[[str], None] | None = None
    """Tests stop a commit between two of its durable steps here (see ``spark_ckpt.testing.sink_conformance``)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        """Driver, at start: ``options`` in which no path depends on the folder that this process runs in."""
        return dict(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"  # never the options: they may hold secrets

    def newest(self, committables: Sequence[Committable]) -> tuple[list[Committable], list[Committable]]:
        """(what a commit shows, the rest) of ``committables``: where rows are replaced, older epochs are those of
        checkpoints that were declined."""
        least = max(c.epoch for c in committables) if self.replacing else 0
        return [c for c in committables if c.epoch >= least], [c for c in committables if c.epoch < least]

    @property
    def patience_s(self) -> float:
        """How long what is away is waited for: as the job's settings say, else as they do by default."""
        return (Retry() if self.place is None else Retry.of(self.place.config)).timeout_s

    def _step(self, name: str) -> None:
        """Mark the boundary between two durable steps of ``commit``: a crash may happen here."""
        if self.on_step is not None:
            self.on_step(name)

    def validate(self, schema: pa.Schema) -> None:  # noqa: B027 - a sink that takes any schema need not check
        """Driver, once, before the query starts: ``schema`` is that of the rows, without control columns.

        Raise ``InvalidInputError`` if options or schema cannot work. The place to make tables and folders, if they are
        not there yet; what is there is kept.
        """

    @abstractmethod
    def writer(self, ctx: WriterContext) -> SinkWriter:
        """Executor: one writer for each task and epoch that has rows; ``ctx`` says which."""

    @abstractmethod
    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        """Driver: make everything staged under ``committables`` visible, all or nothing where the system can.

        Idempotent: called again with the same checkpoint after a crash, it changes nothing more: remember
        ``(permit.job, sink, permit.checkpoint)`` together with what becomes visible; ``sink`` is that of each of the
        committables. They are ordered by epoch and batch; where rows replace each other the later one wins. Never
        called without rows.

        Raise a ``CkptError`` that says what is "missing", and show nothing, if something staged is not there any more;
        one that says "other contents" if the checkpoint is remembered with other committables, which are another job's
        of the same identity. ``RetryableError`` is for what may pass: the checkpoint is committed by the next start.

        Nobody asks again for checkpoints before ``permit.oldest``: what is remembered of them may go, in the same
        transaction and a bounded number at a time. Asked for one all the same (by a driver that was halted for long),
        raise or do nothing; its rows must not become visible a second time.
        """

    @property
    def shares(self) -> str | None:
        """What this sink's rows become visible in one step with: sinks of one class and one query that say the same are
        tried and committed together, by the first of them. None: nothing is shared. It may hold secrets."""
        return None

    def try_commit(self, parts: Sequence[Part]) -> Sequence[int] | None:
        """Driver, in each checkpoint that has rows, before it is authorised: whether the target takes ``parts`` now.

        ``parts`` are this sink's, and those of the sinks that it shares its step with. Nothing may become visible or
        stay behind, and a target without rules of its own (constraints, triggers, limits) must cost nothing. Raise
        ``InvalidInputError`` with what is refused and by which rule: the checkpoint fails, the query ends, and the next
        start gives up all that is staged. Anything else that is raised ends the query, and the next start tries again.
        :class:`PartError` says which of several parts it is about. Returns how many rows of each part the commit will
        leave out of the target and write to where ``rejects`` says; nothing where it leaves none out.
        """
        return None

    def commit_together(self, permit: CommitPermit, parts: Sequence[Part]) -> None:
        """Driver: :meth:`commit` by ``permit`` for each of ``parts``; all of them in one step where the sinks say
        :attr:`shares`.

        Raise :class:`PartError` to say which of several failed."""
        for part in parts:
            part.sink.commit(permit, part.committables)

    def newest_checkpoint(self, job: str, sink: str) -> int | None:
        """Driver, once in each start of a job that was started before: the newest checkpoint of ``job`` whose rows the
        target shows for ``sink``; 0 if it shows none.

        By what :meth:`commit` remembers, in one cheap look-up that makes and changes nothing. A target that is set
        back to an older copy must say what is in that copy: the start is then refused, and says how all rows come once
        again. None, as here: the target cannot say, and nobody notices. Raises as :meth:`commit`.
        """
        return None

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        """Driver, at any time: what the target showed of ``sink`` when ``checkpoint`` of ``job`` was its newest.

        Raises ``InvalidInputError`` if it does not keep that.
        """
        raise InvalidInputError(f"{self!r} does not keep the rows that it had at earlier checkpoints")

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        """Driver, while the job is stopped: what :meth:`roll_back` would take away, in words; nothing if the target
        shows no checkpoint of ``job`` and ``sink`` behind ``checkpoint``. Makes and changes nothing.

        Raises ``InvalidInputError`` with the reason if the target cannot be set back: then it keeps what it has.
        """
        newest = self.newest_checkpoint(job, sink)
        if newest is not None and newest <= checkpoint:
            return ""
        holds = "what it was given" if newest is None else f"rows of checkpoints up to {newest}"
        raise InvalidInputError(f"{self!r} keeps {holds}: it cannot take them back")

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        """Driver, while the job is stopped: set the target back to what it showed of ``sink`` at ``checkpoint``
        of ``job``.

        Called where :meth:`to_undo` says what goes. Idempotent: called again after a crash, it does the rest, and
        nothing if it was done. :meth:`newest_checkpoint` says ``checkpoint``, or an older one, behind it. Later commits
        have larger ids than any that was undone. Raises as :meth:`to_undo`, and ``RetryableError`` for what may pass.
        """
        if self.to_undo(job, sink, checkpoint):
            raise NotImplementedError

    @property
    def target(self) -> str:
        """Where it writes to, in words that have no secrets; kept with each checkpoint, so that a start knows whether
        a target that shows nothing of the job is another one or was emptied."""
        return repr(self)

    @abstractmethod
    def abort(self, committables: Sequence[Committable]) -> None:
        """Driver: remove what was staged under ``committables``. Idempotent; must not touch what was committed."""

    def end_open(self, job: str, generation: int, keep: Sequence[Committable]) -> None:  # noqa: B027 - most need not
        """Driver, once in each start, behind all that it commits: end what generations of ``job`` before ``generation``
        have open in the target and nobody will commit. Only for what is in others' way while it waits for ``gc``.

        ``keep`` is as in :meth:`gc`. What is raised is logged, and the query starts.
        """

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        """Driver, while the job is stopped: remove what ``job`` staged and nobody will commit.

        ``job`` is the identity that its writers had, ``keep`` what may still be committed, of all the job's sinks.
        Returns the names of what was removed.
        """
        return []

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        """Driver, while the job is stopped: remove what is remembered of commits of ``job`` before ``oldest``.

        Of all its sinks that have their memory where this one has, but the newest of each, as
        :meth:`newest_checkpoint` asks for it. Nobody commits those checkpoints again. Returns what was removed, in
        words. A sink whose memory does not grow, or is what readers go by, need not do anything.
        """
        return []

    def staged_by(self) -> dict[str, int]:
        """Driver: who has something staged that is not committed, and how many things: identities of jobs, or what
        :func:`spark_ckpt.sinks.staging.tag` makes of them. For clean-up behind jobs whose folders are gone."""
        return {}

    def discard(self, who: str) -> list[str]:
        """Driver: remove what ``who``, as :meth:`staged_by` names it, staged. The caller knows that it is gone.

        Returns the names of what was removed.
        """
        return []
