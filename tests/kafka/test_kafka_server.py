"""The broker that the tests of the Kafka source and sink stand on: what it kept is there after a SIGKILL."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka_server import KafkaServer, shared_kafka


@pytest.mark.soak  # the sink kills one, too
def test_what_was_acknowledged_is_there_after_the_broker_was_killed() -> None:
    server = KafkaServer().start()
    try:
        topic = server.new_topic(2, {"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
        for i in range(100):
            producer.produce(topic, key=str(i), value=b"v", partition=i % 2)
        assert producer.flush(60) == 0
        server.kill()
        server.restart()
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), 60) for p in (0, 1)]
        consumer.close()
        assert ends == [(0, 50), (0, 50)]
    finally:
        server.stop()


def test_the_other_listener_wants_a_password() -> None:
    server = shared_kafka()
    assert AdminClient(server.sasl).list_topics(timeout=60).brokers
    wrong = AdminClient({**server.sasl, "sasl.password": "wrong", "log_level": 0})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2)
