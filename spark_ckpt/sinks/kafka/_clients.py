"""What the driver talks to Kafka with, kept from one commit to the next. Driver."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_ckpt.sinks.kafka._ledger import Ledger
from spark_ckpt.sinks.kafka._settings import KafkaSettings
from spark_ckpt.sinks.kafka._transactions import Transactions

_KEPT_S = 60
"""Brokers close connections that nobody used for some minutes (``connections.max.idle.ms``, 10)."""


@dataclass(frozen=True)
class Clients:
    """Each connects at first use."""

    ledger: Ledger
    transactions: Transactions

    def close(self) -> None:
        self.transactions.close()
        self.ledger.close()


class KeptClients:
    """Those of one sink object, the ledger's connections open. They are made anew after an error, whatever it was, and
    when they were not used for a minute: what they know may be old. Only one commit at a time has them; another one
    that runs meanwhile has its own. They are closed with this object.
    """

    def __init__(self, settings: KafkaSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._kept: list[tuple[Clients, float]] = []
        weakref.finalize(self, _close, self._kept).atexit = False

    @contextmanager
    def taken(self) -> Iterator[Clients]:
        clients = self._fresh()
        try:
            yield clients
        except BaseException:
            clients.close()
            raise
        # Not this one: kafka-python's client has a thread, which would look for brokers that are away all the time.
        clients.transactions.close()
        _close(self._kept)
        self._kept.append((clients, self._clock()))

    def _fresh(self) -> Clients:
        if self._kept and self._clock() - self._kept[0][1] < _KEPT_S:
            return self._kept.pop()[0]
        _close(self._kept)
        return Clients(Ledger(self._settings), Transactions(self._settings))


def _close(kept: list[tuple[Clients, float]]) -> None:
    while kept:
        kept.pop()[0].close()
