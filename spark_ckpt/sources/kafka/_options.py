"""Options of the ``kafka`` source: Spark's names, checked when the stream is built. Driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException

from spark_ckpt.errors import ConfigError
from spark_ckpt.expressions.java_regex import Searcher
from spark_ckpt.formats.formats import CORRUPT, FORMATS
from spark_ckpt.kafka_client import librdkafka_conf, without_secrets
from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources._options import Option, choice, duration_s, flag, java_regex, positive, text
from spark_ckpt.sources.kafka._positions import Partition, Places

EARLIEST, LATEST = -2, -1
"""How Spark's JSON of offsets writes them."""

_REGISTRY = ("schemaRegistryUrl", "schemaRegistryUser", "schemaRegistryPassword")
_WAYS = ("subscribe", "subscribePattern", "assign")


def _json(check: Callable[[Any], Any], expects: str) -> Option:
    def parse(value: str) -> Any:
        try:
            return check(json.loads(value))
        except (TypeError, AttributeError, KeyError, json.JSONDecodeError):
            raise ValueError(value) from None

    return Option(parse, expects)


def _numbers(found: Any) -> Places:
    """Topic -> partition -> number, as Spark has it in three options."""
    places = {Partition(str(t), int(p)): at for t, ps in found.items() for p, at in ps.items()}
    if not places or not all(type(at) is int for at in places.values()):
        raise ValueError(found)
    return places


def _partitions(found: Any) -> list[Partition]:
    partitions = sorted({Partition(str(t), int(p)) for t, ps in found.items() for p in ps})
    if not partitions:
        raise ValueError(found)
    return partitions


def _offsets(expects: str) -> Option:
    numbers = _json(_numbers, "")

    def parse(value: str) -> Places | int:
        word = value.strip().lower()
        if word in ("earliest", "latest"):
            return EARLIEST if word == "earliest" else LATEST
        return numbers.parse(value)

    return Option(parse, expects)


def starting_offsets(asked: str | Mapping[str, Any]) -> Places | int:
    """``earliest``, ``latest``, or offsets by partition, as Spark writes them or checkpoints keep them. Raises
    ``ValueError``."""
    if isinstance(asked, str):
        return EARLIEST if asked == "earliest" else LATEST
    offsets: Places = OPTIONS["startingOffsets"].parse(json.dumps(asked.get("offsets", asked)))
    return offsets


def _topics() -> Option:
    def parse(value: str) -> list[str]:
        names = [name.strip() for name in value.split(",") if name.strip()]
        if not names:
            raise ValueError(value)
        return sorted(set(names))

    return Option(parse, "names of topics, divided by commas")


def _timestamp() -> Option:
    return Option(lambda value: int(value), "milliseconds since 1970, a whole number")


_BY_PARTITION = 'JSON such as {"topic":{"0":1700000000000}}: topic, partition, milliseconds since 1970'

