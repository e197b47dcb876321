"""The delta sink and tables that others made: their features and rules, and columns that they do not have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from spark_ckpt.errors import CkptError, CorruptStorageError, InvalidInputError
from spark_ckpt.sinks.delta._fitting import WRITER_FEATURES
from spark_ckpt.sinks.delta._open_table import OpenTable
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import SCHEMA, context, permit, stage_table
from tests.sinks.iceberg_harness import catalog_options
from tests.sources.delta_tables import HandMade, field

K_V = (field("k", "long"), field("v", "string"))
FEATURES = [
    *sorted(WRITER_FEATURES), "allowColumnDefaults", "clustering", "domainMetadata", "icebergCompatV1",
    "icebergCompatV2", "identityColumns", "inCommitTimestamp", "rowTracking", "typeWidening", "vacuumProtocolCheck",
    "whateverComes",
]  # fmt: skip
OF_READERS = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck",
    "variantType", "variantType-preview",
}  # fmt: skip


def k_v(*rows: tuple[int, str]) -> pa.Table:
    return pa.table([list(c) for c in zip(*rows, strict=True)], schema=SCHEMA)


def committed(path: Path, checkpoint: int, rows: pa.Table, replacing: bool = False, **options: str) -> DeltaSink:
    sink = DeltaSink({"path": str(path), **options})
    sink.replacing = replacing
    sink.validate(rows.schema)
    sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=rows.schema), rows))
    return sink


def found(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    query = QueryBuilder().register("t", DeltaTable(path)).execute(f"select {columns} from t")
    return sorted((tuple(row.values()) for row in pa.table(query.read_all()).to_pylist()), key=str)


def protocol(*features: str) -> dict[str, Any]:
    """As a table has it that asks for these and nothing else."""
    of_readers = [f for f in features if f in OF_READERS]
    body: dict[str, Any] = {"minReaderVersion": 3 if of_readers else 1, "minWriterVersion": 7}
    if of_readers:
        body["readerFeatures"] = of_readers
    return {"protocol": {**body, "writerFeatures": list(features)}}


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_that_cannot_be_written_is_refused_at_start_and_others_are_written(
    tmp_path: Path, feature: str
) -> None:
    table = HandMade(tmp_path / "t", *K_V)
    table.commit(protocol(feature))
    if feature in WRITER_FEATURES:
        committed(table.path, 1, k_v((1, "a")))
        assert found(table.path) == [(1, "a")]
    else:
        with pytest.raises(InvalidInputError, match=rf"has {feature}, which the delta sink does not support.*DROP"):
            DeltaSink({"path": str(table.path)}).validate(SCHEMA)


@pytest.mark.parametrize(
    ("fields", "properties", "message"),
    [
        ((), {"constraints_positive": "k > 0"}, r"delta\.constraints\.positive"),
        ((), {"columnMapping_mode": "name"}, r"delta\.columnMapping\.mode"),
        (
            (field("g", "long", **{"delta.generationExpression": "k + 1"}),),
            {},
            "delta.generationExpression of column",
        ),
        ((field("n", "long", **{"delta.identity.start": 1}),), {}, "delta.identity.start of column n"),
        ((field("i", "long", **{"delta.invariants": "{}"}),), {}, "delta.invariants of column i"),
        ((field("d", "long", CURRENT_DEFAULT="7"),), {}, "CURRENT_DEFAULT of column d"),
    ],
)
def test_rules_that_nobody_would_keep_are_refused_by_name_at_start_and_when_they_come_later(
    tmp_path: Path, fields: Sequence[Any], properties: dict[str, str], message: str
) -> None:
    table = HandMade(tmp_path / "t", *K_V)
    rows, sink = k_v((1, "a")), DeltaSink({"path": str(table.path)})
    sink.validate(SCHEMA)
    staged = stage_table(sink, context(1, 1), rows)
    table.commit(table.metadata(*K_V, *fields, **properties))
    with pytest.raises(InvalidInputError, match=message):
        sink.commit(permit(1), staged)
    assert DeltaTable(table.path).version() == 1, "nothing was committed"
    with pytest.raises(InvalidInputError, match=message):
        DeltaSink({"path": str(table.path)}).validate(SCHEMA)
    table.commit(table.metadata(*K_V))
    sink.commit(permit(1), staged)
    assert found(table.path) == [(1, "a")], "and without the rule the same is committed"


@pytest.mark.parametrize(
    ("options", "replacing", "message"),
    [({"mergeKeys": "k"}, False, "and mergeKeys removes rows"), ({}, True, "and output mode complete removes rows")],
)
def test_a_table_that_is_only_appended_to_is_appended_to(
    tmp_path: Path, options: dict[str, str], replacing: bool, message: str
) -> None:
    table = HandMade(tmp_path / "t", *K_V, appendOnly="true")
    committed(table.path, 1, k_v((1, "a")))
    with pytest.raises(InvalidInputError, match=message):
        committed(table.path, 2, k_v((1, "b")), replacing, **options)
    assert found(table.path) == [(1, "a")]


def test_a_table_with_deletion_vectors_keeps_its_rows_dead(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", *K_V)
    table.commit(table.protocol("deletionVectors"))
    table.commit(table.with_vector(table.add(k_v((1, "dead"), (2, "b"), (3, "c"))), [0]))
    committed(table.path, 1, k_v((4, "d")))
    assert found(table.path) == [(2, "b"), (3, "c"), (4, "d")]
    committed(table.path, 2, k_v((2, "new"), (5, "e")), mergeKeys="k")
    assert found(table.path) == [(2, "new"), (3, "c"), (4, "d"), (5, "e")]
    committed(table.path, 3, k_v((1, "again")), mergeKeys="k")
    assert found(table.path) == [(1, "again"), (2, "new"), (3, "c"), (4, "d"), (5, "e")]
    committed(table.path, 4, k_v((9, "all")), replacing=True)
    assert found(table.path) == [(9, "all")]


def test_a_change_data_feed_tells_what_the_sink_did(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t", *K_V, enableChangeDataFeed="true")
    table.commit(protocol("changeDataFeed"))
    committed(table.path, 1, k_v((1, "a"), (2, "b")))
    committed(table.path, 2, k_v((2, "new"), (3, "c")), mergeKeys="k")
    committed(table.path, 3, k_v((9, "all")), replacing=True)
    feed = pa.table(DeltaTable(table.path).load_cdf(2).read_all()).to_pylist()
    told = sorted((row["_commit_version"], row["_change_type"], row["k"], row["v"]) for row in feed)
    assert told == [
        (2, "insert", 1, "a"), (2, "insert", 2, "b"),
        (3, "insert", 3, "c"), (3, "update_postimage", 2, "new"), (3, "update_preimage", 2, "b"),
        (4, "delete", 1, "a"), (4, "delete", 2, "new"), (4, "delete", 3, "c"), (4, "insert", 9, "all"),
    ]  # fmt: skip


# -- columns -----------------------------------------------------------------------------------------------------------


WIDE = SCHEMA.append(pa.field("w", pa.int32())).append(pa.field("t", pa.timestamp("us")))


def wide(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(c) for c in zip(*rows, strict=True)], schema=WIDE)


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_columns_that_the_table_lacks_are_added_where_that_is_asked_for(
    tmp_path: Path, options: dict[str, str]
) -> None:
    path = tmp_path / "t"
    committed(path, 1, k_v((1, "a"), (2, "b")), **options)
    with pytest.raises(InvalidInputError, match=r"no column 'w' \(int32\); option mergeSchema=true would add it"):
        DeltaSink({"path": str(path), **options}).validate(WIDE)
    before = DeltaTable(path).version()
    committed(path, 2, wide((1, "new", 7, None)), mergeSchema="true", **options)
    kept = [] if options else [(1, "a", None, None)]
    assert found(path, "k, v, w, t") == sorted([*kept, (1, "new", 7, None), (2, "b", None, None)], key=str)
    committed(path, 3, wide((3, "c", 8, None)), mergeSchema="true", **options)
    assert DeltaTable(path).version() == before + 3, "columns are added once"
    committed(path, 4, k_v((4, "d")), mergeSchema="true", **options)
    assert found(path, "k, w")[-1] == (4, None)


@pytest.mark.parametrize("options", [{}, {"mergeSchema": "true"}], ids=["as it is", "merged"])
@pytest.mark.parametrize(
    ("there", "written", "pair"),
    [
        ([("id", pa.int64())], [("ID", pa.int64())], "'id' and 'ID'"),
        ([("s", pa.struct([("x", pa.int64())]))], [("s", pa.struct([("X", pa.int64())]))], "'s.x' and 's.X'"),
        (None, [("id", pa.int64()), ("ID", pa.int64())], "'id' and 'ID'"),
    ],
)
def test_names_that_differ_in_case_alone_are_refused_at_start(
    tmp_path: Path, there: list[Any] | None, written: list[Any], pair: str, options: dict[str, str]
) -> None:
    """Spark and delta-rs take them for one."""
    if there is not None:
        DeltaSink({"path": f"{tmp_path}/t"}).validate(pa.schema(there))
    with pytest.raises(InvalidInputError, match=f"{pair} differ in upper and lower case alone"):
        DeltaSink({"path": f"{tmp_path}/t", **options}).validate(pa.schema(written))


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([])), pa.struct([("a", pa.struct([]))])])
@pytest.mark.parametrize("sink", ["delta", "iceberg", "files"])
def test_structs_without_fields_are_refused_at_start(tmp_path: Path, kind: pa.DataType, sink: str) -> None:
    options = {**catalog_options(tmp_path), "table": "db.t"} if sink == "iceberg" else {"path": f"{tmp_path}/o"}
    with pytest.raises(InvalidInputError, match="column 'empty' has type"):
        create_sink(sink, options).validate(pa.schema([("k", pa.int64()), ("empty", kind)]))


def test_fields_of_structs_are_added_too(tmp_path: Path) -> None:
    narrow, more = pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int64()), ("y", pa.string())])
    one, two = pa.schema([("s", narrow), ("l", pa.list_(narrow))]), pa.schema([("s", more), ("l", pa.list_(more))])
    committed(tmp_path / "t", 1, pa.table([[{"x": 1}], [[{"x": 1}]]], schema=one))
    committed(tmp_path / "t", 2, pa.table([[{"x": 2, "y": "b"}], [[]]], schema=two), mergeSchema="true")
    assert found(tmp_path / "t", "s") == [({"x": 1, "y": None},), ({"x": 2, "y": "b"},)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("k", pa.string()), ("n", pa.int64())]), "'k' is int64 in the table and string in the query"),
        (
            pa.schema([("k", pa.int64()), ("v", pa.struct([("a", pa.int64())]))]),
            "'v' is string in the table and st",
        ),
    ],
)
def test_types_are_not_merged_and_nothing_is_added_then(tmp_path: Path, schema: pa.Schema, message: str) -> None:
    committed(tmp_path / "t", 1, k_v((1, "a")))
    with pytest.raises(InvalidInputError, match=message):
        DeltaSink({"path": str(tmp_path / "t"), "mergeSchema": "true"}).validate(schema)
    assert [f.name for f in DeltaTable(tmp_path / "t").schema().fields] == ["k", "v"]


def test_what_was_staged_without_a_new_column_is_committed_behind_it(tmp_path: Path) -> None:
    before = DeltaSink({"path": str(tmp_path / "t")})
    before.validate(SCHEMA)
    staged = stage_table(before, context(1, 1), k_v((1, "a")))
    after = DeltaSink({"path": str(tmp_path / "t"), "mergeSchema": "true"})
    after.validate(WIDE)
    after.commit(permit(1), staged)
    assert found(tmp_path / "t", "k, v, w") == [(1, "a", None)]


def test_somebody_else_may_add_the_columns_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    committed(path, 1, k_v((1, "a")))
    opened, other = OpenTable.open, iter([wide((2, "theirs", 1, None))])

    def while_it_looks(open_table: OpenTable) -> DeltaTable:
        table = opened(open_table)
        for rows in other:
            write_deltalake(path, rows, mode="append", schema_mode="merge")
        return table

    monkeypatch.setattr(OpenTable, "open", while_it_looks)
    committed(path, 2, wide((3, "ours", 2, None)), mergeSchema="true")
    assert found(path, "k, w") == [(1, None), (2, 1), (3, 2)]
    names = [f.name for f in DeltaTable(path).schema().fields]
    assert names == ["k", "v", "w", "t"]


def test_partitions_and_new_columns_go_together(tmp_path: Path) -> None:
    committed(tmp_path / "t", 1, k_v((1, "a"), (2, "b/ ü")), partitionBy="v")
    committed(tmp_path / "t", 2, wide((3, "a", 1, None), (4, None, 2, None)), partitionBy="v", mergeSchema="true")
    assert found(tmp_path / "t", "k, v, w") == [(1, "a", None), (2, "b/ ü", None), (3, "a", 1), (4, None, 2)]
    with pytest.raises(InvalidInputError, match=r"write with partitionBy\('v'\)"):
        committed(tmp_path / "t", 3, k_v((1, "a")), mergeSchema="true")


def test_delta_rs_says_no_to_what_is_refused(tmp_path: Path) -> None:
    """If it learns one of these, the sink may, too."""
    for feature in ("identityColumns", "rowTracking", "typeWidening", "inCommitTimestamp"):
        table = HandMade(tmp_path / feature, *K_V)
        table.commit(protocol(feature))
        with pytest.raises(DeltaError, match=r"(?i)unsupported"):
            write_deltalake(table.path, k_v((1, "a")), mode="append")
        assert json.loads(table.log(1).read_text().splitlines()[1])["protocol"]["writerFeatures"] == [feature]


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(38, 18)], ids=str)
def test_a_merge_is_refused_where_delta_rs_would_write_partitions_that_it_cannot_read(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """It writes -1.50 as -1.-50 into the log, and nobody can open the table any more."""
    rows = pa.table({"k": [1], "p": pa.array([Decimal("-1.50")], kind)})
    with pytest.raises(InvalidInputError, match=r"partition column 'p' is decimal.*cast\('string'\)"):
        committed(tmp_path / "t", 1, rows, mergeKeys="k", partitionBy="p")
    assert not (tmp_path / "t").exists()
    committed(tmp_path / "t", 1, rows, partitionBy="p")
    staged = stage_table(
        DeltaSink({"path": f"{tmp_path}/t", "mergeKeys": "k"}), context(2, 2, schema=rows.schema), rows
    )
    with pytest.raises(InvalidInputError, match="partition column 'p'"):  # by a release that took it
        DeltaSink({"path": f"{tmp_path}/t", "mergeKeys": "k"}).commit(permit(2), staged)
    assert DeltaTable(tmp_path / "t").version() == 1


def test_a_merge_into_partitions_of_whole_negative_decimals_is_taken(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "p": pa.array([Decimal(-15), Decimal(0)], pa.decimal128(9, 0))})
    for checkpoint in (1, 2):
        committed(tmp_path / "t", checkpoint, rows, mergeKeys="k", partitionBy="p")
    assert found(tmp_path / "t") == [(1, Decimal(-15)), (2, Decimal(0))]


def test_a_merge_writes_no_dictionary_that_spark_could_take_for_that_of_a_column_of_the_same_dotted_path(
    tmp_path: Path,
) -> None:
    rows = pa.table({"id": list(range(9)), "host.name": ["flat"] * 9, "host": [{"name": "deep"}] * 9})
    sink = DeltaSink({"path": str(tmp_path), "mergeKeys": "id"})
    sink.validate(rows.schema)
    for n in (1, 2):
        sink.commit(permit(n), stage_table(sink, context(n, n, schema=rows.schema), rows))
    for file in DeltaTable(tmp_path).file_uris():
        group = pq.read_metadata(file).row_group(0)
        assert not any("RLE_DICTIONARY" in group.column(i).encodings for i in range(3))
        assert group.column(0).compression == "SNAPPY"  # as delta-rs writes without being told
    assert DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist() == rows.to_pylist()


def test_a_torn_log_is_told_in_one_line_without_a_backtrace(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), k_v((1, "a")))
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    log.write_text("{torn")
    with pytest.raises(CkptError) as raised:
        create_sink("delta", {"path": str(tmp_path)}).validate(SCHEMA)
    assert "\n" not in str(raised.value)
    assert "<unknown>" not in str(raised.value)


@pytest.mark.parametrize("torn", ["{torn", '{"add": {"path": "x"'])
def test_a_half_written_entry_of_the_log_is_named_and_the_way_back_that_is_said_leads_back(
    tmp_path: Path, torn: str
) -> None:
    rows, job, name = k_v((1, "a")), permit(2).job, context(1, 1, schema=SCHEMA).sink
    sink = create_sink("delta", {"path": str(tmp_path)})
    sink.validate(SCHEMA)
    staged = [stage_table(sink, context(n, n, schema=rows.schema), rows) for n in (1, 2)]
    sink.commit(permit(1), staged[0])
    sink.commit(permit(2), staged[1])
    entry = max((tmp_path / "_delta_log").glob("*.json"))
    entry.write_text(torn)
    for act in (
        lambda s: s.validate(SCHEMA),
        lambda s: s.commit(permit(2), staged[1]),
        lambda s: s.newest_checkpoint(job, name),
    ):
        with pytest.raises(CorruptStorageError, match=rf"found _delta_log/{entry.name} half written.* remove it"):
            act(create_sink("delta", {"path": str(tmp_path)}))
    entry.unlink()
    again = create_sink("delta", {"path": str(tmp_path)})
    again.validate(SCHEMA)
    again.commit(permit(2), staged[1])
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 2
