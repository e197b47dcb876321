"""What mapInArrow makes of a function's batches. No session is needed for it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.runtime.stateless import MapArrow, with_control
from spark_ckpt.types import CTL, TAG

SCHEMA = with_control(StructType([StructField("n", LongType()), StructField("s", StringType())]))
ROWS = pa.table({"n": [1, 2], "s": ["a", "b"], TAG: pa.array([1, 1]), CTL: pa.nulls(2, pa.binary())})


def _renamed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.rename_columns(["s", "anything"])


def _one_column(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["n"])


def test_columns_count_by_position_as_in_spark() -> None:
    (made,) = MapArrow(_renamed, SCHEMA)(iter(ROWS.to_batches()))
    assert made.select(["n", "s"]).to_pydict() == {"n": [1, 2], "s": ["a", "b"]}


def test_another_number_of_columns_is_an_error_that_names_both() -> None:
    with pytest.raises(UserFunctionError, match=r"yielded 1 column.*\['n'\].*expected 2.*\['n', 's'\]"):
        list(MapArrow(_one_column, SCHEMA)(iter(ROWS.to_batches())))


def test_a_decimal_that_has_no_room_for_its_digits_is_an_error() -> None:
    def large(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"n": pa.array([10**30] * len(batch), pa.decimal128(38, 0))})

    schema = with_control(StructType([StructField("n", DecimalType(38, 18))]))
    with pytest.raises(pa.ArrowInvalid):
        list(MapArrow(large, schema)(iter(ROWS.to_batches())))
