"""The ``iceberg`` sink: every contract of the shipped suite, and what Iceberg has besides."""

from __future__ import annotations

import datetime as dt
import json
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from spark_ckpt.errors import CkptError, InvalidInputError
from spark_ckpt.testing.sink_conformance import (
    ChangeConformance,
    MergeConformance,
    ReplaceConformance,
    SinkConformance,
    SinkTarget,
)
from spark_ckpt.testing.sink_harness import JOB, SCHEMA, SINK, context, permit, stage, stage_table, table_of
from tests.sinks.iceberg_harness import CATALOGUES, SECRET, IcebergTarget, catalog_of, catalog_options, use

UTC = dt.timezone.utc


@pytest.fixture(autouse=True, params=CATALOGUES)
def catalogue(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here is so with an SQL catalogue and with a REST catalogue."""
    with use(request.param):
        yield


class TestIcebergSink(SinkConformance, MergeConformance, ChangeConformance, ReplaceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return IcebergTarget("iceberg", {"table": "db.t", **catalog_options(tmp_path)})

    @pytest.fixture
    def merge_target(self, tmp_path: Path) -> SinkTarget:
        return IcebergTarget("iceberg", {"table": "db.t", "mergeKeys": "k", **catalog_options(tmp_path)})

    @pytest.fixture
    def change_target(self, tmp_path: Path) -> SinkTarget:
        keyed = {"mergeKeys": "k", "changeColumn": "op"}
        return IcebergTarget("iceberg", {"table": "db.t", **keyed, **catalog_options(tmp_path)})


ORDERS = pa.schema([
    pa.field("id", pa.int64()), pa.field("city", pa.string()), pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("day", pa.date32()), pa.field("price", pa.decimal128(9, 2)),
])  # fmt: skip


def orders(count: int, start: int = 0) -> pa.Table:
    """Times around 1970, so that rounding in the wrong direction shows; a null in each column."""
    ids = range(start, start + count)
    city = [None if i % 17 == 3 else ("Ulm", "Köln", "a/b=c", "")[i % 4] for i in ids]
    at = [None if i % 13 == 5 else dt.datetime(1969, 12, 31, tzinfo=UTC) + dt.timedelta(hours=7 * i) for i in ids]
    day = [None if a is None else a.date() for a in at]
    price = [None if i % 11 == 7 else Decimal(i) / 4 for i in ids]
    return pa.table([list(ids), city, at, day, price], schema=ORDERS)


def target_of(folder: Path, **options: str) -> IcebergTarget:
    return IcebergTarget("iceberg", {"table": "db.t", **catalog_options(folder), **options})


def committed(target: IcebergTarget, rows: pa.Table, checkpoint: int = 1) -> None:
    sink = target.validated(rows.schema)
    sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=rows.schema), rows))


PARTITIONS = ("city", "day(at)", "hours(at)", "month(day)", "year(at)", "bucket(4, id)", "bucket(3, city)",
              "truncate(2, city)", "truncate(10, id)", "truncate(50, price)", "day", "price", "at",
              "city, day(at), bucket(2, id)")  # fmt: skip
USUAL = ("month(day)", "truncate(2, city)", "city, day(at), bucket(2, id)")


@pytest.mark.parametrize("terms", [t if t in USUAL else pytest.param(t, marks=pytest.mark.soak) for t in PARTITIONS])
def test_partitions_are_those_that_pyiceberg_finds_rows_by(tmp_path: Path, terms: str) -> None:
    """A wrong partition value, or a wrong bound, would hide rows from a filter on the column."""
    target, rows = target_of(tmp_path, partitionBy=terms), orders(30)
    committed(target, rows)
    table = target.table()
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(30))
    for row in rows.take([0, 2, 3, 5, 7, 29]).to_pylist():
        for name, value in row.items():
            wanted = IsNull(name) if value is None else EqualTo(name, value)
            found = table.scan(row_filter=wanted).to_arrow()["id"].to_pylist()
            assert sorted(found) == [r["id"] for r in rows.to_pylist() if r[name] == value], (terms, wanted)
    assert len(list(table.scan().plan_files())) > 1


def test_partitions_are_those_that_pyiceberg_writes(tmp_path: Path) -> None:
    """Where pyiceberg can, it is asked itself: the same partitions, the same counts and bounds."""
    target, rows = target_of(tmp_path, partitionBy="city"), orders(30)
    committed(target, rows)
    table = target.table()
    theirs = table.catalog.create_table("db.theirs", table.schema(), partition_spec=table.spec())
    theirs.append(rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=False)))
    told = ("partition", "record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    one, two = (sorted(map(repr, t.inspect.files().select(told).to_pylist())) for t in (table, theirs))
    assert one == two


def test_a_snapshot_says_which_checkpoint_it_is(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    committed(target, orders(3), 7)
    snapshots = target.table().metadata.snapshots
    assert [s.summary["spark-ckpt.checkpoint"] for s in snapshots if s.summary] == ["7"]
    assert [s.summary["spark-ckpt.job"] for s in snapshots if s.summary] == [JOB]


@pytest.mark.parametrize("keys", ["", "k"])
def test_other_writers_are_met_by_trying_again(tmp_path: Path, keys: str) -> None:
    """Somebody appends between the look at the table and the commit, three times."""
    target = target_of(tmp_path, mergeKeys=keys)
    sink = target.validated()
    sink.commit(permit(1), stage(sink, [(1, "a"), (2, "b")]))
    left = [101, 102, 103]

    def append(step: str) -> None:
        if step == "before snapshot" and left:
            target.table().append(table_of([(left.pop(), "theirs")]))

    sink.on_step = append
    sink.commit(permit(2), stage(sink, [(2, "new"), (3, "c"), (102, "ours")], 2, 2))
    theirs = [(101, "theirs"), (103, "theirs")]
    both = [(102, "ours"), (102, "theirs")]
    expected = [(1, "a"), (2, "new"), (3, "c"), (102, "ours"), *theirs] if keys else [
        (1, "a"), (2, "b"), (2, "new"), (3, "c"), *both, *theirs,
    ]  # fmt: skip
    assert sorted(target.rows()) == sorted(expected)
    assert target.leftovers() == []


def test_a_driver_that_lost_the_race_looks_before_it_tries_again(tmp_path: Path) -> None:
    """pyiceberg would append the same files a second time, after its own refresh."""
    target = target_of(tmp_path)
    sink = target.validated()
    staged = stage(sink, [(1, "a")])
    sink.on_step = lambda step: target.make().commit(permit(1), staged) if step == "before snapshot" else None
    sink.commit(permit(1), staged)
    assert target.rows() == [(1, "a")]
    assert len(target.table().metadata.snapshots) == 1


def test_a_checkpoint_is_remembered_when_its_snapshot_has_expired(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    sink = target.validated()
    staged = stage(sink, [(1, "a")])
    sink.commit(permit(1), staged)
    target.table().append(table_of([(2, "theirs")]))
    target.table().maintenance.expire_snapshots().by_id(target.table().metadata.snapshots[0].snapshot_id).commit()
    target.make().commit(permit(1), staged)
    assert target.rows() == [(1, "a"), (2, "theirs")]
    with pytest.raises(CkptError, match="other contents"):
        target.make().commit(permit(1), stage(sink, [(3, "a copy")]))


def test_rows_staged_before_the_partitioning_changed_are_written_anew(tmp_path: Path) -> None:
    target, rows = target_of(tmp_path, partitionBy="city"), orders(30)
    sink = target.validated(ORDERS)
    staged = stage_table(sink, context(1, 1, schema=ORDERS), rows)
    with target.table().update_spec() as spec:
        spec.remove_field("city")
        spec.add_field("id", BucketTransform(2), "id_bucket")
    sink.commit(permit(1), staged)
    table = target.table()
    for i in range(30):
        assert table.scan(row_filter=EqualTo("id", i)).to_arrow()["id"].to_pylist() == [i]
    assert {f.spec_id for f in (t.file for t in table.scan().plan_files())} == {table.spec().spec_id}
    assert len(sink.gc(JOB, [])) == len(staged)
    assert len(table.scan().to_arrow()) == 30


def test_upserts_find_rows_in_all_partitions_and_files(tmp_path: Path) -> None:
    """More keys than Iceberg looks for one by one, nulls among them; the same as a dictionary."""
    target = target_of(tmp_path, partitionBy="bucket(3, city)", mergeKeys="id,city")
    state: dict[Any, Any] = {}
    for checkpoint in range(1, 5):
        rows = orders(300, 100 * checkpoint)
        committed(target, rows, checkpoint)
        state |= {(r["id"], r["city"]): r for r in rows.to_pylist()}
        found = target.table().scan().to_arrow().to_pylist()
        assert sorted(found, key=lambda r: r["id"]) == sorted(state.values(), key=lambda r: r["id"])
    assert target.leftovers() == []


def test_an_upsert_leaves_files_without_its_keys_alone(tmp_path: Path) -> None:
    target = target_of(tmp_path, mergeKeys="id")
    for checkpoint, start in ((1, 0), (2, 1000), (3, 2000)):
        committed(target, orders(50, start), checkpoint)
    before = {t.file.file_path for t in target.table().scan().plan_files()}
    committed(target, orders(10, 1005), 4)
    after = {t.file.file_path for t in target.table().scan().plan_files()}
    assert (len(before), len(before & after), len(after)) == (3, 2, 3)


def test_a_row_that_somebody_else_deleted_stays_deleted(tmp_path: Path) -> None:
    target = target_of(tmp_path, mergeKeys="k")
    committed(target, table_of([(1, "a"), (2, "b"), (3, "c")]))
    target.table().delete(EqualTo("k", 3))
    committed(target, table_of([(1, "new")]), 2)
    assert sorted(target.rows()) == [(1, "new"), (2, "b")]


def _table(target: IcebergTarget, *fields: NestedField) -> None:
    catalog_of(target.options).create_table("db.t", Schema(*fields))


MISFITS = {
    "type": ([NestedField(1, "k", StringType())], "column 'k' is string in the table and int64 in the query"),
    "missing": ([NestedField(1, "other", LongType())], "no column 'k'"),
    "narrower": ([NestedField(1, "k", IntegerType())], "column 'k' is int in the table"),
    "required": ([NestedField(1, "k", LongType(), required=True)], "required in the table and may be null"),
    "absent": (
        [NestedField(1, "k", LongType()), NestedField(2, "z", LongType(), required=True)],
        "column 'z' is required in the table and the query does not have it",
    ),
    "uuid": ([NestedField(1, "k", UUIDType())], "column 'k' is uuid"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_table_that_the_rows_do_not_fit_is_refused_at_start(tmp_path: Path, case: str) -> None:
    target, (fields, said) = target_of(tmp_path), MISFITS[case]
    _table(target, *fields)
    with pytest.raises(InvalidInputError, match=said):
        target.validated(pa.schema([pa.field("k", pa.int64())]))


def test_narrower_values_go_into_wider_columns(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    fields = [("a", LongType()), ("b", DoubleType()), ("c", DecimalType(20, 2)), ("d", StringType())]
    _table(target, *(NestedField(i + 1, n, t) for i, (n, t) in enumerate(fields)))
    narrow = [pa.field("b", pa.float32()), pa.field("a", pa.int16()), pa.field("c", pa.decimal128(9, 2))]
    rows = pa.table([[1.5], [-3], [Decimal("7.25")]], schema=pa.schema(narrow))
    committed(target, rows)
    assert target.table().scan().to_arrow().to_pylist() == [{"a": -3, "b": 1.5, "c": Decimal("7.25"), "d": None}]


REFUSED = {
    "no namespace": ({"table": "t"}, "namespace.table"),
    "unknown namespace": ({"table": "nowhere.t"}, "namespace nowhere does not exist; create it"),
    "no such table": ({"createTable": "false"}, "createTable"),
    "transform": ({"partitionBy": "zorder(id)"}, r"partitionBy.*bucket\(n, c\)"),
    "transform's column": ({"partitionBy": "day(id)"}, "day cannot take column 'id' of type long"),
    "column": ({"partitionBy": "nope"}, "partitionBy' names nope"),
    "memory": ({"catalog.uri": "sqlite:///:memory:"}, "invisible to other processes"),
    "server": ({"catalog.uri": "sqlite:////no/such/folder/x.db"}, "opening it failed"),
    "catalogue": ({"catalog.type": "nope"}, "opening it failed"),
    "keys": ({"mergeKeys": "nope"}, "mergeKeys"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_at_start(tmp_path: Path, case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(InvalidInputError, match=said) as refused:
        target_of(tmp_path, **options).validated(ORDERS)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_another_partitioning_than_the_tables_is_refused_and_none_is_the_tables(tmp_path: Path) -> None:
    committed(target_of(tmp_path, partitionBy="city, day(at)"), orders(5))
    with pytest.raises(InvalidInputError, match=r"partitioned by city, day\(at\)"):
        target_of(tmp_path, partitionBy="city").validated(ORDERS)
    committed(target_of(tmp_path), orders(5, 5), 2)
    assert len(target_of(tmp_path).table().scan().to_arrow()) == 10


def test_a_column_added_while_the_query_runs_is_null_in_its_rows(tmp_path: Path) -> None:
    for keys in ("", "k"):
        target = target_of(tmp_path, mergeKeys=keys, table=f"db.t{keys}")
        sink = target.validated()
        staged = stage(sink, [(1, "a")])
        with target.table().update_schema() as update:
            update.add_column("more", LongType())
        sink.commit(permit(1), staged)
        sink.commit(permit(2), stage(sink, [(2, "b")], 2, 2))
        assert sorted(map(str, target.table().scan().to_arrow().to_pylist())) == [
            "{'k': 1, 'v': 'a', 'more': None}", "{'k': 2, 'v': 'b', 'more': None}",
        ]  # fmt: skip


def test_a_table_dropped_while_the_query_runs_is_said(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    sink = target.validated()
    staged = stage(sink, [(1, "a")])
    catalog_of(target.options).drop_table("db.t")
    with pytest.raises(InvalidInputError, match="is not there"):
        sink.commit(permit(1), staged)


def test_tables_of_format_version_1_are_written_and_of_3_refused(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    catalog = catalog_of(target.options)
    catalog.create_table("db.v1", SCHEMA, properties={"format-version": "1"})
    newer = catalog.create_table("db.v2", SCHEMA).metadata.model_dump(mode="json", by_alias=True)
    (tmp_path / "v3.metadata.json").write_text(json.dumps({**newer, "format-version": 3, "next-row-id": 0}))
    catalog.register_table("db.v3", f"{tmp_path}/v3.metadata.json")
    old = target_of(tmp_path, table="db.v1")
    committed(old, table_of([(1, "a"), (2, "b")]))
    committed(target_of(tmp_path, table="db.v1", mergeKeys="k"), table_of([(2, "new")]), 2)
    assert (sorted(old.rows()), old.table().format_version) == ([(1, "a"), (2, "new")], 1)
    with pytest.raises(InvalidInputError, match="has format version 3, and pyiceberg writes versions up to 2"):
        target_of(tmp_path, table="db.v3").validated()


def test_names_and_places_of_all_kinds(tmp_path: Path) -> None:
    """What a name may have, where the table's properties put its files, and clean-up there."""
    rows = pa.table({"a b": [1, 2], "x.y": ["p", "q"], "`t`": [1.5, None], "s": [{"i j": 1}, None]})
    target = target_of(tmp_path, partitionBy="a b")
    committed(target, rows)
    assert target.table().scan().to_arrow().to_pylist() == rows.to_pylist()
    place = {"write.data.path": f"{tmp_path}/elsewhere", "write.object-storage.enabled": "true"}
    catalog_of(target.options).create_table("db.e", SCHEMA, properties=place)
    other = target_of(tmp_path, table="db.e")
    committed(other, table_of([(1, "a")]))
    sink = other.make()
    stage(sink, [(2, "lost")], 2, 2)
    assert (len(sink.staged_by()), len(sink.gc(JOB, [])), sink.staged_by()) == (1, 1, {})
    assert other.rows() == [(1, "a")]
    assert len(list((tmp_path / "elsewhere").rglob("*.parquet"))) == 1


def test_keys_of_times_bytes_and_nan(tmp_path: Path) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=UTC)
    at = pa.array([start + dt.timedelta(seconds=i) for i in range(500)], pa.timestamp("us", "UTC"))
    some = {"b": [bytes([i % 256]) for i in range(500)], "f": [i / 2 if i % 100 else float("nan") for i in range(500)]}
    rows = pa.table({"at": at, **some, "v": range(500)})
    target = target_of(tmp_path, mergeKeys="at,b,f", partitionBy="hour(at), truncate(1, b)")
    committed(target, rows.slice(0, 400))
    newer = rows.slice(100, 400)
    committed(target, newer.set_column(3, "v", pa.array([-i for i in range(100, 500)])), 2)
    found = sorted(target.table().scan().to_arrow()["v"].to_pylist())
    assert found == sorted([*range(100), *(-i for i in range(100, 500))])


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_rows_that_wait_for_another_table_are_not_put_into_this_one(tmp_path: Path, options: dict[str, str]) -> None:
    """As when two sinks are named in another order, and keep each other's uid."""
    where = {**options, **catalog_options(tmp_path)}
    first, second = (IcebergTarget("iceberg", {"table": f"db.{name}", **where}) for name in "ab")
    for target in (first, second):
        target.make().validate(SCHEMA)
    staged = stage(first.make(), [(1, "for a")])
    with pytest.raises(InvalidInputError, match=r"wait for table db.a, and the sink of their uid now writes to .*db.b"):
        second.make().commit(permit(1), staged)
    assert second.read(SCHEMA).num_rows == 0
    catalog_of(where).rename_table("db.a", "db.c")
    renamed = IcebergTarget("iceberg", {"table": "db.c", **where})
    renamed.make().commit(permit(1), staged)
    assert renamed.read(SCHEMA).to_pylist() == [{"k": 1, "v": "for a"}]


