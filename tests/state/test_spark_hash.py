"""The key hash in Python is Spark's. The numbers were printed by Spark 4.2's ``xxhash64``; tests/spark has more."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.list_(pa.int64()))])
GOLDEN = [
    (pa.array([True, False, None]), [-6698625589789238999, 3614696996920510707, 42]),
    (pa.array([-1, 0, 127], pa.int8()), [2017008487422258757, 3614696996920510707, 8632298611707923906]),
    (pa.array([-1, 300, None], pa.int16()), [2017008487422258757, 4595878464234128934, 42]),
    (pa.array([-(2**31), 7, None], pa.int32()), [2073849959933241805, 2786828215451145335, 42]),
    (pa.array([-(2**63), 42, None]), [-8619748838626508300, -6876166290308861218, 42]),
    (pa.array([1.5, 0.0, None], pa.float32()), [6163473420726370430, 3614696996920510707, 42]),
    (pa.array([-1.5, 0.0, float("inf")]), [-1519168156472177911, -5252525462095825812, 5810986238603807492]),
    (
        pa.array([Decimal("0.42"), Decimal("-1.00"), None], pa.decimal128(9, 2)),
        [-6876166290308861218, 5675770457807661948, 42],
    ),
    (
        pa.array([Decimal("-0.0000000129"), Decimal("12345678901234567890.0000000001"), None], pa.decimal128(38, 10)),
        [-6459515886037897956, -1892816793385951779, 42],
    ),
    (
        pa.array(["", "Grüße", "a sentence that is longer than thirty-two bytes, and then some"]),
        [-7444071767201028348, -2071892481765773306, 7335002767079185097],
    ),
    (
        pa.array([b"\x00\xff", b"12345678", bytes(range(71))]),
        [879945414100663330, 6863040065134489090, 4285260837125010956],
    ),
    (pa.array([date(1969, 12, 31), date(2024, 2, 29), None]), [2017008487422258757, 4183429117450946631, 42]),
    (
        pa.array([-1, 1_700_000_000_000_001, None], pa.timestamp("us", "UTC")),
        [3858142552250413010, 3348137978408683071, 42],
    ),
    (
        pa.array([(1, "x", 0.5, [1, None, 3]), (None, "y", None, []), None], STRUCT),
        [-3035921332684200946, -2901346384480684965, 42],
    ),
    (pa.array([[1, None, 3], [], None], pa.list_(pa.int64())), [7452347529957652509, 42, 42]),
    (
        pa.array([[(1, "x", 0.5, [1, None, 3])] * 2, [(None, "y", None, [])] * 2, [None]], pa.list_(STRUCT)),
        [-1226060656811393776, -513416009041848446, 42],
    ),
]
TWO = [-8527884376001292090, -8582455328737087284, 42]


@pytest.mark.parametrize(("column", "hashes"), GOLDEN)
def test_one_column_hashes_as_in_spark(column: pa.Array, hashes: list[int]) -> None:
    assert xxhash64([column]).tolist() == hashes


def test_a_column_seeds_the_next_and_a_null_changes_nothing() -> None:
    first, second = pa.array([1, None, None]), pa.array(["a", "a", None])
    assert xxhash64([first, second]).tolist() == TWO
    assert TWO[2] == 42
    assert TWO[1] == xxhash64([pa.array(["a"])])[0]


ONE_VALUE = [column for column, _ in GOLDEN for column in (pa.concat_arrays([column[:1]] * 3), column)]


@pytest.mark.parametrize("place", range(len(ONE_VALUE)))
def test_a_column_with_one_value_throughout_hashes_as_each_row_does(place: int) -> None:
    """Wherever it stands among the others, of whatever types these are."""
    for other in ONE_VALUE:
        columns = [ONE_VALUE[place], other[:3], ONE_VALUE[0]]
        each = [int(xxhash64([c.slice(row, 1) for c in columns])[0]) for row in range(3)]
        assert xxhash64(columns).tolist() == each


def test_slices_hash_as_their_rows_do() -> None:
    for column, hashes in GOLDEN:
        assert xxhash64([column.slice(1)]).tolist() == hashes[1:]


def test_zeros_and_nans_are_one_key_each() -> None:
    found = normalised(pa.array([-0.0, 0.0, np.nan, -np.nan, None]))
    assert len(set(xxhash64([found]).tolist())) == 3
    assert found.null_count == 1


def test_a_type_that_cannot_be_a_key_is_a_bug_not_a_wrong_hash() -> None:
    with pytest.raises(ProtocolBugError, match="duration"):
        xxhash64([pa.array([1], pa.duration("us"))])
