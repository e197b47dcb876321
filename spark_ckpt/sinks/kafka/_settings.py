"""Options of the ``kafka`` sink, and what they say to two clients: librdkafka's, and the one that ends transactions.

Writing rows is librdkafka's work. It cannot end a transaction that another process began, which takes one request of
Kafka's protocol: kafka-python sends it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import ConfigError
from spark_ckpt.formats.base import Encoder
from spark_ckpt.kafka_client import client_options, librdkafka_conf, secrets_of
from spark_ckpt.redaction import secret_values
from spark_ckpt.sinks._options import SinkOption, SinkOptions
from spark_ckpt.sinks.kafka._rows import VALUE
from spark_ckpt.sinks.kafka._values import DECLARED as VALUE_OPTIONS
from spark_ckpt.sinks.kafka._values import ValueFormat, value_format

KIND = "kafka"
DURABLE, IN_KAFKA = "durable", "kafka"
LEDGER = "spark_ckpt_ledger"

_TRANSACTION_MS = 900_000
"""The most that brokers allow unless they are told otherwise."""
_DELIVERY_MS = 120_000
_RENAMED = {"max.request.size": "message.max.bytes", "max.in.flight.requests.per.connection": "max.in.flight"}
_OURS = ("transactional.id", "enable.idempotence", "delivery.report.only.error", "delivery.timeout.ms",
         "message.timeout.ms", "transaction.timeout.ms", "isolation.level", "group.id")  # fmt: skip
_COMMON = {"log_level": "2", "reconnect.backoff.ms": "20"}
"""An outage is a line in our log, and not some at each try to connect. Clients are made for a task or a commit: half of
the first pause is what librdkafka waits before a new one connects at all; it doubles while brokers are away."""
_BYTES = ("key.serializer", "value.serializer")
_OF_PRODUCERS = ("acks", "batch.", "compression.", "linger.", "message.", "partitioner", "queue.buffering.", "retries",
                 "max.in.flight", "sticky.", "transaction", "delivery.", "enable.gapless")  # fmt: skip
"""What a consumer of librdkafka would warn of."""
_TO_KAFKA_PYTHON = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
_UNREADABLE = ("ssl.keystore.", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "sasl.oauthbearer.")

DECLARED: tuple[SinkOption, ...] = (
    SinkOption("topic", meaning="Where all rows go, in place of the column `topic`."),
    SinkOption(
        "staging",
        f"{DURABLE} or {IN_KAFKA}",
        f"`{DURABLE}`: rows wait in Kafka's transactions and in files of the job's folder, and no outage loses them. "
        f"`{IN_KAFKA}`: in transactions only, which the broker aborts after `kafka.transaction.timeout.ms`.",
        DURABLE,
        choices=(DURABLE, IN_KAFKA),
    ),
    SinkOption(
        "stagingPath", "a folder, local or any fsspec URL", "Where those files are, if not in the job's folder."
    ),
    SinkOption("storage.*", meaning="With `stagingPath`: what fsspec needs to reach it."),
    SinkOption("ledgerTopic", "a topic's name", "Remembers what was committed; compacted, made if missing.", LEDGER),
    SinkOption(
        "failOnDataLoss",
        "true or false",
        f"With `staging={IN_KAFKA}`: whether to fail for ever where the broker aborted what was authorised, or to log "
        "what was lost and go on.",
        "true",
    ),
    *VALUE_OPTIONS,
    SinkOption("kafka.*", meaning="Kafka's own options, as in Spark; `kafka.bootstrap.servers` is required."),
)


@dataclass(frozen=True)
class KafkaSettings:
    """Holds secrets: not to be shown."""

    topic: str | None
    durable: bool
    staging_url: str | None
    storage: Mapping[str, Any] = field(repr=False)
    ledger: str
    fail_on_loss: bool
    conf: Mapping[str, str] = field(repr=False)
    transaction_ms: int
    delivery_ms: int
    value: ValueFormat | None = None
    patience_s: float = 30.0
    """How long the driver tries again."""

    @property
    def answer_s(self) -> float:
        """How long one try waits for an answer."""
        return max(0.1, min(5.0, self.patience_s / 4))

    @property
    def servers(self) -> str:
        return self.conf["bootstrap.servers"]

    @property
    def secrets(self) -> list[str]:
        return [*secrets_of(self.conf), *secret_values({} if self.value is None else self.value.given)]

    def encoder(self, schema: pa.Schema) -> Encoder | None:
        """What makes column ``value`` bytes, with ``valueFormat``. Raises ``ConfigError`` for types that do not fit."""
        if self.value is None or VALUE not in schema.names:
            return None
        return self.value.encoder(schema.field(VALUE).type, self.topic, self.storage)

    def producer(self, **more: Any) -> dict[str, Any]:
        """Keys go to the partitions that Kafka's Java client, and so Spark, would choose."""
        times = {"transaction.timeout.ms": self.transaction_ms, "message.timeout.ms": self.message_ms}
        ours = {"partitioner": "murmur2_random", "linger.ms": 20, **_COMMON}
        return {**ours, **self.conf, "acks": "all", **times, **more}

    def ledger_producer(self, timeout_ms: int) -> dict[str, Any]:
        """Not idempotent, which takes half a second to begin: what comes twice has the same key and value."""
        large = {"message.max.bytes": 10_000_000, "compression.type": "lz4", "linger.ms": 0}
        return {**_COMMON, **self.conf, "acks": "all", "max.in.flight": 1, **large, "message.timeout.ms": timeout_ms}

    @property
    def message_ms(self) -> int:
        return min(self.delivery_ms, self.transaction_ms)

    def consumer(self, **more: Any) -> dict[str, Any]:
        common = {k: v for k, v in self.conf.items() if not k.startswith(_OF_PRODUCERS)}
        return {**_COMMON, **common, "isolation.level": "read_committed", "enable.auto.commit": False, **more}

    def admin(self) -> dict[str, str]:
        """For librdkafka's admin client."""
        return {**_COMMON, **{k: v for k, v in self.conf.items() if not k.startswith(_OF_PRODUCERS)}}

    def protocol_client(self) -> dict[str, Any]:
        """The arguments of kafka-python's admin client."""
        given = {_TO_KAFKA_PYTHON[k]: v for k, v in self.conf.items() if k in _TO_KAFKA_PYTHON}
        found: dict[str, Any] = {k: v for k, v in given.items() if v}
        found["bootstrap_servers"] = [s.strip() for s in self.servers.split(",")]
        if "security_protocol" in found:
            found["security_protocol"] = found["security_protocol"].upper()
        if self.conf.get("ssl.endpoint.identification.algorithm") == "none":
            found["ssl_check_hostname"] = False
        return found


