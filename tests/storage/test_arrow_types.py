"""The one table of types: each row is what deltalake and SQLAlchemy make of it; nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import deltalake
import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.pandas.types import from_arrow_type

from spark_ckpt.arrow_types import DELTA_NAMES, SQL_NAMES, TABLE, database_type, delta_type, plain_type
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.sql.types import sql_type
from spark_ckpt.storage.delta_schema import from_delta_schema, to_delta_schema

EDGES: dict[pa.DataType, list[Any]] = {
    pa.uint8(): [0, 2**8 - 1],
    pa.uint16(): [0, 2**16 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.uint64(): [0, 2**64 - 1],
    pa.float16(): [65504.0, -0.5],
    pa.large_string(): ["", "ä"],
    pa.string_view(): ["", "longer than a view holds inline"],
    pa.large_binary(): [b"", b"\0"],
    pa.binary_view(): [b"", b"\0"],
    pa.date64(): [0, 86_400_000],
    pa.timestamp("s", "Europe/Berlin"): [0, 1],
    pa.timestamp("ms"): [0, 1],
    pa.time32("s"): [0, 86_399],
    pa.binary(2): [b"ab"],
    pa.dictionary(pa.int8(), pa.string()): ["a", None],
    pa.list_(pa.uint8()): [[1, None], None],
    pa.large_list(pa.string()): [["a"], []],
    pa.list_(pa.int32(), 2): [[1, 2]],
    pa.map_(pa.string(), pa.date64()): [[("a", None)]],
    pa.struct([("a", pa.large_string())]): [{"a": "b"}, None],
}
"""The values at the ends of types that are written as another."""


@pytest.mark.parametrize("name", sorted(DELTA_NAMES.values()))
def test_delta_and_spark_call_a_type_so(name: str) -> None:
    (plain,) = [kind for kind, found in DELTA_NAMES.items() if found == name]
    schema = pa.schema([("c", plain)])
    assert deltalake.Schema.from_arrow(schema).fields[0].type.type == name
    assert from_arrow_type(plain, prefer_timestamp_ntz=True).typeName() == name
    assert from_delta_schema(to_delta_schema(schema)) == schema


@pytest.mark.parametrize("plain", SQL_NAMES, ids=str)
def test_a_database_column_is_of_the_type_the_table_names(plain: pa.DataType) -> None:
    assert type(sql_type(plain)) is getattr(sa, SQL_NAMES[plain])


@pytest.mark.parametrize("kind", EDGES, ids=str)
def test_nothing_is_lost_on_the_way_to_the_plain_type(kind: pa.DataType) -> None:
    values = pa.array(EDGES[kind], kind if not pa.types.is_float16(kind) else pa.float32()).cast(kind)
    assert values.cast(plain_type(kind)).cast(kind).equals(values)
    assert plain_type(plain_type(kind)) == plain_type(kind)


def test_each_type_that_is_written_as_another_is_tried() -> None:
    assert {kind for row in TABLE for kind in row.also} <= set(EDGES)


@pytest.mark.parametrize(
    "kind",
    [pa.time64("us"), pa.duration("us"), pa.null(), pa.decimal256(50, 2), pa.list_(pa.duration("s")),
     pa.sparse_union([pa.field("a", pa.int8())]), pa.struct([("a", pa.map_(pa.string(), pa.time32("s")))])],
    ids=str,
)  # fmt: skip
def test_what_delta_lacks_is_refused_by_the_columns_name_and_its_own_type(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError) as refused:
        delta_type("c", kind)
    assert str(refused.value) == f"column 'c' has type {kind}, which Delta cannot store; cast or drop it"


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.duration("us"), pa.struct([("a", pa.int8())])], ids=str)
def test_what_a_database_column_cannot_hold_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'c' has type .*, which a database column cannot hold"):
        database_type("c", kind)
