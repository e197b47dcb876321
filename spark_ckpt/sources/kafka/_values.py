"""Values in a format, and what happens to those that cannot be read. Executor, made on the driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from spark_ckpt.errors import BadRecordError
from spark_ckpt.formats.base import Decoder
from spark_ckpt.sources._bad_records import FAIL, SKIP
from spark_ckpt.sources.kafka._positions import Partition
from spark_ckpt.storage.filesystem import Folder

_SHOWN = 200


@dataclass(frozen=True)
class Values:
    """``policy`` is ``fail``, ``skip``, or the URL of a folder that keeps one JSON file a bad record."""

    decoder: Decoder
    policy: str
    storage_options: Mapping[str, Any]

    def decoded(
        self, found: Sequence[Message], partition: Partition, topic_id: str
    ) -> tuple[Sequence[Message], pa.Array]:
        """The messages whose values can be read, and these. Raises ``BadRecordError`` if the policy is to fail."""
        result = self.decoder.decode([m.value() for m in found])
        if not result.bad:
            return found, result.values
        for at, reason in sorted(result.bad.items()):
            self._handle(found[at], partition, topic_id, reason)
        good = [at for at in range(len(found)) if at not in result.bad]
        return [found[at] for at in good], result.values.take(pa.array(good, pa.int64()))

    def _handle(self, message: Message, partition: Partition, topic_id: str, reason: str) -> None:
        if self.policy == FAIL:
            raise BadRecordError(
                f"{partition}, offset {message.offset()}: expected {self.decoder.type}, found "
                f"{_short(message.value())} ({reason}). Nothing of this batch was committed. Set the option badRecords "
                "to 'skip', or to a folder that keeps what cannot be read, and start again"
            )
        if self.policy != SKIP:
            self._keep(message, partition, topic_id, reason)

    def _keep(self, message: Message, partition: Partition, topic_id: str, reason: str) -> None:
        """Under a name that a replay finds taken."""
        mark = base64.urlsafe_b64encode(base64.b64decode(topic_id + "==")).decode().rstrip("=")
        body = {
            "topic": partition.topic,
            "partition": partition.number,
            "offset": message.offset(),
            "expected": str(self.decoder.type),
            "record": message.value().decode(errors="backslashreplace"),
            "recordBase64": base64.b64encode(message.value()).decode(),
            "keyBase64": None if message.key() is None else base64.b64encode(message.key()).decode(),
            "reason": reason,
        }
        folder = Folder(self.policy, self.storage_options)
        folder.create(f"{partition}-{message.offset()}-{mark}.json", json.dumps(body).encode())


def _short(value: bytes) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + b"...")
