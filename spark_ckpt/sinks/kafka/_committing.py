"""The driver's half: one checkpoint's transactions are committed, and those that the broker aborted produced again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks.kafka import _ledger as ledgers
from spark_ckpt.sinks.kafka._clients import Clients
from spark_ckpt.sinks.kafka._copies import file_of, read_copy
from spark_ckpt.sinks.kafka._ledger import Entry, Memory
from spark_ckpt.sinks.kafka._producing import OpenTransaction
from spark_ckpt.sinks.kafka._settings import KIND, KafkaSettings
from spark_ckpt.sinks.kafka._transactions import COMMITTED, COMMITTING, ONGOING, Transactions
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.types import CommitPermit, Committable

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class Staged:
    """What one task staged, by its transaction's id."""

    transaction: str
    rows: int
    copy: bool


def staged_of(committables: Sequence[Committable]) -> list[Staged]:
    found = (staging.decode(KIND, c) for c in committables)
    return [Staged(f["transaction"], f["rows"], f["copy"]) for f in found]


class Commit:
    """One checkpoint. ``copies``: where the second copies are, if anywhere.

    1. the ledger's entry of the checkpoint, 2. every transaction committed, 3. what was lost produced again, in one
    transaction together with what says so, 4. the copies removed. Whatever is done by then is found by the next one.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        clients: Clients,
        copies: Folder | None,
        permit: CommitPermit,
        committables: Sequence[Committable],
        on_step: Callable[[str], None],
    ) -> None:
        self._settings, self._copies, self._permit, self._step = settings, copies, permit, on_step
        self._sink, self._staged = staging.sink_of(committables), staged_of(committables)
        self._entry = Entry(staging.digest(committables), tuple(s.transaction for s in self._staged))
        self._ledger, self._transactions = clients.ledger, clients.transactions

    def run(self) -> None:
        memory = self._memory()
        done = self._commit_open(memory)
        self._step("transactions committed")  # a crash here: the next commit finds that they are, and does the rest
        lost = [s for s in self._staged if s.transaction not in done]
        if lost:
            self._require_rest(done, "The others were committed")
            self._produce_again(lost)
            self._step("lost rows produced again")  # a crash here: the ledger says so, the next one removes the copies
        self._end_orphans()
        if self._permit.oldest is not None:
            self._ledger.forget(self._permit.job, memory, memory.before(self._permit.oldest))
        self._remove_copies()

    def _commit_open(self, memory: Memory) -> set[str]:
        """Commit what is open; the ids of all that are committed or were produced again by then."""
        done = self._done(memory)
        known = self._transactions.describe(self._entry.transactions)
        states = {i: t.state for i, t in known.items()}
        done |= self._ended_well(states)
        open_ = [i for i, state in states.items() if state in (ONGOING, COMMITTING)]
        self._require_rest({*done, *open_}, "Nothing was committed")
        if len(done) == len(self._staged):
            return done
        if self._place not in memory.entries:
            self._ledger.remember(self._permit.job, self._sink, self._permit.checkpoint, self._entry)
        # A crash here: nothing is visible; the next commit finds the entry and goes on.
        self._step("entry written")
        states.update(self._transactions.settle(open_, True, self._step, known))
        return done | self._ended_well(states)

    @property
    def _place(self) -> tuple[str, int]:
        return self._sink, self._permit.checkpoint

    def _memory(self) -> Memory:
        memory = self._ledger.read(self._permit.job, self._sink)
        entry = memory.entries.get(self._place)
        target = f"kafka {self._settings.servers}: ledger topic {self._ledger.topic}"
        recorded = None if entry is None else entry.digest
        staging.check_same_life(target, self._permit, self._sink, recorded, self._entry.digest)
        return memory

    def _done(self, memory: Memory) -> set[str]:
        return set(memory.reproduced.get(self._place, ()))

    def _ended_well(self, states: dict[str, str]) -> set[str]:
        """Those that are committed; of those that no coordinator knows, the ledger tells."""
        forgotten = [i for i in self._entry.transactions if i not in states]
        return {i for i, state in states.items() if state == COMMITTED} | self._ledger.committed(forgotten)

    def _require_rest(self, there: set[str], so_far: str) -> None:
        """What is neither committed nor open must have a copy. Raises ``CorruptStorageError``."""
        gone = [s for s in self._staged if s.transaction not in there and not self._has_copy(s)]
        if not gone or self._done(self._memory()) >= {s.transaction for s in gone}:  # or another driver was faster
            return
        told = (
            f"kafka {self._settings.servers}: checkpoint {self._permit.checkpoint}: {len(gone)} of "
            f"{len(self._staged)} transactions with {sum(s.rows for s in gone)} rows are missing: the broker aborted "
            f"them, and there is no copy ({', '.join(s.transaction for s in gone[:3])}{', ...' * (len(gone) > 3)})"
        )
        if self._settings.fail_on_loss or self._settings.durable:
            raise CorruptStorageError(
                f"{told}. {so_far}. To go on without these rows set failOnDataLoss=false and "
                "staging=kafka; to have copies from now on, staging=durable"
            )
        _log.error("%s. They are LOST, as failOnDataLoss=false allows; the query goes on", told)

    def _has_copy(self, staged: Staged) -> bool:
        return staged.copy and self._copies is not None and self._copies.exists(file_of(staged.transaction))

    def _produce_again(self, lost: list[Staged]) -> None:
        """In a transaction whose id is always the same: beginning it ends that of a driver that was stopped in here."""
        lost = [s for s in lost if s.copy]
        if not lost:
            return
        name = f"{staging.staged_prefix(self._permit.job)}{staging.tag(self._sink)}-again"
        again = OpenTransaction(self._settings, name, f"producing rows of checkpoint {self._permit.checkpoint} again")
        try:
            self._step("begun again")  # a crash here, or below: the next one ends this transaction, and begins anew
            done = self._done(self._memory())  # what an earlier one committed is in there by now
            lost = [s for s in lost if s.transaction not in done]
            if not lost:
                again.abort()
                return
            self._fill(again, lost, done)
            self._step("filled again")
        except Exception:
            again.abort()
            raise
        again.commit()

    def _fill(self, again: OpenTransaction, lost: Sequence[Staged], done: set[str]) -> None:
        assert self._copies is not None
        _log.warning(
            "kafka %s: checkpoint %d: the broker aborted %d of its transactions before they were committed; their %d "
            "rows are produced again from their copies", self._settings.servers, self._permit.checkpoint, len(lost),
            sum(s.rows for s in lost),
        )  # fmt: skip
        for s in lost:
            for rows in read_copy(self._copies, s.transaction):
                again.send(rows, self._settings.topic)
        said = {"transactions": sorted({*done, *(s.transaction for s in lost)})}
        key = ledgers.reproduced_key(self._permit.job, self._sink, self._permit.checkpoint)
        again.record(self._ledger.topic, ledgers.COMMITS, key, ledgers.encoded(said))
        again.flush()

    def _end_orphans(self) -> None:
        """Of tasks that were killed, and of attempts that others overtook: open, they would hold back readers of what
        was just committed until their time is over. All rows of these epochs are staged: nobody needs them any more."""
        prefix = f"{staging.staged_prefix(self._permit.job)}{staging.tag(self._sink)}-e"
        open_ = (i for i in self._transactions.open(prefix) if i not in self._entry.transactions)
        old = [i for i in open_ if int(i[len(prefix) :].partition("-")[0]) <= self._permit.checkpoint]
        self._transactions.settle(old, False, lambda _: None)
        if self._copies is not None:
            for orphan in old:
                self._copies.remove(file_of(orphan))

    def _remove_copies(self) -> None:
        for s in self._staged:
            if s.copy and self._copies is not None:
                self._copies.remove(file_of(s.transaction))


def abort(settings: KafkaSettings, copies: Folder | None, staged: Sequence[Staged]) -> None:
    """End what is open of ``staged``, and remove the copies. What was committed stays."""
    with Transactions(settings) as transactions:
        found = transactions.describe(s.transaction for s in staged)
        open_ = [t.id for t in found.values() if t.state == ONGOING]
        transactions.settle(open_, False, lambda _: None)
    for s in staged:
        if s.copy and copies is not None:
            copies.remove(file_of(s.transaction))
