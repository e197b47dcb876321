"""Sources take files and batches of any layout of Arrow's: a Parquet file says how its writer had the values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sources._convert import spark_schema
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.testing.sink_harness import CHANGES, permit, stage_changes, table_of
from spark_ckpt.testing.source_harness import batches, read
from tests.arrow_layouts import LAYOUTS, NOT_IN_PARQUET, table
from tests.sinks.iceberg_harness import catalog_of, catalog_options
from tests.sources.delta_tables import HandMade, field
from tests.sources.test_iceberg_fresh_streams import delete_first_rows
from tests.sources.test_source_iceberg import expire

IN_FILES = [name for name in LAYOUTS if name not in NOT_IN_PARQUET]
LIST_VIEWS = ("list view", "large list view")
Values = list[tuple[Any, ...]]


def opened(source: Any, options: dict[str, str], schema: StructType | None = None, notes: str = "") -> InnerReader:
    found = open_source(source, options, schema, notes)
    return found.reader(found.schema())


def rows_of(reader: InnerReader) -> Values:
    ranges = batches(reader, reader.initial())
    found = [row for start, end in ranges for split in reader.splits(start, end) for row in read(reader, split)]
    return sorted(found, key=lambda row: row[0])


def expected(name: str) -> Values:
    columns = table(name, ordinary=True)
    return list(zip(*columns.to_pydict().values(), strict=True))


def delta_type(name: str) -> Any:
    struct = spark_schema(table(name, ordinary=True).schema)
    return struct["v"].dataType.jsonValue()


@pytest.mark.parametrize("name", IN_FILES)
def test_a_delta_table_of_such_files_is_read_with_vectors_and_as_changes(tmp_path: Path, name: str) -> None:
    made = HandMade(tmp_path / "t", field("id", "long"), field("v", delta_type(name)), enableChangeDataFeed="true")
    made.rows_a_group = 5 if name == "struct of views" else 4  # pyarrow does not cut these
    added = made.add(table(name))
    made.commit(added)
    made.commit(made.remove(added), made.with_vector(added, [0, 3]))
    all_rows = expected(name)
    assert rows_of(opened("delta", {"path": str(made.path)})) == [all_rows[n] for n in (1, 2, 4)]
    feed = {"path": str(made.path), "readChangeFeed": "true", "startingVersion": "0"}
    found = [(*row[:2], row[2]) for row in rows_of(opened("delta", feed))]
    gone = [(*all_rows[n], "delete") for n in (0, 3)]
    assert sorted(found, key=str) == sorted([*((*row, "insert") for row in all_rows), *gone], key=str)


def test_the_feed_of_a_table_that_our_own_sink_merges_into_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, table_of([(0, "old")]), configuration={"delta.enableChangeDataFeed": "true"})
    sink = DeltaSink({"path": str(path), "mergeKeys": "k", "changeColumn": "op"})
    sink.validate(CHANGES)
    sink.commit(permit(1), stage_changes(sink, [("+I", 1, "one"), ("+U", 0, "new")]))
    sink.commit(permit(2), stage_changes(sink, [("-D", 1, "one"), ("+U", 0, "newer")], 2, 2))
    feed = {"path": str(path), "readChangeFeed": "true", "startingVersion": "1"}
    found = sorted((v, change, k, text) for k, text, change, v, _ in rows_of(opened("delta", feed)))
    assert found == [
        (1, "insert", 1, "one"), (1, "update_postimage", 0, "new"), (1, "update_preimage", 0, "old"),
        (2, "delete", 1, "one"), (2, "update_postimage", 0, "newer"), (2, "update_preimage", 0, "new"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", IN_FILES)
@pytest.mark.parametrize("told", [True, False], ids=["with a schema", "inferred"])
def test_parquet_files_of_any_layout_are_read(tmp_path: Path, name: str, told: bool) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(table(name), tmp_path / "in" / "a.parquet")
    schema = spark_schema(table(name, ordinary=True).schema) if told else None
    options = {"path": str(tmp_path / "in"), "fileFormat": "parquet"}
    assert rows_of(opened("files", options, schema, str(tmp_path / "notes"))) == expected(name)


class _Yields(DataSource):
    def schema(self) -> StructType:
        return spark_schema(table(self.options["layout"]).schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _YieldsReader(self.options["layout"])


class _YieldsReader(DataSourceStreamReader):
    def __init__(self, layout: str) -> None:
        self._layout = layout

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from table(self._layout).to_batches()


@pytest.mark.parametrize("name", LAYOUTS)
def test_batches_that_a_source_of_the_users_yields_may_have_any_layout(name: str) -> None:
    assert rows_of(opened(_Yields, {"layout": name})) == expected(name)


@pytest.mark.parametrize("name", [name for name in IN_FILES if name not in LIST_VIEWS])
@pytest.mark.parametrize("deleted", [False, True], ids=["whole", "with deleted rows"])
def test_an_iceberg_table_of_such_files_is_read(tmp_path: Path, name: str, deleted: bool) -> None:
    own = catalog_options(tmp_path)
    made = catalog_of(own).create_table("db.t", table(name, ordinary=True).schema)
    add_file(made, table(name))
    if deleted:
        delete_first_rows(made)
        expire(made, 1)
    found = rows_of(opened("iceberg", {"table": "db.t", **own}))
    assert found == expected(name)[1 if deleted else 0 :]


@pytest.mark.parametrize("name", LIST_VIEWS)
def test_what_pyiceberg_does_not_read_is_refused_in_plain_words(tmp_path: Path, name: str) -> None:
    own = catalog_options(tmp_path)
    made = catalog_of(own).create_table("db.t", table(name, ordinary=True).schema)
    add_file(made, table(name))
    with pytest.raises(InvalidInputError, match=r"foreign.parquet: expected columns of a layout .*rewrite_data_files"):
        rows_of(opened("iceberg", {"table": "db.t", **own}))


def add_file(made: Any, rows: pa.Table) -> None:
    """A file that has no ids of columns goes by their names."""
    path = f"{made.location()}/data/foreign.parquet".removeprefix("file://")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    with made.transaction() as change:
        change.set_properties({"schema.name-mapping.default": made.schema().name_mapping.model_dump_json()})
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET, partition=Record(),
        record_count=len(rows), file_size_in_bytes=Path(path).stat().st_size,
    )  # fmt: skip
    file.spec_id = 0
    with made.transaction() as change, change.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)
