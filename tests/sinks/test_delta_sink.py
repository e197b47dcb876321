from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.testing.sink_harness import JOB, SCHEMA, SINK, context, permit, stage, stage_table, table_of, typed_rows


def make(path: Path, **options: str) -> DeltaSink:
    sink = DeltaSink({"path": str(path), **options})
    sink.validate(SCHEMA)
    return sink


def rows(path: Path) -> list[dict[str, Any]]:
    return query(path, "select * from t order by k")


def query(path: Path, sql: str) -> list[dict[str, Any]]:
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()).to_pylist()


def test_a_checkpoint_is_one_version_that_names_job_sink_and_checkpoint(tmp_path: Path) -> None:
    sink = make(tmp_path / "t")
    sink.commit(permit(7), stage(sink, [(1, "a")]) + stage(sink, [(2, "b")], partition=1))
    table = DeltaTable(tmp_path / "t")
    assert (table.version(), table.transaction_version(f"{JOB}/{SINK}")) == (1, 7)


def test_a_merge_is_one_version_that_names_job_sink_and_checkpoint(tmp_path: Path) -> None:
    sink = make(tmp_path / "t", mergeKeys="k")
    for checkpoint in (1, 2):
        sink.commit(permit(checkpoint), stage(sink, [(1, f"v{checkpoint}")], checkpoint))
        table = DeltaTable(tmp_path / "t")
        assert (table.version(), table.transaction_version(f"{JOB}/{SINK}")) == (checkpoint, checkpoint)


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_someone_elses_commit_in_between_is_met_by_trying_again(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "t"
    sink = make(path, **options)
    sink.commit(permit(1), stage(sink, [(1, "ours")]))
    others = iter([table_of([(2, "theirs")]), table_of([(3, "theirs")])])

    def other_writer(step: str) -> None:
        table = next(others, None) if step == "before version" else None
        if table is not None:
            write_deltalake(path, table, mode="append")

    sink.on_step = other_writer
    sink.commit(permit(2), stage(sink, [(1, "again")], 2))
    assert [r["v"] for r in rows(path) if r["k"] == 1] == (["again"] if options else ["again", "ours"])
    assert "theirs" in [r["v"] for r in rows(path)]
    assert DeltaTable(path).transaction_version(f"{JOB}/{SINK}") == 2


def test_a_table_that_never_stops_changing_fails_the_commit_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ckpt.sinks.delta.sink._COMMIT_TRIES", 2)
    path = tmp_path / "t"
    sink = make(path, mergeKeys="k")
    staged = stage(sink, [(1, "ours")])
    sink.on_step = lambda _: write_deltalake(path, table_of([(2, "theirs")]), mode="append")
    with pytest.raises(RetryableError, match="Start the query again"):
        sink.commit(permit(1), staged)
    make(path, mergeKeys="k").commit(permit(1), staged)
    assert (1, "ours") in [(r["k"], r["v"]) for r in rows(path)]


def test_two_drivers_that_both_saw_the_old_version_commit_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    staged = stage(make(path), [(1, "a")])
    meet = threading.Barrier(2)
    first_time = threading.local()

    def both_have_looked(step: str) -> None:
        if step == "before version" and not hasattr(first_time, "passed"):
            first_time.passed = True
            meet.wait(30)

    def drive() -> None:
        sink = DeltaSink({"path": str(path)})
        sink.on_step = both_have_looked
        sink.commit(permit(1), staged)

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(path) == [{"k": 1, "v": "a"}]


def test_null_keys_are_one_key_and_names_may_hold_blanks_and_capitals(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("Air Line", pa.string()), pa.field('to"', pa.string()), pa.field("n", pa.int64())])
    sink = DeltaSink({"path": str(tmp_path / "t"), "mergeKeys": 'Air Line,to"'})
    sink.validate(schema)
    for checkpoint, n in ((1, [1, 2, 3]), (2, [4, 5, 6])):
        table = pa.table([["A", "A", None], ["x", None, None], n], schema=schema)
        sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=schema), table))
    assert sorted(r["n"] for r in query(tmp_path / "t", "select * from t")) == [4, 5, 6]


