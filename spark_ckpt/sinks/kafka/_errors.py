"""What Kafka's clients raise, in words that say what to do; and trying again what may pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from spark_ckpt.errors import CkptError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.kafka_client import is_tls_refusal
from spark_ckpt.redaction import redact
from spark_ckpt.sinks.kafka._settings import KafkaSettings
from spark_ckpt.storage.retry import Retry

_log = logging.getLogger("spark_ckpt")
_Result = TypeVar("_Result")

_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,
)
"""What librdkafka tells its ``error_cb`` only, and takes for an outage otherwise."""
_ADVICE = {
    KafkaError._AUTHENTICATION: "check kafka.security.protocol, kafka.sasl.mechanism and the user and password",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check kafka.sasl.mechanism and the user and password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "check kafka.sasl.mechanism",
    KafkaError._SSL: "check kafka.security.protocol and the certificates (kafka.ssl.ca.location or "
    "kafka.ssl.truststore.*, kafka.ssl.certificate.location and kafka.ssl.key.location)",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the user Describe and Write on the topic and the ledger topic, and "
    "Read on the ledger topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant the user Describe and Write on transactional ids that "
    "begin with ckpt-",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the user IdempotentWrite and Describe on the cluster",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes and option kafka.max.request.size, or leave "
    "the row out",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise the topic's max.message.bytes or lower option kafka.batch.size",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "make the topic, with enough partitions for column partition",
    KafkaError._UNKNOWN_TOPIC: "make the topic",
    KafkaError._UNKNOWN_PARTITION: "the topic has fewer partitions than column partition asks for",
    KafkaError.TOPIC_EXCEPTION: "the topic's name is not one that Kafka takes",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower option kafka.transaction.timeout.ms, or raise the brokers' "
    "transaction.max.timeout.ms",
    KafkaError._INVALID_ARG: "check the kafka.* options",
}
"""What does not pass by itself, and what to do about it."""


class Heard:
    """What a client of librdkafka tells its ``error_cb``, which says more than the time-out that its caller gets."""

    def __init__(self) -> None:
        self._refused: KafkaError | None = None
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if is_tls_refusal(error.name(), error.str()):
            error = KafkaError(KafkaError._SSL, error.str())
        elif error.code() == KafkaError._SSL:  # the broker went down meanwhile
            error = KafkaError(KafkaError._TRANSPORT, error.str())
        if error.code() in _REFUSED or error.fatal():
            self._refused = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:  # which does not say why
            self._last = error

    def reason(self, error: KafkaException) -> KafkaException:
        """Of ``error``. The client must have been polled since."""
        outage = error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
        found = self._refused or (self._last if outage else None)
        return error if found is None else KafkaException(found)


def patiently(doing: str, settings: KafkaSettings, action: Callable[[], _Result]) -> _Result:
    """``action()``, again while Kafka fails in a way that may pass, for as long as the job tries storage again.

    Raises ``RetryableError`` then, ``InvalidInputError`` for what Kafka refuses. ``doing`` is for messages and the log.
    """
    retry = Retry(settings.patience_s)
    started, told = retry.clock(), False
    for pause in retry.pauses():
        try:
            return action()
        except KafkaException as error:
            if not may_pass(error) or retry.clock() + pause - started > retry.timeout_s:
                raise said(doing, settings, error) from None
            if not told:
                _log.warning("%s; it is tried again for %g s", _what(doing, settings, error), retry.timeout_s)
                told = True
        retry.sleep(pause)
    raise AssertionError("pauses do not end")


def may_pass(error: KafkaException) -> bool:
    """Whether the same call may succeed later: an outage, an election, a coordinator that moves."""
    code = error.args[0]
    return code.code() not in _ADVICE and not code.fatal()


def said(doing: str, settings: KafkaSettings, error: KafkaException) -> CkptError:
    """``error`` as one of ours, without secrets."""
    what = _what(doing, settings, error)
    advice = _ADVICE.get(error.args[0].code())
    if error.args[0].code() in _REFUSED:
        return ConfigError(f"{what}: {advice}")
    if advice is not None:
        return InvalidInputError(f"{what}: {advice}")
    return RetryableError(
        f"{what}. Nothing is lost: start the query again when Kafka answers, it commits what is missing"
    )


def _what(doing: str, settings: KafkaSettings, error: KafkaException) -> str:
    text = redact(f"{error.args[0].name()}: {error.args[0].str()}", settings.secrets)
    return f"{doing} failed ({text.strip()})"
