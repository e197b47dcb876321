"""Requests of Kafka's protocol that librdkafka has not: looking at transactions, and ending what others began. Driver.

By kafka-python, whose import takes long and which executors need not have. What it raises comes out as librdkafka's
exceptions, so that there is one kind of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from kafka.admin import KafkaAdminClient
from kafka.errors import BrokerResponseError, for_code
from kafka.errors import KafkaError as ClientError
from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import EndTxnRequest

ONGOING = "Ongoing"
_NOT_FOUND = 105
_NO_LONGER = {47, 48, 49, 90}
"""EndTxn came too late: the transaction ended otherwise. Its state tells how."""
_AT_ONCE = 500
"""Transactions in one request."""
_IN_FLIGHT = 50
"""Requests of ours side by side on a connection, half of what it takes. By default it takes 5, and kafka-python may
never send what it holds back beyond that."""
_END_TXN_VERSION = 4
"""Newer ones raise the producer's epoch, and an answer that got lost could not be asked for again."""
_ANSWER_MS = 10_000

_Item = TypeVar("_Item")

# It says much of each connection, and in its debug lines the configuration, passwords included.
if logging.getLogger("kafka").level == logging.NOTSET:
    logging.getLogger("kafka").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Transaction:
    """One as its coordinator knows it."""

    id: str
    state: str
    producer: int
    epoch: int
    coordinator: int


class ProtocolClient:
    """One connection; ``arguments`` are those of kafka-python's admin client. Raises ``KafkaException``."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        with _errors():
            times = {"bootstrap_timeout_ms": _ANSWER_MS, "request_timeout_ms": _ANSWER_MS}
            requests = {"max_in_flight_requests_per_connection": 2 * _IN_FLIGHT}
            self._client: Any = KafkaAdminClient(**arguments, **times, **requests)

    def close(self) -> None:
        self._client.close()

    def describe(self, ids: Sequence[str]) -> dict[str, Transaction]:
        """By id, in order; those that no coordinator knows (any more) are left out."""
        with _errors():
            found = {t.id: t for part in _parts(ids) for t in self._client._manager.run(self._described, part)}
        return {i: found[i] for i in ids if i in found}

    def end(self, transactions: Sequence[Transaction], commit: bool) -> None:
        """Ask for it. One that has ended since stays as it is."""

        async def end(part: Sequence[Transaction]) -> None:
            sent = [self._client._manager.send(_end_request(t, commit), node_id=t.coordinator) for t in part]
            for t, answer in zip(part, [await s for s in sent], strict=True):
                if answer.error_code and answer.error_code not in _NO_LONGER:
                    raise for_code(answer.error_code)(f"ending transaction {t.id}")

        with _errors():
            for part in _parts(transactions, _IN_FLIGHT):
                self._client._manager.run(end, part)

    def open(self) -> list[str]:
        """The ids of all open transactions, of all brokers."""
        with _errors():
            found = self._client.list_transactions(state_filters=[ONGOING])
            return sorted(t.transactional_id for listed in found.values() for t in listed)

    async def _described(self, ids: list[str]) -> list[Transaction]:
        nodes = await self._client._find_coordinator_ids(ids, key_type=CoordinatorType.TRANSACTION)
        sent = []
        for node in set(nodes.values()):
            request = DescribeTransactionsRequest(transactional_ids=[i for i in ids if nodes[i] == node])
            sent.append((node, self._client._manager.send(request, node_id=node)))
        found = []
        for node, answer in sent:
            for t in (await answer).transaction_states:
                if t.error_code not in (0, _NOT_FOUND):
                    raise for_code(t.error_code)(f"describing transaction {t.transactional_id}")
                if t.error_code == 0:
                    known = (t.transactional_id, t.transaction_state, t.producer_id, t.producer_epoch)
                    found.append(Transaction(*known, node))
        return found


def _parts(items: Sequence[_Item], size: int = _AT_ONCE) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _end_request(t: Transaction, commit: bool) -> Any:
    return EndTxnRequest(
        transactional_id=t.id,
        producer_id=t.producer,
        producer_epoch=t.epoch,
        committed=commit,
        max_version=_END_TXN_VERSION,
    )


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise KafkaException(KafkaError(error.errno, str(error))) from None
    except ClientError as error:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{type(error).__name__} {error}")) from None