OPTIONS = {
    "subscribe": _topics().means("Topics to read. One of this, `subscribePattern` and `assign` is needed."),
    # Topics have names of ASCII.
    "subscribePattern": java_regex("a regular expression of Java, to be found in names of topics", True).means(
        "All topics in whose names it is found, as in Spark, those that come later included; `^orders$` is one name."
    ),
    "assign": _json(_partitions, 'JSON such as {"topicA":[0,1]}: topic, partitions').means(
        "These partitions and no others."
    ),
    "startingOffsets": _offsets('earliest, latest, or JSON such as {"topic":{"0":23,"1":-2}}').means(
        "Where a fresh job begins; latest without it. In JSON -2 is earliest and -1 latest; each partition is named."
    ),
    "startingTimestamp": _timestamp().means(
        "A fresh job begins with the first record of that time or later. It goes before the two other starting options."
    ),
    "startingOffsetsByTimestamp": _json(_numbers, _BY_PARTITION).means("The same, a time for each partition."),
    "startingOffsetsByTimestampStrategy": choice("error", "latest", default="error").means(
        "What to do in a partition that has no record so late: end the query, or begin at its end."
    ),
    "endingOffsets": _offsets('latest, or JSON such as {"topic":{"0":50,"1":-1}}').means(
        "Where the stream ends, for good; without it there is no end. Spark has it for batches only."
    ),
    "endingTimestamp": _timestamp().means("It ends in front of the first record of that time or later."),
    "endingOffsetsByTimestamp": _json(_numbers, _BY_PARTITION).means("The same, a time for each partition."),
    "maxOffsetsPerTrigger": positive().means(
        "Offsets of a batch at most, divided by what partitions have; as in Spark, at least one of each."
    ),
    "minOffsetsPerTrigger": positive().means("No batch of fewer offsets, unless `maxTriggerDelay` is over."),
    "maxTriggerDelay": duration_s(900.0).means("How long `minOffsetsPerTrigger` may put a batch off."),
    "minPartitions": positive().means("Ranges of a batch at least: large ones are cut, and read in parallel."),
    "maxRecordsPerPartition": positive().means("Offsets of one range at most; larger ones are cut."),
    "includeHeaders": flag().means("A column `headers array<struct<key:string,value:binary>>`, too."),
    "failOnDataLoss": flag(True).means(
        "Records that are gone, or a topic that is gone or was made again, end the query; with false a warning says so."
    ),
    "groupIdPrefix": text("spark-kafka-source").means(
        "Begins the name of the consumer group, if `kafka.group.id` does not give it."
    ),
    "valueFormat": choice(*FORMATS).means(
        "What values are: `value` is a struct then, or a text, in place of bytes. Without it values stay bytes."
    ),
    "valueSchema": text(expects="a schema, as DDL for json and as Avro's JSON for avro").means(
        "What values hold; avro may take it from the registry, by subject `<topic>-value`."
    ),
    "valueDescriptorFile": text(expects="a file, local or any fsspec URL").means(
        "protobuf only. What `protoc --include_imports --descriptor_set_out` writes."
    ),
    "valueMessageName": text(expects="the full name of a message").means("protobuf only. Which of its messages."),
    "schemaRegistryUrl": text(expects="a URL of http or https").means(
        "Values are in Confluent's wire format: a byte 0 and the id of a schema stand in front."
    ),
    "schemaRegistryUser": text().means("Of the registry, where it asks for one."),
    "schemaRegistryPassword": text().means("Of the registry."),
    "badRecords": text(FAIL, f"{FAIL}, {SKIP}, or a folder").means(
        "With `valueFormat`: what cannot be read ends the query, is left out, or is kept once, as a JSON file in that "
        "folder."
    ),
    "mode": choice("permissive", "failfast", "dropmalformed").means(
        "As in Spark's `from_json`: FAILFAST is `badRecords=fail`, DROPMALFORMED `skip`. PERMISSIVE, json only: what "
        "does not fit is null, and the record's text is in the column for corrupt records, if `valueSchema` has it."
    ),
    "columnNameOfCorruptRecord": text().means(f"The name of that column, `{CORRUPT}` without it."),
    "kafkaConsumer.pollTimeoutMs": positive(120_000).means(
        "How long brokers may be away, in milliseconds, before the query fails and is to be started again."
    ),
}

_UNSUPPORTED = {
    "auto.offset.reset": "set the source's option startingOffsets to earliest or latest",
    "key.deserializer": "keys are bytes; cast them, or see option valueFormat",
    "value.deserializer": "values are bytes; cast them, or set option valueFormat",
    "enable.auto.commit": "offsets are committed to the group when a checkpoint has completed",
    "enable.auto.offset.store": "offsets are committed to the group when a checkpoint has completed",
    "interceptor.classes": "there is no Java in this source",
    "enable.partition.eof": "the source needs it for itself",
}


@dataclass(frozen=True)
class Wanted:
    """Which partitions: one of the three is set."""

    topics: list[str] | None
    pattern: Searcher | None
    assigned: list[Partition] | None


def wanted(parsed: Mapping[str, Any]) -> Wanted:
    """Raises ``ConfigError``, in Spark's words, unless exactly one of the three options is there."""
    given = [name for name in _WAYS if parsed[name] is not None]
    if not given:
        raise ConfigError(
            "One of the following options must be specified for Kafka source: subscribe, subscribePattern, assign"
        )
    if len(given) > 1:
        raise ConfigError(
            "Only one of the following options can be specified for Kafka source: subscribe, subscribePattern, assign; "
            f"found {', '.join(given)}"
        )
    return Wanted(parsed["subscribe"], parsed["subscribePattern"], parsed["assign"])


_MODES = {"failfast": FAIL, "dropmalformed": SKIP}
_PERMISSIVE = "permissive"