def read_settings(options: Mapping[str, str]) -> KafkaSettings:
    """Raises ``ConfigError``; no I/O."""
    parsed = SinkOptions(KIND, options, DECLARED)
    given, _ = client_options(options)
    _check_serializers(given)
    own = {k: given.pop(k, None) for k in _OURS}
    _check_own(own)
    conf = {_RENAMED.get(k, k): v for k, v in librdkafka_conf(given).items()}
    _check_conf(conf)
    topic, ledger = parsed.text("topic"), parsed.text("ledgerTopic") or LEDGER
    if topic == ledger:
        raise ConfigError(
            f"sink '{KIND}': topic {topic} is where the sink remembers what was committed; write to another topic, or "
            "name another by option 'ledgerTopic'"
        )
    return KafkaSettings(
        topic=topic,
        durable=parsed.choice("staging") == DURABLE,
        staging_url=parsed.text("stagingPath"),
        storage=parsed.fsspec(),
        ledger=ledger,
        fail_on_loss=parsed.flag("failOnDataLoss", True),
        value=value_format(parsed),
        conf=conf,
        transaction_ms=_number("transaction.timeout.ms", own["transaction.timeout.ms"], _TRANSACTION_MS),
        delivery_ms=_number(
            "delivery.timeout.ms", own["delivery.timeout.ms"] or own["message.timeout.ms"], _DELIVERY_MS
        ),
    )


def with_absolute_staging(options: Mapping[str, str]) -> dict[str, str]:
    def absolute(value: str) -> str:
        local = bool(value.strip()) and "://" not in value and not value.startswith(("/", "file:"))
        return os.path.abspath(value) if local else value

    return {k: absolute(v) if k.lower() == "stagingpath" else v for k, v in options.items()}


def _check_serializers(given: Mapping[str, str]) -> None:
    for name in _BYTES:
        if name in given:
            raise ConfigError(
                f"Kafka option '{name}' is not supported as keys and values are serialized as bytes; cast them, or use "
                "to_json or to_avro before writing"
            )


def _check_own(own: Mapping[str, str | None]) -> None:
    taken = [k for k in ("transactional.id", "isolation.level", "group.id") if own[k] is not None]
    if own["enable.idempotence"] not in (None, "true"):
        taken.append("enable.idempotence")
    if taken:
        raise ConfigError(
            f"sink '{KIND}': option(s) {', '.join('kafka.' + k for k in taken)} cannot be set: transactions are the "
            "sink's own; leave them out"
        )


def _check_conf(conf: Mapping[str, str]) -> None:
    if not conf.get("bootstrap.servers", "").strip():
        raise ConfigError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer, as host:port,host:port"
        )
    unreadable = sorted(k for k in conf if k.startswith(_UNREADABLE))
    if unreadable or conf.get("sasl.mechanism", conf.get("sasl.mechanisms", "")).upper() == "OAUTHBEARER":
        raise ConfigError(
            f"sink '{KIND}': {', '.join('kafka.' + k for k in unreadable) or 'kafka.sasl.mechanism=OAUTHBEARER'}: the "
            "client that ends transactions takes certificates and keys as files in PEM (kafka.ssl.ca.location, "
            "kafka.ssl.certificate.location, kafka.ssl.key.location, kafka.ssl.key.password) and SASL PLAIN, SCRAM or "
            "GSSAPI; use one of these"
        )


def _number(name: str, found: str | None, default: int) -> int:
    if found is None:
        return default
    if not found.strip().isdigit() or int(found) == 0:
        raise ConfigError(f"sink '{KIND}': option 'kafka.{name}' must be a number of milliseconds, got {found!r}")
    return int(found)
