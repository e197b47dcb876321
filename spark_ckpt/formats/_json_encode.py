"""Values of Kafka's messages as JSON, as Spark's ``to_json`` writes them (:mod:`spark_ckpt.formats.json_texts`)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.formats.base import Encoder
from spark_ckpt.formats.json_texts import json_texts


class JsonEncoder(Encoder):
    """Structs as objects without the fields that are null."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        texts = json_texts(values, nulls=False)
        return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())).cast(pa.binary())
