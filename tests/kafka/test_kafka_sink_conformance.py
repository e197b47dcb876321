"""The Kafka sink keeps to what every sink promises, on a real broker, with and without second copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.testing.sink_conformance import SinkConformance
from tests.kafka.sink_target import KafkaTarget
from tests.kafka_server import shared_kafka


class TestDurable(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> KafkaTarget:
        return KafkaTarget(shared_kafka(), f"{tmp_path}/staged")


@pytest.mark.soak
class TestInKafkaOnly(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> KafkaTarget:
        return KafkaTarget(shared_kafka(), f"{tmp_path}/staged", staging="kafka")
