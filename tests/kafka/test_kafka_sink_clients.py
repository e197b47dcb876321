"""What a Kafka sink keeps from one commit to the next: connections, and how far the ledger was read."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_ckpt.errors import CkptError
from spark_ckpt.sinks.kafka import _clients
from spark_ckpt.sinks.kafka._clients import KeptClients
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.testing.sink_harness import JOB, permit, stage
from tests.kafka.sink_target import KafkaTarget, ledger_of
from tests.kafka_server import shared_kafka


@pytest.fixture
def target(tmp_path: Path) -> KafkaTarget:
    return KafkaTarget(shared_kafka(), f"{tmp_path}/staged")


def test_connections_are_kept_until_an_error_or_a_minute_without_use(target: KafkaTarget) -> None:
    now = [0.0]
    sink = target.validated()
    assert isinstance(sink, KafkaSink)
    kept = KeptClients(sink._settings, lambda: now[0])
    with kept.taken() as first:
        first.ledger.read("job")
        first.transactions.open("ckpt-")
    now[0] += _clients._KEPT_S - 1
    with kept.taken() as again:
        assert again is first
        with kept.taken() as another:  # a second commit at the same time
            assert another is not first
    with pytest.raises(ValueError, match="a failed commit"), kept.taken() as failing:
        raise ValueError("a failed commit")
    with kept.taken() as second:
        assert second is not failing
    now[0] += _clients._KEPT_S
    with kept.taken() as late:
        assert late is not second


def test_a_commit_sees_what_another_driver_committed_since_its_last_one(target: KafkaTarget) -> None:
    mine, other = target.validated(), target.make()
    mine.commit(permit(1), stage(mine, [(1, "a")]))
    second = stage(mine, [(2, "b")], 2, 2)
    other.commit(permit(2), second)
    mine.commit(permit(2), second)
    third = stage(mine, [(3, "c")], 3, 3)
    other.commit(permit(3), third)
    with pytest.raises(CkptError, match="other contents"):
        mine.commit(permit(3), stage(mine, [(3, "d")], 3, 4))
    assert sorted(target.rows()) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_ledger_that_was_made_anew_is_read_anew(target: KafkaTarget) -> None:
    sink = target.validated()
    for k in range(1, 4):
        sink.commit(permit(k), stage(sink, [(k, "a")], k, k))
    admin = target.server.admin()  # it must outlive what it was asked for
    admin.delete_topics([target.ledger])[target.ledger].result(60)
    made = False
    while not made:  # a topic that goes may be there for a moment
        try:
            target.server.new_topic(2, {"cleanup.policy": "compact"}, target.ledger)
            made = True
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    staged = stage(sink, [(4, "a")], 4, 4)
    try:
        sink.commit(permit(4), staged)
    except CkptError:  # the client may have to hear of it first
        sink.commit(permit(4), staged)
    assert sorted(target.rows()) == [(k, "a") for k in range(1, 5)]
    assert [key for key in ledger_of(target.server, target.ledger) if b'"commit"' in key] == [
        f'["commit","{JOB}","totals",4]'.encode()
    ]


def test_a_transaction_does_not_wait_for_its_coordinator_to_be_looked_for_again(
    target: KafkaTarget, capfd: pytest.CaptureFixture[str]
) -> None:
    """librdkafka does so twice a second, where it is connected to no broker when it looks for the first time."""
    target.validated()
    target.options |= {"kafka.debug": "eos", "kafka.log_level": "7"}
    sink = target.make()
    capfd.readouterr()
    for attempt in range(20):
        sink.abort(stage(sink, [(attempt, "a")], 1, attempt))
    said = capfd.readouterr().err
    assert said.count("FindCoordinator response") >= 20
    assert "Unable to query for transaction coordinator" not in said
