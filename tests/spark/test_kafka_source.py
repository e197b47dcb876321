"""A keyed job over a Kafka topic in Spark, stopped and started again with other lanes and another partition."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import functions as F

from tests.kafka_server import shared_kafka
from tests.spark.conftest import Job, wait_until


def produce(topic: str, numbers: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": shared_kafka().bootstrap})
    for n in numbers:
        producer.produce(topic, str(n), f"k{n % 3}", partition=n % partitions, headers={"n": str(n)})
    assert producer.flush(60) == 0


def test_a_keyed_job_over_kafka_goes_on_where_it_was_with_other_lanes_and_a_new_partition(ckpt: Any, job: Job) -> None:
    kafka = shared_kafka()
    topic = kafka.new_topic(2)
    produce(topic, range(30), 2)

    def totals(lanes: int) -> Any:
        reader = ckpt.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        reader = reader.options(subscribe=topic, includeHeaders=True, startingOffsets="earliest", lanes=lanes)
        rows = reader.option("maxOffsetsPerTrigger", 20).load()
        numbers = rows.select(
            F.col("key").cast("string").alias("k"),
            F.col("value").cast("string").cast("int").alias("v"),
            F.element_at("headers", 1)["value"].cast("string").cast("int").alias("h"),
        )
        return numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v"), F.sum("h").alias("h")).uid("t")

    job.run(totals(2), "k")
    assert job.rows() == [(f"k{k}", 10, sum(range(k, 30, 3)), sum(range(k, 30, 3))) for k in range(3)]
    admin = kafka.admin()  # it must outlive what it was asked for
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    wait_until(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 3)
    produce(topic, range(30, 60), 3)
    job.run(totals(3), "k")
    assert job.rows() == [(f"k{k}", 20, sum(range(k, 60, 3)), sum(range(k, 60, 3))) for k in range(3)]


def test_the_group_hears_of_the_last_checkpoint_of_a_query_that_was_drained(ckpt: Any, job: Job) -> None:
    kafka = shared_kafka()
    topic = kafka.new_topic()
    produce(topic, range(5), 1)
    reader = ckpt.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    reader = reader.options(subscribe=topic, startingOffsets="earliest").option("kafka.group.id", f"lag-{topic}")
    query = job.start(reader.load().select("value"), now=False)
    query.stop(drain=True)
    group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"lag-{topic}"})
    # Spark ends the source's process, which tells it, and does not wait for that.
    wait_until(lambda: group.committed([TopicPartition(topic, 0)], 60)[0].offset == 5)
    group.close()
