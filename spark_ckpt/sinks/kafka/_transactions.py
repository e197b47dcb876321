"""The fate of transactions that any process began, and ending them. Driver.

A transactional id of ours is used for one transaction and never again, so its state tells its fate: no other
transaction can hide it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_ckpt.errors import RetryableError
from spark_ckpt.sinks.kafka._errors import patiently
from spark_ckpt.sinks.kafka._settings import KafkaSettings

if TYPE_CHECKING:
    from spark_ckpt.sinks.kafka._protocol import ProtocolClient, Transaction

ONGOING, COMMITTING, COMMITTED = "Ongoing", "PrepareCommit", "CompleteCommit"
_OPEN = (ONGOING, COMMITTING, "PrepareAbort")
_POLL_S = 0.01


class Transactions:
    """One connection, made at first use and made anew after an error. Use as a context manager, or close it; one
    thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: ProtocolClient | None = None

    def __enter__(self) -> Transactions:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def settle(
        self,
        ids: Collection[str],
        commit: bool,
        on_step: Callable[[str], None],
        known: Mapping[str, Transaction] | None = None,
    ) -> dict[str, str]:
        """End those that are open, and wait until all have ended; their states, of those that the broker still knows.

        Idempotent. ``on_step`` is told when one has been asked to end and the others have not. ``known`` is what was
        just told of them.
        """
        found = self.describe(ids) if known is None else {i: known[i] for i in ids if i in known}
        ongoing = [t for t in found.values() if t.state == ONGOING]
        self._end(ongoing[:1], commit)
        on_step("one transaction ended")  # a crash here: the next commit finds those that ended, and ends the others
        self._end(ongoing[1:], commit)
        deadline = time.monotonic() + self._settings.patience_s
        while open_ := [t.id for t in found.values() if t.state in _OPEN]:
            found.update(self.describe(open_))
            if not any(t.state in _OPEN for t in found.values()):
                break
            self._end([t for t in found.values() if t.state == ONGOING], commit)
            if time.monotonic() > deadline:
                raise RetryableError(
                    f"kafka {self._settings.servers}: {len(open_)} transaction(s) have not ended after "
                    f"{self._settings.patience_s:g} s; start the query again when all partitions have a leader"
                )
            time.sleep(_POLL_S)
        return {t.id: t.state for t in found.values()}

    def describe(self, ids: Iterable[str]) -> dict[str, Transaction]:
        """By id; those that no coordinator knows (any more) are left out."""
        wanted = list(ids)
        return self._ask("looking at transactions", lambda c: c.describe(wanted)) if wanted else {}

    def open(self, prefix: str) -> list[str]:
        """The ids of open transactions that begin with ``prefix``, of all brokers."""
        return [i for i in self._ask("listing transactions", lambda c: c.open()) if i.startswith(prefix)]

    def _end(self, transactions: Sequence[Transaction], commit: bool) -> None:
        if transactions:
            doing = f"{'committing' if commit else 'aborting'} {len(transactions)} transaction(s)"
            self._ask(doing, lambda c: c.end(transactions, commit))

    def _ask(self, doing: str, request: Callable[[ProtocolClient], Any]) -> Any:
        def attempt() -> Any:
            try:
                return request(self._connected())
            except BaseException:
                self.close()  # what it knew of coordinators may be old
                raise

        return patiently(f"kafka {self._settings.servers}: {doing}", self._settings, attempt)

    def _connected(self) -> ProtocolClient:
        if self._client is None:
            from spark_ckpt.sinks.kafka._protocol import ProtocolClient

            self._client = ProtocolClient(self._settings.protocol_client())
        return self._client