# --- a table that is set back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_the_newest_checkpoint_is_that_of_the_snapshot_rolled_back_to(tmp_path: Path, options: dict[str, str]) -> None:
    """The table's properties and its other snapshots stay."""
    target = IcebergTarget("iceberg", {"table": "db.t", **options, **catalog_options(tmp_path)})
    sink = target.validated()
    ids = {}
    for k in (2, 4, 6):
        sink.commit(permit(k), stage(sink, [(k, "ours"), (0, "ours")], k, k))
        ids[k] = catalog_of(target.options).load_table("db.t").current_snapshot().snapshot_id
    table = catalog_of(target.options).load_table("db.t")
    table.append(pa.table({"k": [100], "v": ["theirs"]}, schema=SCHEMA))
    assert sink.newest_checkpoint(JOB, SINK) == 6
    for k in (4, 2):
        table.manage_snapshots().rollback_to_snapshot(ids[k]).commit()
        assert sink.newest_checkpoint(JOB, SINK) == k
        table.append(pa.table({"k": [100], "v": ["theirs"]}, schema=SCHEMA))
        assert sink.newest_checkpoint(JOB, SINK) == k
    sink.commit(permit(8), stage(sink, [(8, "ours")], 8, 8))
    assert target.make().newest_checkpoint(JOB, SINK) == 8


def test_where_snapshots_have_expired_the_property_is_believed(tmp_path: Path) -> None:
    target = IcebergTarget("iceberg", {"table": "db.t", **catalog_options(tmp_path)})
    sink = target.validated()
    for k in (2, 4):
        sink.commit(permit(k), stage(sink, [(k, "ours")], k, k))
    table = catalog_of(target.options).load_table("db.t")
    ours = [s.snapshot_id for s in table.metadata.snapshots]
    table.append(pa.table({"k": [100], "v": ["theirs"]}, schema=SCHEMA))
    table.append(pa.table({"k": [101], "v": ["theirs"]}, schema=SCHEMA))
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    assert sink.newest_checkpoint(JOB, SINK) == 4