@pytest.mark.parametrize("key", [".lead", "a.b", "[0]", "*", "order"])
def test_a_key_may_be_called_what_means_something_else_to_arrow(tmp_path: Path, key: str) -> None:
    schema = pa.schema([(key, pa.string()), ("v", pa.int64())])
    sink = DeltaSink({"path": str(tmp_path / "t"), "mergeKeys": key})
    sink.validate(schema)
    for checkpoint, values in enumerate(([1, 2], [3, 4]), 1):
        table = pa.table({key: ["x", "x"], "v": values}, schema=schema)
        sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=schema), table))
    found = pa.table(QueryBuilder().register("t", DeltaTable(tmp_path / "t")).execute("select * from t").read_all())
    assert found.to_pylist() == [{key: "x", "v": 4}]


def test_a_table_is_made_with_delta_types_and_statistics_that_skip_files(tmp_path: Path) -> None:
    table = typed_rows()
    sink = DeltaSink({"path": str(tmp_path / "t")})
    sink.validate(table.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=table.schema), table))
    delta = DeltaTable(tmp_path / "t")
    kinds = {f.name: str(f.type) for f in delta.schema().fields}
    assert 'timestamp_ntz"' in kinds["local time"]
    assert 'timestamp"' in kinds["instant"]
    log = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    stats = next(json.loads(e["add"]["stats"]) for e in map(json.loads, log) if "add" in e)
    assert stats["numRecords"] == 3
    assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (0, 2)
    assert stats["maxValues"]["local time"] == "2024-02-29T12:00:00.000000"
    assert stats["minValues"]["date"] == "1900-01-01"
    assert stats["nullCount"]["text"] == 1
    assert stats["maxValues"]["double"] == 1e300
    found = query(
        tmp_path / "t",
        """select id from t where instant = timestamp '2100-02-28T00:00:00Z' and "date" > '2900-01-01'""",
    )
    assert found == [{"id": 1}]


def test_a_type_delta_does_not_have_is_refused_at_start_naming_the_column(tmp_path: Path) -> None:
    sink = DeltaSink({"path": str(tmp_path / "t")})
    with pytest.raises(
        InvalidInputError, match=r"column 'a' has type list<item: duration\[us\]>, which Delta cannot store"
    ):
        sink.validate(pa.schema([pa.field("a", pa.list_(pa.duration("us")))]))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("there", "message"),
    [
        (pa.schema([pa.field("k", pa.int64())]), r"no column 'v' \(string\)"),
        (pa.schema([pa.field("k", pa.int32()), pa.field("v", pa.string())]), "'k' is int32 in the table and int64"),
        (SCHEMA.append(pa.field("w", pa.int64(), False)), "'w' must not be null in the table and the query does not"),
        (pa.schema([pa.field("k", pa.int64(), False), pa.field("v", pa.string())]), "'k' must not be null in the tab"),
    ],
)
def test_a_table_the_rows_do_not_fit_is_refused_at_start(tmp_path: Path, there: pa.Schema, message: str) -> None:
    DeltaTable.create(str(tmp_path / "t"), schema=there)
    with pytest.raises(InvalidInputError, match=message):
        make(tmp_path / "t")


def test_a_table_with_rules_nobody_would_check_is_refused_at_start(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "t"), schema=SCHEMA).alter.add_constraint({"positive": "k > 0"})
    with pytest.raises(InvalidInputError, match=r"delta\.constraints\.positive.*does not support"):
        make(tmp_path / "t")
    DeltaTable.create(str(tmp_path / "p"), schema=SCHEMA, partition_by=["v"])
    with pytest.raises(InvalidInputError, match=r"write with partitionBy\('v'\)"):
        make(tmp_path / "p")


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_columns_the_table_has_beyond_the_querys_become_null_or_stay(tmp_path: Path, options: dict[str, str]) -> None:
    wide = SCHEMA.append(pa.field("w", pa.int64()))
    write_deltalake(tmp_path / "t", pa.table([[1], ["a"], [7]], schema=wide))
    sink = make(tmp_path / "t", **options)
    sink.commit(permit(1), stage(sink, [(1, "b"), (2, "c")]))
    found = sorted(((r["k"], r["v"], r["w"]) for r in rows(tmp_path / "t")), key=str)
    kept = [(1, "b", 7)] if options else [(1, "a", 7), (1, "b", None)]
    assert found == [*kept, (2, "c", None)]


