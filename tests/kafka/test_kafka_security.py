"""Source and sink on listeners with SCRAM over TLS and with client certificates, and topics that a user may not use."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.testing.sink_harness import JOB, context, permit, stage_table
from spark_ckpt.testing.source_harness import batches, read
from tests.certificates import CLIENT
from tests.kafka_server import OTHER, PASSWORD, USER, shared_kafka

ROWS = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"]})


def scram(password: str = PASSWORD) -> dict[str, str]:
    """In the words of Kafka's Java client, as in Spark."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "kafka.bootstrap.servers": shared_kafka().secured,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{login} username="{USER}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(shared_kafka().certificates.ca),
    }


def mutual() -> dict[str, str]:
    files = shared_kafka().certificates
    return {
        "kafka.bootstrap.servers": shared_kafka().mutual,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(files.ca),
        "kafka.ssl.certificate.location": str(files.client),
        "kafka.ssl.key.location": str(files.client_key),
    }


def plain(user: str) -> dict[str, str]:
    options = {**shared_kafka().sasl, "sasl.username": user}
    return {f"kafka.{name}": value for name, value in options.items()}


def without(options: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.removeprefix("kafka.") not in names}


def sink(folder: Path, topic: str, options: Mapping[str, str]) -> KafkaSink:
    """As a job has it."""
    made = KafkaSink({**options, "topic": topic, "ledgerTopic": f"ledger-{uuid.uuid4().hex[:12]}"})
    made.place = JobPlace(f"{folder}/job/staged", JobConfig(dir=str(folder)))
    return made


def source(folder: Path, topic: str, options: Mapping[str, str]) -> InnerReader:
    given = {**options, "subscribe": topic, "startingOffsets": "earliest"}
    opened = open_source("kafka", given, None, f"{folder}/source")
    return opened.reader(opened.schema())


def allow(topic: str, user: str, *operations: AclOperation) -> None:
    """From now on nobody but ``user`` may do anything with the topic, and this one ``operations``."""
    name, literal, yes = f"User:{user}", ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rules = [AclBinding(ResourceType.TOPIC, topic, literal, name, "*", o, yes) for o in operations]
    admin = shared_kafka().admin()  # it must outlive what it was asked for
    for made in admin.create_acls(rules).values():
        made.result(60)


def written_and_read(folder: Path, options: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    topic = shared_kafka().new_topic()
    target = sink(folder, topic, options)
    target.validate(ROWS.schema)
    target.commit(permit(1), stage_table(target, context(1, 1, schema=ROWS.schema), ROWS))
    reader = source(folder, topic, {**options, "kafka.isolation.level": "read_committed"})
    found = [
        row for r in batches(reader, reader.initial()) for split in reader.splits(*r) for row in read(reader, split)
    ]
    return [row[:2] for row in found]


# -- who is let in -----------------------------------------------------------------------------------------------------


def test_scram_over_tls_in_javas_words_writes_commits_and_reads(tmp_path: Path) -> None:
    shared_kafka().add_scram_user()
    assert written_and_read(tmp_path, scram()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]


@pytest.mark.soak
def test_a_clients_certificate_is_enough_where_the_listener_asks_for_one(tmp_path: Path) -> None:
    assert written_and_read(tmp_path, mutual()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    topic = shared_kafka().new_topic()
    allow(topic, f"CN={CLIENT}", AclOperation.DESCRIBE)
    with pytest.raises(InvalidInputError, match=f"the user may not read topic {topic}; grant it Read there"):
        source(tmp_path / "b", topic, mutual()).initial()


REFUSED: dict[str, tuple[Any, str]] = {
    "a wrong password": (lambda: scram("wr0ng-s3cret"), "SASL authentication error"),
    "no trust": (lambda: without(scram(), "ssl.truststore.type", "ssl.truststore.location"), "certificate verify fail"),
    "no certificate": (lambda: without(mutual(), "ssl.certificate.location", "ssl.key.location"), "SSL alert"),
}


@pytest.mark.soak
@pytest.mark.parametrize("case", list(REFUSED))
def test_who_is_not_let_in_is_told_why_at_the_start_without_the_password(case: str, tmp_path: Path) -> None:
    shared_kafka().add_scram_user()
    made, why = REFUSED[case]
    options, topic = made(), shared_kafka().new_topic()
    with pytest.raises(ConfigError, match=f"{why}.*check kafka") as of_sink:
        sink(tmp_path, topic, options).validate(ROWS.schema)
    with pytest.raises(
        InvalidInputError, match=f"refused to tell topics {topic}: .*{why}.*correct the cred"
    ) as of_source:
        source(tmp_path, topic, options).initial()
    assert "wr0ng" not in f"{of_sink.value} {of_source.value}"


# -- who may do what ---------------------------------------------------------------------------------------------------


def test_a_topic_that_the_user_may_not_read_is_named_at_the_start_with_the_right_that_is_missing(
    tmp_path: Path,
) -> None:
    closed, visible = shared_kafka().new_topic(), shared_kafka().new_topic()
    allow(closed, OTHER, AclOperation.READ)
    allow(visible, USER, AclOperation.DESCRIBE)
    with pytest.raises(InvalidInputError, match=f"topics {closed}: .*grant the user Describe and Read on the topic"):
        source(tmp_path, closed, plain(USER)).initial()
    with pytest.raises(InvalidInputError, match=f"the user may not read topic {visible}; grant it Read there"):
        source(tmp_path, visible, plain(USER)).initial()


def test_a_right_that_is_taken_away_ends_the_query_and_names_partition_and_right(tmp_path: Path) -> None:
    topic = shared_kafka().new_topic()
    target = sink(tmp_path, topic, plain(USER))
    target.validate(ROWS.schema)
    target.commit(permit(1), stage_table(target, context(1, 1, schema=ROWS.schema), ROWS))
    reader = source(tmp_path, topic, plain(USER))
    start = reader.initial()
    (split,) = reader.splits(start, reader.latest(start, False))
    allow(topic, USER, AclOperation.DESCRIBE)
    with pytest.raises(InvalidInputError, match=f"refused to send {topic}-0: .*grant the user Describe and Read"):
        list(read(reader, split))
    with pytest.raises(InvalidInputError, match=f"{topic}.*grant the user Describe and Write on the topic"):
        stage_table(target, context(2, 2, schema=ROWS.schema), ROWS)
    allow(topic, USER, AclOperation.READ, AclOperation.WRITE)
    assert [row[1] for row in read(reader, split)] == [b"1", b"2", b"3"]
    target.gc(JOB, [])
