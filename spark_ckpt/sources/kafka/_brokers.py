"""What is asked of the brokers: topics, partitions, offsets. Driver, and executors for the ids of topics."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec

from spark_ckpt.errors import InvalidInputError, RetryableError
from spark_ckpt.kafka_client import is_tls_refusal, without_secrets
from spark_ckpt.sources.kafka._options import Wanted
from spark_ckpt.sources.kafka._positions import Partition, Places

_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_ONE_REQUEST_S = 5.0
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics of Kafka's own, which no pattern finds, as in Java's client."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_UNKNOWN_FOR_S = 5.0
"""A topic that was just made may be unknown to a broker for a moment."""

_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
    }
)
_CREDENTIALS = "correct the credentials (options kafka.security.protocol, kafka.sasl.*, kafka.ssl.*)"
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user Describe and Read on the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user Describe on the cluster",
    KafkaError.TOPIC_EXCEPTION: "correct the topic's name in option subscribe or assign",
}
_TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT})
UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)


def refused(error: KafkaError) -> bool:
    """Whether it does not pass by itself."""
    return error.code() in _REFUSED or is_tls_refusal(error.name(), error.str())


def what_to_do(error: KafkaError) -> str:
    """About what was refused."""
    return _RIGHTS.get(error.code(), _CREDENTIALS)


class Brokers:
    """One cluster. Made where it is used and never pickled; ``timeout_s`` is how long brokers may be away."""

    def __init__(self, conf: Mapping[str, str], timeout_s: float) -> None:
        self.conf = dict(conf)
        self.timeout_s = timeout_s
        self._heard: KafkaError | None = None
        self._admin: AdminClient | None = None
        committed = conf.get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def topics(self, wanted: Wanted) -> tuple[dict[str, str], list[Partition]]:
        """The ids and the partitions of what is wanted and there. Raises ``InvalidInputError`` if a named topic is
        missing, ``RetryableError`` if no broker answers in time."""
        if wanted.pattern is not None:
            names = self._matching(wanted.pattern.finds)
        elif wanted.assigned is not None:
            names = sorted({p.topic for p in wanted.assigned})
        else:
            names = wanted.topics or []
        ids, there = self.described(names)
        missing = sorted({*names} - ids.keys()) if wanted.pattern is None else []
        if wanted.assigned is not None:
            missing += [str(p) for p in wanted.assigned if p.topic in ids and p not in there]
            there = [p for p in there if p in wanted.assigned]
        if missing:
            raise InvalidInputError(
                f"Kafka at {self._where}: expected topics {', '.join(names)}, found no {', '.join(missing)}; create "
                f"what is missing, or leave it out of option {'subscribe' if wanted.assigned is None else 'assign'}: a "
                "job that has read it goes on without it with failOnDataLoss=false"
            )
        return ids, there

    def described(
        self, names: Iterable[str], patience_s: float | None = None
    ) -> tuple[dict[str, str], list[Partition]]:
        """Ids and partitions of those topics that are there. Waits up to ``patience_s`` for one that is unknown; None:
        as long as a new topic may be unknown to a broker."""
        ids: dict[str, str] = {}
        partitions: list[Partition] = []
        open_, until = sorted(set(names)), time.monotonic() + (_UNKNOWN_FOR_S if patience_s is None else patience_s)
        while open_:
            found = self._ask(f"topics {', '.join(open_)}", functools.partial(self._describe, open_))
            for name, topic in found.items():
                ids[name] = str(topic.topic_id)
                partitions += [Partition(name, p.id) for p in topic.partitions]
            open_ = [name for name in open_ if name not in found]
            if time.monotonic() >= until:
                break
            if open_:
                time.sleep(0.2)
        return ids, sorted(partitions)

    def require_read(self, names: Iterable[str]) -> None:
        """Raises ``InvalidInputError`` for topics that the user may look at but not read, which tasks would meet."""
        asked = functools.partial(self._describe, sorted(names), include_authorized_operations=True)
        for name, topic in self._ask("rights", asked).items():
            may = topic.authorized_operations
            if may is not None and not {AclOperation.READ, AclOperation.ALL} & set(may):
                raise InvalidInputError(
                    f"Kafka at {self._where}: the user may not read topic {name}; grant it Read there"
                )

    def earliest(self, partitions: Iterable[Partition]) -> Places:
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def latest(self, partitions: Iterable[Partition]) -> Places:
        """Behind the last record, and with isolation level read_committed behind the last whose fate is known."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def at_times(self, times: Mapping[Partition, int]) -> Places:
        """The first records of those times (ms) or later; -1 where there is none."""
        return self._offsets({p: OffsetSpec.for_timestamp(at) for p, at in times.items()})

    def commit(self, group: str, places: Places) -> Future[Any]:
        """Begin to tell the consumer group ``group`` how far its reader is. The future raises ``KafkaException``."""
        found = [TopicPartition(p.topic, p.number, at) for p, at in places.items()]
        asked = self._client().alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, found)])
        return asked[group]

    @property
    def _where(self) -> str:
        return without_secrets(self.conf.get("bootstrap.servers", ""), self.conf)

    def _client(self) -> AdminClient:
        if self._admin is None:
            admin_only = {k: v for k, v in self.conf.items() if k not in ("isolation.level", "group.id")}
            self._admin = AdminClient({"log_level": 0, **admin_only, "error_cb": self._hear})
        return self._admin

    def _hear(self, error: KafkaError) -> None:
        if self._heard is None or not refused(self._heard):
            self._heard = error

    def _matching(self, matches: Callable[[str], bool]) -> list[str]:
        found = self._ask("topics", lambda left: self._client().list_topics(timeout=left).topics)
        return sorted(name for name in found if matches(name) and name not in _INTERNAL)

    def _describe(self, names: list[str], timeout_s: float, **more: bool) -> dict[str, Any]:
        asked = self._client().describe_topics(TopicCollection(names), request_timeout=timeout_s, **more)
        found = {}
        for name, future in asked.items():
            try:
                found[name] = future.result()
            except KafkaException as error:
                if error.args[0].code() not in UNKNOWN:
                    raise
        return found

    def _offsets(self, specs: Mapping[Partition, OffsetSpec]) -> Places:
        if not specs:
            return {}
        wanted = {TopicPartition(p.topic, p.number): spec for p, spec in specs.items()}

        def ask(timeout_s: float) -> Places:
            asked = self._client().list_offsets(wanted, isolation_level=self._isolation, request_timeout=timeout_s)
            return {Partition(tp.topic, tp.partition): f.result().offset for tp, f in asked.items()}

        return self._ask(f"offsets of {', '.join(sorted({p.topic for p in specs}))}", ask)

    def _ask(self, what: str, ask: Callable[[float], _Result]) -> _Result:
        """What ``ask`` gives, asked again with pauses that grow and vary until it is given or the time is over."""
        until, pause, told = time.monotonic() + self.timeout_s, _FIRST_PAUSE_S, False
        while True:
            try:
                return ask(max(0.1, min(_ONE_REQUEST_S, until - time.monotonic())))
            except KafkaException as error:
                found = self._cause(error)
            if refused(found) or time.monotonic() + pause > until:
                raise self._failed(what, found)
            if not told:
                _logger.warning("Kafka at %s: %s; asking for %s again", self._where, self._text(found), what)
                told = True
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _cause(self, error: KafkaException) -> KafkaError:
        """A request only times out where no broker is or credentials are wrong; why is told by the way."""
        self._client().poll(0)
        heard, self._heard = self._heard, None
        found: KafkaError = error.args[0]
        return heard if heard is not None and found.code() in _TIMED_OUT else found

    def _failed(self, what: str, error: KafkaError) -> Exception:
        if refused(error):
            return InvalidInputError(
                f"Kafka at {self._where} refused to tell {what}: {self._text(error)}; {what_to_do(error)}"
            )
        return RetryableError(
            f"expected Kafka at {self._where} to tell {what} within {self.timeout_s:g} s, found {self._text(error)}; "
            "nothing is lost: start the query again when the brokers are up, or correct kafka.bootstrap.servers"
        )

    def _text(self, error: KafkaError) -> str:
        return without_secrets(f"{error.name()} ({error.str()})", self.conf)