def with_bad_records(given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with Spark's ``mode`` of ``from_json`` as option ``badRecords``; PERMISSIVE stays, with the name of its
    column, which alone asks for it as Spark's default does. Raises ``ConfigError`` for what does not go together."""
    names = {name.lower(): name for name in given}
    column = names.get("columnnameofcorruptrecord")
    mode = given[names["mode"]].lower() if "mode" in names else None if column is None else _PERMISSIVE
    if mode is None:
        return dict(given)
    if mode not in (*_MODES, _PERMISSIVE):
        raise ConfigError(
            f"option 'mode' of source 'kafka': expected PERMISSIVE, FAILFAST or DROPMALFORMED, found "
            f"'{given[names['mode']]}'"
        )
    if "valueformat" not in names:
        raise _without_format("mode" if "mode" in names else "columnNameOfCorruptRecord")
    if "badrecords" in names:
        raise ConfigError(
            "source 'kafka': expected mode (or columnNameOfCorruptRecord) or badRecords, found both; leave one out"
        )
    rest = {name: value for name, value in given.items() if name.lower() not in ("mode", "columnnameofcorruptrecord")}
    if mode == _PERMISSIVE:
        return {**rest, "mode": _PERMISSIVE, "columnNameOfCorruptRecord": given[column] if column else CORRUPT}
    if column is not None:
        raise ConfigError(f"source 'kafka': columnNameOfCorruptRecord goes with mode PERMISSIVE, found {mode.upper()}")
    return {**rest, "badRecords": _MODES[mode]}


def check_format(parsed: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for options that belong to another format, or to one where there is none."""
    found = parsed["valueFormat"]
    protobuf = ("valueDescriptorFile", "valueMessageName")
    allowed = {
        None: (),
        "string": ("badRecords",),
        "json": ("badRecords", "mode", "columnNameOfCorruptRecord", "valueSchema", *_REGISTRY),
        "avro": ("badRecords", "valueSchema", *_REGISTRY),
        "protobuf": ("badRecords", *protobuf, *_REGISTRY),
    }[found]
    for name in ("badRecords", "mode", "columnNameOfCorruptRecord", "valueSchema", *protobuf, *_REGISTRY):
        if parsed[name] == OPTIONS[name].default or name in allowed:
            continue
        if found is None:
            raise _without_format(name)
        raise ConfigError(f"option '{name}' of source 'kafka' does not go with valueFormat {found}; leave it out")


def _without_format(name: str) -> ConfigError:
    return ConfigError(
        f"option '{name}' of source 'kafka' needs option 'valueFormat', one of {', '.join(FORMATS)}: without it values "
        "stay bytes, and none is bad"
    )


def check_range(parsed: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for options that contradict each other."""
    end = parsed["endingOffsets"]
    if end == EARLIEST or (isinstance(end, dict) and EARLIEST in end.values()):
        raise ConfigError("option 'endingOffsets' of source 'kafka': expected latest (-1) or offsets, found earliest")
    least, most = parsed["minOffsetsPerTrigger"], parsed["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}); lower it"
        )


def consumer_conf(given: Mapping[str, str]) -> dict[str, str]:
    """The client's configuration for ``kafka.*`` options, with what this source sets. Raises ``ConfigError``."""
    for name, reason in _UNSUPPORTED.items():
        if name in given:
            raise ConfigError(f"Kafka option '{name}' is not supported: {reason}")
    if not given.get("bootstrap.servers", "").strip():
        raise ConfigError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
    # Spark reads what was aborted unless told otherwise, as Java's client does and librdkafka does not.
    conf = {"isolation.level": "read_uncommitted", **librdkafka_conf(given)}
    _check(conf)
    return conf


def _check(conf: Mapping[str, str]) -> None:
    """By a consumer without brokers, which connects to nothing."""
    alone = {k: v for k, v in conf.items() if k not in ("bootstrap.servers", "metadata.broker.list")}
    try:
        Consumer({"group.id": "check", "log_level": 0, **alone}).close()
    except KafkaException as error:
        found = without_secrets(error.args[0].str(), conf)
        raise ConfigError(
            f"options 'kafka.*' of source 'kafka': {found}; expected what librdkafka knows, or those of Kafka's Java "
            "client that have the same meaning there"
        ) from None
