"""Names of columns in Delta and Iceberg tables: what they are to one reader they are to all, or they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import NoSuchTableError

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.sinks.iceberg_harness import catalog_of, catalog_options

NAMES = ["host.name", "a`b", "Id", "straße", "e\u0301", 'q"q', "x'y", "a{b", "%41", "a\\b", "$.a", "[0]", "*", "key"]
USES = ["append", "mergeKeys", "partitionBy"]


def options_of(kind: str, folder: Path) -> dict[str, str]:
    return {"path": str(folder / "t")} if kind == "delta" else {"table": "db.t", **catalog_options(folder)}


def validated(kind: str, options: dict[str, str], schema: pa.Schema) -> TwoPhaseSink:
    sink = create_sink(kind, options, False)
    sink.validate(schema)
    return sink


def commit(sink: TwoPhaseSink, checkpoint: int, rows: pa.Table) -> None:
    sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=rows.schema), rows))


def there(kind: str, options: dict[str, str]) -> list[dict[str, Any]]:
    if kind == "delta":
        found = DeltaTable(options["path"]).to_pyarrow_table()
    else:
        found = catalog_of(options).load_table("db.t").scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["v"])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("use", USES)
def test_a_column_is_what_its_name_says_as_a_value_a_key_and_a_partition(tmp_path: Path, kind: str, use: str) -> None:
    names = [name for name in NAMES if "`" not in name or (kind, use) != ("delta", "mergeKeys")]
    options = options_of(kind, tmp_path) | ({use: ",".join(names)} if use != "append" else {})
    first, second = (
        [{**{name: f"{name} {row}" for name in names}, "v": 10 * n + row} for row in range(2)] for n in range(2)
    )
    sink = validated(kind, options, pa.Table.from_pylist(first).schema)
    commit(sink, 1, pa.Table.from_pylist(first))
    commit(sink, 2, pa.Table.from_pylist(second))
    assert there(kind, options) == (second if use == "mergeKeys" else [*first, *second])


def test_a_delta_merge_of_a_name_with_a_backtick_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="backtick"):
        validated("delta", {**options_of("delta", tmp_path), "mergeKeys": "a`b"}, pa.schema([("a`b", pa.int64())]))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("order", [["host.name", "host", "v"], ["host", "host.name", "v"]])
def test_a_delta_column_beside_a_struct_with_a_field_of_its_name(tmp_path: Path, use: str, order: list[str]) -> None:
    options = options_of("delta", tmp_path) | ({use: "host.name"} if use != "append" else {})
    rows = pa.table({"host.name": ["z", "y"], "host": [{"name": "a"}, {"name": "b"}], "v": [1, 2]}).select(order)
    commit(validated("delta", options, rows.schema), 1, rows)
    table = DeltaTable(options["path"])
    assert there("delta", options) == rows.to_pylist()
    if use != "mergeKeys":  # files of delta-rs have views, which pyarrow does not compare
        assert table.to_pyarrow_table(filters=pc.field("host.name") == "z")["v"].to_pylist() == [1]


def test_an_iceberg_column_beside_a_struct_with_a_field_of_its_name_is_refused_and_no_table_made(
    tmp_path: Path,
) -> None:
    options = options_of("iceberg", tmp_path)
    struct, words = pa.struct([("name", pa.string())]), pa.list_(pa.string())
    for schema in ([("host.name", pa.string()), ("host", struct)], [("l", words), ("l.element", pa.string())]):
        with pytest.raises(InvalidInputError, match=r"found two for (host.name|l.element): .*withColumnRenamed"):
            validated("iceberg", options, pa.schema(schema))
    with pytest.raises(NoSuchTableError):
        catalog_of(options).load_table("db.t")


@pytest.mark.parametrize(("a", "b"), [("id", "ID"), ("é", "É"), ("ß", "ẞ"), ("k", "\u212a")])
def test_names_that_differ_in_case_alone_are_refused_for_delta_in_plain_words(tmp_path: Path, a: str, b: str) -> None:
    options, pair = options_of("delta", tmp_path), [(a, pa.int64()), (b, pa.int64())]
    for schema, where in (
        (pa.schema(pair), ""),
        (pa.schema([("s", pa.struct(pair))]), "s."),
        (pa.schema([("l", pa.list_(pa.struct(pair)))]), r"l\.\w+\."),
    ):
        with pytest.raises(InvalidInputError, match=f"'{where}{a}' and '{where}{b}' differ in upper and lower case"):
            validated("delta", options, schema)


def test_a_column_that_the_table_has_in_other_case_is_refused_with_a_way_that_works(tmp_path: Path) -> None:
    options = options_of("delta", tmp_path)
    validated("delta", options, pa.schema([("ID", pa.int64())]))
    for more in ({}, {"mergeSchema": "true"}):
        with pytest.raises(InvalidInputError, match=r"'ID' and 'id' differ.*write it as the table has it"):
            validated("delta", {**options, **more}, pa.schema([("id", pa.int64())]))
    validated("delta", options, pa.schema([("ID", pa.int64())]))
