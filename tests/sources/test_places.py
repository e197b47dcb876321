"""Offsets of one source, and which of them is as far as which."""

from __future__ import annotations

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.places import reached, require_comparable

KAFKA = {"ids": {"t": "x"}, "offsets": {"t": {"0": 5, "1": 0}, "u": {"0": 3}}}
DELTA = {"table": "x", "changes": False, "start": 3, "snapshot": True, "version": 7, "index": 2}
CASES = [
    ("kafka subscribe=t", KAFKA, {"offsets": {"t": {"0": 5}}}, True),
    ("kafka subscribe=t", KAFKA, {"offsets": {"t": {"0": 5, "1": 1}}}, False),
    ("kafka subscribe=t", KAFKA, {"offsets": {"t": {"2": 0}}}, True),
    ("kafka subscribe=t", KAFKA, {"offsets": {"t": {"2": 1}}}, False),
    ("kafka subscribe=t", KAFKA, {"offsets": {"v": {"0": 1}}}, False),
    ("delta path=/t", DELTA, {"version": 7, "index": 2}, True),
    ("delta path=/t", DELTA, {"version": 7}, True),
    ("delta path=/t", DELTA, {"version": 7, "index": 3}, False),
    ("delta path=/t", DELTA, {"version": 8}, False),
    ("delta path=/t", {"version": -1, "index": 0}, {"version": 0}, False),
    ("files path=/d", {"file": 3}, {"file": 3}, True),
    ("files path=/d", {"file": 3}, {"file": 3, "row": 1}, False),
    ("files path=/d", {"file": 3, "row": 9}, {"file": 3, "row": 9}, True),
    ("rate", {"startTime": 1, "second": 9}, {"second": 10}, False),
    ("rate-micro-batch", {"value": 10}, {"value": 10}, True),
    ("sql table=t", {"after": 12}, {"after": 12}, True),
    ("sql table=t", {"after": 12}, {"after": 13}, False),
    ("sql table=t", {"from": None}, {"after": 1}, False),
    ("sql table=t", {"after": 3}, {"after": None}, True),
    ("sql table=t", {"after": None}, {"after": None}, True),
    ("sql table=t", {"after": None}, {"after": 3}, False),
    ("sql table=t", {"from": 5}, {"from": 5}, True),
    ("sql table=t", {"after": 5}, {"from": 5}, True),
    ("sql table=t", {"after": None}, {"from": 5}, False),
    ("sql table=t", {"after": "2024-01-02T00:00:00"}, {"after": "2024-01-01T23:59:59.500000"}, True),
    ("sql table=t", {"after": "2024-01-02"}, {"after": "2024-01-03"}, False),
]


@pytest.mark.parametrize(("reads", "at", "target", "is_there"), CASES)
def test_an_offset_is_as_far_as_another(reads, at, target, is_there):
    assert reached("in", reads, at, target) is is_there


@pytest.mark.parametrize("reads", ["iceberg table=t", "SparkStream", "Mine", ""])
def test_a_source_whose_offsets_have_no_order_is_refused_by_name(reads):
    with pytest.raises(ConfigError, match=r"source 'in' .* cannot be compared: expected one of delta, files, kafka"):
        require_comparable("in", reads)


@pytest.mark.parametrize(
    ("reads", "at", "target"),
    [
        ("kafka", KAFKA, {"t": {"0": 5}}),
        ("kafka", KAFKA, {"offsets": {"t": 5}}),
        ("delta", DELTA, {"index": 3}),
        ("files", {"file": 3}, 3),
        ("sql", {"after": 12}, {"after": "2024-01-01"}),
        ("sql", {"after": "b"}, {"after": "a"}),
    ],
)
def test_what_is_no_offset_of_the_source_is_refused(reads, at, target):
    with pytest.raises(ConfigError, match="expected an offset of source 'in'"):
        reached("in", reads, at, target)
