"""The Kafka sink on a real broker: what messages look like, what is refused, and what outages leave."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import record_sinks
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.kafka._committing import staged_of
from spark_ckpt.sinks.kafka._transactions import Transactions
from spark_ckpt.sinks.kafka.sink import KafkaSink
from spark_ckpt.testing.sink_harness import (
    JOB,
    SimulatedCrash,
    commit_elsewhere,
    context,
    crash_in_commit,
    permit,
    stage,
    stage_table,
)
from tests.kafka.sink_target import KafkaTarget, committed, ledger_of, lose
from tests.kafka_server import PASSWORD, KafkaServer, shared_kafka
from tests.ports import free_port

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def target(tmp_path: Path) -> KafkaTarget:
    return KafkaTarget(shared_kafka(), f"{tmp_path}/staged")


def plain(target: KafkaTarget, **more: str) -> KafkaTarget:
    """The sink itself, with the same topic and ledger."""
    again = KafkaTarget.__new__(KafkaTarget)
    vars(again).update({**vars(target), "sink": KafkaSink, "options": {**target.options, **more}})
    return again


def write(target: KafkaTarget, rows: pa.Table, checkpoint: int = 1) -> None:
    sink = target.validated(rows.schema)
    sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=rows.schema), rows))


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_are_those_of_sparks_kafka_sink(tmp_path: Path) -> None:
    target = plain(KafkaTarget(shared_kafka(), f"{tmp_path}/staged", partitions=3))
    rows = pa.table({
        "value": pa.array(["a", None, "c", "d"]),
        "key": pa.array([b"\x00k", None, b"", b"k"], pa.binary()),
        "partition": pa.array([2, None, 0, 2], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, [], None], HEADERS),
        "offset": pa.array([1, 2, 3, 4]),  # columns of Kafka's source that a sink ignores
    })  # fmt: skip
    write(target, rows)
    found = [(m.key(), m.value(), m.headers(), m.partition()) for m in committed(target.server, target.topic)]
    assert [f for f in found if f[3] == 2 and f[0] is not None] == [  # one without a key goes anywhere
        (b"\x00k", b"a", [("h", b"1"), ("h", None)], 2),
        (b"k", b"d", None, 2),
    ]
    assert (b"", b"c", None, 0) in found
    assert [f[:3] for f in found if f[0] is None] == [(None, None, None)]
    assert len(found) == 4


def test_keys_go_to_the_partitions_that_kafkas_java_client_chooses(tmp_path: Path) -> None:
    """As ``DefaultPartitioner`` does: murmur2 of the key, without its sign, modulo the partitions."""
    target = plain(KafkaTarget(shared_kafka(), f"{tmp_path}/staged", partitions=4))
    keys = ["alpha", "beta", "gamma", "delta", "21", "a much longer key, with ünicode"]
    write(target, pa.table({"key": keys, "value": keys}))
    found = {m.key(): m.partition() for m in committed(target.server, target.topic)}
    assert found == {k.encode(): (_murmur2(k.encode()) & 0x7FFFFFFF) % 4 for k in keys}


def _murmur2(data: bytes) -> int:
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    for i in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ ((k ^ k >> 24) * m & 0xFFFFFFFF)
    if rest := data[len(data) // 4 * 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def test_rows_go_to_the_topics_that_a_column_names_and_option_topic_overrides_it(target: KafkaTarget) -> None:
    other = target.server.new_topic()
    rows = pa.table({"topic": [target.topic, other, target.topic], "value": ["1", "2", "3"]})
    by_column = plain(target, topic="")
    write(by_column, rows)
    assert [m.value() for m in committed(target.server, target.topic)] == [b"1", b"3"]
    assert [m.value() for m in committed(target.server, other)] == [b"2"]
    write(plain(target, topic=other), rows, 2)
    assert [m.value() for m in committed(target.server, other)] == [b"2", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": pa.string()}, "Required attribute 'value' not found"),
        ({"value": pa.int64()}, "value must be a STRING or BINARY"),
        ({"value": pa.string(), "key": pa.int32()}, "key must be a STRING or BINARY"),
        ({"value": pa.string(), "partition": pa.int64()}, "partition must be an INT"),
        (
            {"value": pa.string(), "headers": pa.string()},
            "headers must be an ARRAY<STRUCT<key: STRING, value: BINARY>>",
        ),
    ],
)
def test_columns_that_sparks_sink_refuses_are_refused_at_start_with_its_words(
    target: KafkaTarget, columns: dict[str, pa.DataType], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        plain(target).validated(pa.schema(list(columns.items())))


def test_without_a_topic_it_is_refused_and_so_is_a_null_one(target: KafkaTarget) -> None:
    with pytest.raises(InvalidInputError, match="topic option required when no 'topic' attribute is present"):
        plain(target, topic="").validated(pa.schema([("value", pa.string())]))
    rows = pa.table({"topic": pa.array([target.topic, None]), "value": ["1", "2"]})
    with pytest.raises(InvalidInputError, match="null topic present in the data"):
        write(plain(target, topic=""), rows)
    assert target.leftovers() == [] or target.make().gc(JOB, [])
    assert target.leftovers() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' must be specified"),
        ({"kafka.key.serializer": "x"}, "'key.serializer' is not supported"),
        ({"kafka.transactional.id": "mine"}, "kafka.transactional.id cannot be set"),
        ({"kafka.transaction.timeout.ms": "soon"}, "number of milliseconds"),
        ({"staging": "nowhere"}, "durable, kafka"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "SASL PLAIN, SCRAM or GSSAPI"),
    ],
)
def test_options_that_cannot_work_are_refused_when_they_are_read(
    target: KafkaTarget, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plain(target, **options).make()


# -- outages -----------------------------------------------------------------------------------------------------------


def test_rows_of_transactions_that_the_broker_aborted_are_produced_again_once(
    target: KafkaTarget, caplog: pytest.LogCaptureFixture
) -> None:
    sink = target.validated()
    staged = [*stage(sink, [(1, "a"), (2, "b")]), *stage(sink, [(3, "c")], batch=2), *stage(sink, [(4, "d")], batch=3)]
    lose(target, staged[1:])
    with caplog.at_level(logging.WARNING):
        sink.commit(permit(1), staged)
    assert "2 of its transactions" in caplog.text
    for _ in range(2):
        target.make().commit(permit(1), staged)
    assert sorted(target.rows()) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert target.leftovers() == []


def test_a_transaction_whose_time_is_over_is_produced_again(target: KafkaTarget) -> None:
    short = plain(target, **{"kafka.transaction.timeout.ms": "1000"})
    short.sink = target.sink
    sink = short.validated()
    staged = stage(sink, [(1, "a")])
    (name,) = [s.transaction for s in staged_of(staged)]
    assert isinstance(sink, KafkaSink)
    with Transactions(sink._settings) as transactions:
        while transactions.describe([name])[name].state != "CompleteAbort":
            threading.Event().wait(0.1)
    sink.commit(permit(1), staged)
    assert target.rows() == [(1, "a")]


def test_a_crash_at_each_step_of_producing_again_is_recovered_by_committing_again(target: KafkaTarget) -> None:
    target.validated()
    expected: list[tuple[int, str]] = []
    for checkpoint in range(1, 20):
        sink = target.make()
        staged = [*stage(sink, [(10 * checkpoint, "a")], checkpoint, 2 * checkpoint),
                  *stage(sink, [(10 * checkpoint + 1, "b")], checkpoint, 2 * checkpoint + 1)]  # fmt: skip
        lose(target, staged[:1])
        crashed = crash_in_commit(target, permit(checkpoint), staged, checkpoint)
        target.make().commit(permit(checkpoint), staged)
        expected += [(10 * checkpoint, "a"), (10 * checkpoint + 1, "b")]
        assert sorted(target.rows()) == expected
        assert target.leftovers() == []
        if not crashed:
            assert checkpoint > 6
            return
    pytest.fail("commit has more than 20 steps")


def test_a_process_killed_while_it_produces_again_leaves_nothing_to_see(target: KafkaTarget) -> None:
    staged = stage(target.validated(), [(1, "a")])
    lose(target, staged)
    steps: list[str] = []

    def stop(step: str) -> None:
        steps.append(step)
        if step == "filled again":
            raise SimulatedCrash

    stopped = target.make()
    stopped.on_step = stop
    with pytest.raises(SimulatedCrash):
        stopped.commit(permit(1), staged)
    assert target.rows() == []
    at = len(steps) - 1
    assert commit_elsewhere(target, permit(1), staged, stop_at=at) == 9
    assert target.rows() == []
    target.make().commit(permit(1), staged)
    assert target.rows() == [(1, "a")]


def test_without_copies_what_the_broker_aborted_is_refused_or_skipped_as_asked(
    target: KafkaTarget, caplog: pytest.LogCaptureFixture
) -> None:
    only = plain(target, staging="kafka")
    only.sink = target.sink
    sink = only.validated()
    staged = [*stage(sink, [(1, "a")]), *stage(sink, [(2, "b"), (3, "c")], batch=2)]
    lose(target, staged[1:])
    with pytest.raises(CorruptStorageError, match=r"1 of 2 .* with 2 rows are missing.*Nothing was committed"):
        sink.commit(permit(1), staged)
    assert target.rows() == []
    only.options["failOnDataLoss"] = "false"
    only.make().commit(permit(1), staged)
    assert "They are LOST" in caplog.text
    assert target.rows() == [(1, "a")]


def test_a_checkpoint_of_many_transactions_is_committed_and_another_one_dropped(target: KafkaTarget) -> None:
    sink = target.validated()
    staged = [one for batch in range(12) for one in stage(sink, [(batch, "a")], batch=batch)]
    dropped = [one for batch in range(12) for one in stage(sink, [(batch, "b")], 2, 12 + batch)]
    sink.commit(permit(1), staged)
    sink.abort(dropped)
    assert sorted(target.rows()) == [(batch, "a") for batch in range(12)]
    assert target.leftovers() == []


def test_a_start_ends_what_earlier_ones_left_open_and_nobody_will_commit(target: KafkaTarget) -> None:
    sink = target.validated()
    kept = stage(sink, [(1, "kept")])
    stage(sink, [(2, "left")], batch=2)
    new = stage_table(sink, replace(context(1, 3), generation=2), pa.table({"k": [3], "v": ["new"]}))
    sink.end_open(JOB, 2, kept)
    assert len(target.leftovers()) == 3  # two transactions of one job, and their copies
    assert sum(target.make().staged_by().values()) == 2
    sink.commit(permit(1), [*kept, *new])
    assert sorted(target.rows()) == [(1, "kept"), (3, "new")]
    target.make().gc(JOB, [])
    assert target.leftovers() == []


@pytest.fixture(scope="module")
def own_server() -> Iterator[KafkaServer]:
    """One that tests may kill, and that soon forgets transactional ids."""
    forgets = {
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    server = KafkaServer(forgets).start()
    yield server
    server.stop()


def test_a_broker_killed_between_staging_and_commit_loses_and_doubles_nothing(
    own_server: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = KafkaTarget(own_server, f"{tmp_path}/staged", partitions=2)
    sink = target.validated()
    staged = [*stage(sink, [(i, "a") for i in range(100)]), *stage(sink, [(i, "b") for i in range(50)], batch=2)]
    own_server.kill()
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            target.make().commit(permit(1), staged)
        except CkptError as error:
            failed.append(error)

    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=commit)
        thread.start()
        while "tried again" not in caplog.text:
            threading.Event().wait(0.05)
        own_server.restart()
        thread.join(120)
    if failed:  # it gave up before the broker was back: the next start commits
        assert "Nothing is lost" in str(failed[0])
        target.make().commit(permit(1), staged)
    assert sorted(target.rows()) == sorted([(i, "a") for i in range(100)] + [(i, "b") for i in range(50)])
    assert target.leftovers() == []


@pytest.mark.soak
def test_a_commit_that_was_half_done_when_the_broker_forgot_the_transactions_is_finished(
    own_server: KafkaServer, tmp_path: Path
) -> None:
    """The marker in the ledger tells which of them were committed."""
    target = KafkaTarget(own_server, f"{tmp_path}/staged")
    sink = target.validated()
    staged = [*stage(sink, [(1, "a")]), *stage(sink, [(2, "b")], batch=2)]
    assert crash_in_commit(target, permit(1), staged, 2)  # one of the two has ended
    lose_rest = [s.transaction for s in staged_of(staged)]
    assert isinstance(sink, KafkaSink)
    with Transactions(sink._settings) as transactions:
        transactions.settle(lose_rest, False, lambda _: None)
        while transactions.describe(lose_rest):
            threading.Event().wait(0.2)
    assert target.rows() == [(1, "a")]
    for _ in range(2):
        target.make().commit(permit(1), staged)
    assert target.rows() == [(1, "a"), (2, "b")]


# -- errors ------------------------------------------------------------------------------------------------------------


def patient(target: KafkaTarget, folder: Path, **conf: Any) -> KafkaSink:
    """The sink as a job has it."""
    sink = plain(target).make()
    assert isinstance(sink, KafkaSink)
    sink.place = JobPlace(f"{folder}/job/staged", JobConfig(dir=str(folder), retry_timeout_ms=1000, **conf))
    return sink


VALUES = pa.schema([("value", pa.string())])


def test_a_server_that_is_down_is_told_after_it_was_asked_again(
    target: KafkaTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target.options["kafka.bootstrap.servers"] = f"127.0.0.1:{free_port()}"
    with pytest.raises(RetryableError, match="start the query again when Kafka answers") as failed:
        patient(target, tmp_path).validate(VALUES)
    assert "tried again for 1 s" in caplog.text
    assert PASSWORD not in caplog.text + str(failed.value)


def test_wrong_credentials_are_told_without_them(target: KafkaTarget, tmp_path: Path) -> None:
    target.options["kafka.sasl.password"] = "wr0ng-s3cret"
    with pytest.raises(ConfigError, match=r"check kafka.security.protocol") as failed:
        patient(target, tmp_path).validate(VALUES)
    assert "wr0ng" not in str(failed.value)


def test_a_topic_that_is_missing_or_closed_to_the_user_is_told_at_start(target: KafkaTarget, tmp_path: Path) -> None:
    closed = target.server.new_topic()
    rule = AclBinding(
        ResourceType.TOPIC, closed, ResourcePatternType.LITERAL, "User:ckpt", "*", AclOperation.WRITE,
        AclPermissionType.DENY,
    )  # fmt: skip
    describe = AclBinding(
        ResourceType.TOPIC, closed, ResourcePatternType.LITERAL, "User:ckpt", "*", AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = target.server.admin()
    for made in admin.create_acls([rule, describe]).values():
        made.result(60)
    target.options["topic"] = closed
    with pytest.raises(InvalidInputError, match=f"may not write to topic {closed}"):
        patient(target, tmp_path).validate(VALUES)
    target.options["topic"] = missing = f"none-{uuid.uuid4().hex[:8]}"
    with pytest.raises(InvalidInputError, match=f"topic {missing} does not exist"):
        patient(target, tmp_path).validate(VALUES)


@pytest.mark.parametrize(("topic_takes", "client_takes"), [("1000", "1000000"), ("1000000", "1000")])
def test_a_message_too_large_for_topic_or_client_fails_the_task_with_what_to_raise(
    target: KafkaTarget, topic_takes: str, client_takes: str
) -> None:
    topic = target.server.new_topic(1, {"max.message.bytes": topic_takes})
    small = plain(target, topic=topic, **{"kafka.max.request.size": client_takes})
    rows = pa.table({"value": ["small", "x" * 5000, "small"]})
    with pytest.raises(InvalidInputError, match=r"and option kafka.max.request.size"):
        write(small, rows)
    assert committed(target.server, topic) == []
    target.make().gc(JOB, [])
    assert target.leftovers() == []


def test_time_outs_that_are_too_short_are_refused_without_copies_and_told_with_them(
    target: KafkaTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target.options["kafka.transaction.timeout.ms"] = "60000"
    patient(target, tmp_path, interval_ms=1000, timeout_ms=59_000).validate(VALUES)
    assert "transaction.timeout.ms" not in caplog.text
    patient(target, tmp_path, interval_ms=1001, timeout_ms=59_000).validate(VALUES)
    assert "produced again" in caplog.text
    target.options["staging"] = "kafka"
    with pytest.raises(InvalidInputError, match=r"60000.*60001 ms.*or use staging=durable"):
        patient(target, tmp_path, interval_ms=1001, timeout_ms=59_000).validate(VALUES)
    target.options["kafka.transaction.timeout.ms"] = "900001"
    with pytest.raises(InvalidInputError, match=r"transaction.max.timeout.ms"):
        patient(target, tmp_path).validate(VALUES)


def test_secrets_of_options_are_not_recorded(target: KafkaTarget, tmp_path: Path) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{PASSWORD}";'
    options = {**target.options, "kafka.sasl.jaas.config": jaas}
    records = JobRecords(f"{tmp_path}/job", JobConfig(dir=str(tmp_path)))
    record_sinks(records, (SinkSpec("s", KafkaSink, options),))
    told = "".join(p.read_text() for p in (tmp_path / "job").rglob("*") if p.is_file())
    assert target.topic in told
    assert PASSWORD not in told


def test_the_ledger_has_an_entry_for_each_retained_checkpoint_only(target: KafkaTarget) -> None:
    sink = target.validated()
    for k in range(1, 6):
        sink.commit(permit(k, oldest=max(1, k - 1)), stage(sink, [(k, "v")], k, k))
    keys = sorted(ledger_of(target.server, target.ledger))
    assert keys == [f'["commit","{JOB}","totals",{k}]'.encode() for k in (4, 5)]
    marks = [m for m in committed(target.server, target.ledger) if m.partition() == 1]
    assert len({m.key() for m in marks} - {m.key() for m in marks if m.value() is None}) == 2