def test_gc_and_abort_leave_files_that_only_older_versions_name(tmp_path: Path) -> None:
    path = tmp_path / "t"
    sink = make(path)
    staged = stage(sink, [(1, "a")])
    sink.commit(permit(1), staged)
    sink.commit(permit(2), stage(sink, [(2, "b")], 2))
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    sink.abort(staged)
    assert sink.gc(JOB, []) == []
    old = DeltaTable(path, version=1)
    assert pa.table(QueryBuilder().register("t", old).execute("select k from t").read_all())["k"].to_pylist() == [1]


def test_a_vacuumed_staged_file_fails_the_commit_and_not_the_table(tmp_path: Path) -> None:
    sink = make(tmp_path / "t")
    staged = stage(sink, [(1, "a")])
    DeltaTable(tmp_path / "t").vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(CorruptStorageError, match="vacuumed"):
        sink.commit(permit(1), staged)
    assert rows(tmp_path / "t") == []


def test_a_table_that_is_gone_fails_the_commit_clearly(tmp_path: Path) -> None:
    sink = make(tmp_path / "t")
    staged = stage(sink, [(1, "a")])
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match=r"t is gone.*Restore it"):
        sink.commit(permit(1), staged)


def test_what_was_staged_to_append_is_committed_after_a_change_to_merge(tmp_path: Path) -> None:
    before = make(tmp_path / "t")
    staged = stage(before, [(1, "a")])
    after = make(tmp_path / "t", mergeKeys="k")
    after.commit(permit(1), staged)
    after.commit(permit(2), stage(after, [(1, "b")], 2))
    after.commit(permit(1), staged)
    assert rows(tmp_path / "t") == [{"k": 1, "v": "b"}]


def test_a_folder_that_cannot_hold_a_table_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be made or opened"):
        make(tmp_path / "file" / "t")


@pytest.mark.parametrize("prefix", ["file:", "file://"])
def test_the_path_may_be_a_file_url(tmp_path: Path, prefix: str) -> None:
    sink = DeltaSink({"path": f"{prefix}{tmp_path}/t"})
    sink.validate(SCHEMA)
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    assert rows(tmp_path / "t") == [{"k": 1, "v": "a"}]


# --- a table that is set back -------------------------------------------------------------------------------------


def newest(path: Path) -> int | None:
    return make(path).newest_checkpoint(JOB, SINK)


def committed(path: Path, *checkpoints: int, **options: str) -> DeltaTable:
    sink = make(path, **options)
    for k in checkpoints:
        sink.commit(permit(k), stage(sink, [(k, f"v{k}"), (0, f"v{k}")], k, k))
    return DeltaTable(path)


def others(table: DeltaTable) -> None:
    write_deltalake(table, pa.table({"k": [100], "v": ["theirs"]}, schema=SCHEMA), mode="append")


@pytest.mark.parametrize("options", [{}, {"mergeKeys": "k"}])
def test_the_newest_checkpoint_is_that_of_the_version_restored_to(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "t"
    table = committed(path, 2, 4, 6, **options)
    others(table)
    table.optimize.compact()
    table.restore(2)
    assert newest(path) == 4
    others(table)
    assert newest(path) == 4
    table.restore(5)  # compacted, with all of ours in it
    assert newest(path) == 6
    table.restore(7)  # the one restored before, with theirs
    assert newest(path) == 4
    table.restore(0)
    assert newest(path) == 0
    committed(path, 8, **options)
    assert newest(path) == 8


def test_a_restore_to_a_time_is_found_by_its_files_as_its_note_has_no_zone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = committed(path, 2, 4, 6)
    table.restore(2)
    entry = path / "_delta_log" / f"{4:020d}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:  # as Spark writes it of RESTORE ... TO TIMESTAMP AS OF
            line["commitInfo"]["operationParameters"] = {"version": None, "timestamp": "2026-01-01 00:00:00.0"}
    entry.write_text("\n".join(json.dumps(line) for line in lines))
    assert newest(path) == 4


def test_where_the_log_is_tidied_up_the_transaction_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = committed(path, 2, 4)
    others(table)
    table.create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert newest(path) == 4
    assert make(path).newest_checkpoint("another job", SINK) == 0


def test_a_restore_behind_which_the_log_is_gone_cannot_be_told_from_any_other(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = committed(path, 2, 4, 6)
    table.restore(1)
    table.create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert newest(path) is None
