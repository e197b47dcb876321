"""Option ``rejects`` of the ``sql`` sink: each row is in the target or among the rejects, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.arrow_types import database_schema
from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.sinks.rejects import objects
from spark_ckpt.testing.sink_harness import CHANGES, SCHEMA, SimulatedCrash, permit, stage, typed_rows
from tests.sinks.rejects_harness import Rejecting
from tests.sinks.sql_harness import DATABASES, make, new_database, run
from tests.sinks.test_sql_rules import KEYED, PLAIN, TRIGGERS, asked

Rows = list[tuple[Any, ...]]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


@pytest.fixture
def postgres(tmp_path: Path) -> str:
    return new_database("postgresql", tmp_path)


def rejecting(url: str, schema: pa.Schema = SCHEMA, **options: str) -> Rejecting:
    return Rejecting("sql", {"url": url, "table": "t", "rejects": "bad", **options}, schema)


def bad_keys(url: str) -> list[int]:
    return sorted(json.loads(data)["k"] for (data,) in run(url, "SELECT data FROM bad"))


def taken(sink: Rejecting, url: str, rows: Rows, expected: Rows, bad: list[int], checkpoint: int = 1) -> None:
    """``rows`` make ``expected`` of the target, and those of keys ``bad`` are rejected; nothing is left staged."""
    before = run(url, "SELECT * FROM t"), bad_keys(url)
    staged = sink.stage(rows, checkpoint, checkpoint)
    tried = sink.tried(staged)
    assert tried.refused == ()
    assert (run(url, "SELECT * FROM t"), bad_keys(url)) == before
    sink.commit(staged, checkpoint)
    assert sorted(run(url, "SELECT k, v FROM t")) == expected
    assert bad_keys(url) == bad
    found = sum(tried.rejected.values()) + sum(json.loads(c.data)["rows"] for c in staged if c.sink == "s-rejects")
    assert found == len(bad) - len(before[1])
    sink.commit(staged, checkpoint)  # again, as after a crash
    assert bad_keys(url) == bad
    assert run(url, "SELECT count(*) FROM spark_ckpt_stages") == [(0,)]


def test_rows_that_a_check_refuses_are_rejected_with_the_constraint_and_all_others_are_written(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT small CHECK (k < 100))")
    rows = [(i, str(i)) for i in range(102)]
    taken(rejecting(url), url, rows, rows[:100], [100, 101])
    [(data, rule, sink, epoch)] = run(url, "SELECT data, rule, sink, epoch FROM bad WHERE data LIKE '%101%'")
    assert (json.loads(data), rule, sink, epoch) == ({"k": 101, "v": "101"}, "small", "s", 1)
    assert all("small" in reason and when for reason, when in run(url, "SELECT reason, rejected_at FROM bad"))


def test_a_trigger_and_a_partition_that_is_not_there(url: str) -> None:
    kind = url.split("+")[0].split(":")[0]
    run(url, f"CREATE TABLE t {PLAIN}", *TRIGGERS[kind])
    taken(rejecting(url), url, [(77, "x"), (1, "a"), (78, "y"), (2, "b")], [(1, "a"), (2, "b")], [77, 78])
    if kind != "sqlite":
        run(url, "DROP TABLE t")
        ending = {"postgresql": "", "mariadb": " (PARTITION a VALUES LESS THAN (10))"}[kind]
        part = ["CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)"] if kind == "postgresql" else []
        run(url, f"CREATE TABLE t {PLAIN} PARTITION BY RANGE (k){ending}", *part)
        taken(rejecting(url), url, [(1, "a"), (79, "x"), (2, "b")], [(1, "a"), (2, "b")], [77, 78, 79], 2)


def test_of_appended_rows_of_one_primary_key_the_first_stays(url: str) -> None:
    run(url, f"CREATE TABLE t {KEYED}", "INSERT INTO t VALUES (7, 'there')")
    rows = [(1, "a"), (1, "again"), (7, "x"), (2, "b")]
    taken(rejecting(url), url, rows, [(1, "a"), (2, "b"), (7, "there")], [1, 7])


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)  # SQLite: only if a session asks
def test_a_row_without_its_parent(url: str) -> None:
    run(url, f"CREATE TABLE p {KEYED}", "INSERT INTO p VALUES (1, 'x'), (2, 'y')")
    run(url, "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT parent FOREIGN KEY (k) REFERENCES p (k))")
    taken(rejecting(url), url, [(1, "a"), (77, "x"), (2, "b")], [(1, "a"), (2, "b")], [77])
    assert run(url, "SELECT rule FROM bad") == [("parent",)]


def test_a_deferred_reference_to_a_row_that_comes_later_or_never(postgres: str) -> None:
    later = "REFERENCES t DEFERRABLE INITIALLY DEFERRED"
    run(postgres, f"CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT CONSTRAINT parent {later})")
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    # 4 refers to 3, which refers to one that never comes.
    rows = [(1, 2), (2, 2), (3, 77), (4, 3), (5, 1)]
    taken(rejecting(postgres, schema), postgres, rows, [(1, 2), (2, 2), (5, 1)], [3, 4])


# --- keys -------------------------------------------------------------------------------------------------------


def test_an_earlier_row_of_the_key_counts_if_the_last_one_is_refused(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20), CONSTRAINT c CHECK (v < 'x'))")
    run(url, "INSERT INTO t VALUES (1, 'old'), (2, 'old'), (3, 'old')")
    rows = [(1, "new"), (1, "xa"), (2, "xb"), (1, "xc"), (3, "new")]
    taken(rejecting(url, mergeKeys="k"), url, rows, [(1, "new"), (2, "old"), (3, "new")], [1, 1, 2])


def test_unique_values_move_among_rows_beside_a_row_that_is_refused(url: str) -> None:
    run(url, f"CREATE TABLE t {KEYED}", "CREATE UNIQUE INDEX one_v ON t (v)")
    run(url, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    # 3 wants what 4 keeps; 1 and 2 change places.
    taken(
        rejecting(url, mergeKeys="k"),
        url,
        [(1, "b"), (3, "d"), (2, "a"), (5, "e")],
        [(1, "b"), (2, "a"), (3, "c"), (4, "d"), (5, "e")],
        [3],
    )


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_removal_that_others_refer_to_is_rejected_and_the_row_stays(url: str) -> None:
    run(url, f"CREATE TABLE t {KEYED}", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    run(url, "CREATE TABLE child (k BIGINT, FOREIGN KEY (k) REFERENCES t (k))", "INSERT INTO child VALUES (1)")
    sink = rejecting(url, CHANGES, mergeKeys="k", changeColumn="op")
    rows = [("-D", 1, "a"), ("-D", 2, "b"), ("+I", 3, "c")]
    taken(sink, url, rows, [(1, "a"), (3, "c")], [1])
    assert json.loads(run(url, "SELECT data FROM bad")[0][0]) == {"op": "-D", "k": 1, "v": "a"}


@pytest.mark.parametrize("keys", ["", "k"])
def test_rows_of_several_tasks_are_searched_in_the_order_of_the_commit(url: str, keys: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20), CONSTRAINT c CHECK (v < 'x'))")
    sink = rejecting(url, **({"mergeKeys": keys} if keys else {}))
    tasks = [[(1, "a"), (2, "x2")], [(3, "c")], [(4, "d"), (5, "x5"), (6, "f")], [(2, "b"), (6, "x6")], [(7, "x7")]]
    staged = [c for i, rows in enumerate(tasks) for c in sink.stage(rows, 1, i)]
    expected = [5, 6, 7] if keys else [2, 5, 6, 7]  # of key 2 another row is the last
    assert sink.tried(staged).rejected == {"s": len(expected)}
    sink.commit(staged)
    assert run(url, "SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (6, "f")]
    assert bad_keys(url) == expected


# --- what a task finds ------------------------------------------------------------------------------------------


def test_rows_that_the_staging_table_does_not_take_are_rejected_by_the_task(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(9) NOT NULL)")
    sink = rejecting(url, mergeKeys="k")
    long = [] if url.startswith("sqlite") else [(3, "0123456789")]
    taken(sink, url, [(1, "a"), (2, None), *long, (4, "b")], [(1, "a"), (4, "b")], [2, *(k for k, _ in long)])


def test_null_keys_and_unknown_kinds_of_change_are_rejected_by_the_task(url: str) -> None:
    run(url, f"CREATE TABLE t {KEYED}")
    sink = rejecting(url, CHANGES, mergeKeys="k", changeColumn="op")
    staged = sink.stage([("+I", 1, "a"), ("+I", None, "x"), ("??", 2, "y"), ("+I", 3, "b")])
    sink.commit(staged)
    assert run(url, "SELECT k FROM t ORDER BY k") == [(1,), (3,)]
    found = [json.loads(data) for (data,) in run(url, "SELECT data FROM bad")]
    assert found == [{"op": "+I", "k": None, "v": "x"}, {"op": "??", "k": 2, "v": "y"}]


def test_a_text_that_postgresql_cannot_hold_is_rejected(postgres: str) -> None:
    taken(rejecting(postgres), postgres, [(1, "a"), (2, "x\0y")], [(1, "a")], [2])
    assert "NUL" in run(postgres, "SELECT reason FROM bad")[0][0]


# --- values -----------------------------------------------------------------------------------------------------


def test_a_rejected_row_has_the_values_that_the_query_wrote(url: str) -> None:
    rows = typed_rows(nested=False)
    if url.startswith("mariadb"):
        rows = rows.drop_columns(["big decimal"])
    sink = rejecting(url, rows.schema)
    run(url, "INSERT INTO bad (sink) VALUES ('x')", "DELETE FROM bad")  # it is there from the start
    check = "ALTER TABLE t ADD CONSTRAINT none CHECK (id < 0)"
    trigger = "CREATE TRIGGER g BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, 'none'); END"
    run(url, trigger if url.startswith("sqlite") else check)
    sink.commit(sink.stage(rows))
    assert run(url, "SELECT count(*) FROM t") == [(0,)]
    found = [json.loads(data) for (data,) in run(url, "SELECT data FROM bad")]
    expected = [json.loads(text) for text in objects(rows.cast(database_schema(rows.schema))).to_pylist()]
    assert sorted(found, key=lambda r: r["id"]) == expected


# --- what is no row's fault -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["ALTER TABLE t RENAME COLUMN v TO w", "DROP TABLE t"])
def test_a_target_that_was_altered_or_dropped_rejects_no_row(url: str, change: str) -> None:
    run(url, f"CREATE TABLE t {PLAIN}")
    sink = rejecting(url)
    staged = sink.stage([(1, "a"), (2, "b")])
    run(url, change)
    with pytest.raises(Exception, match="t"):
        sink.commit(staged)
    assert run(url, "SELECT * FROM bad") == []
    assert len(run(url, "SELECT * FROM spark_ckpt_stages")) == 1


def test_a_trigger_that_raises_for_every_statement_rejects_no_row(postgres: str) -> None:
    run(
        postgres,
        f"CREATE TABLE t {KEYED}",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed'; END $$",
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION f()",
    )
    sink = rejecting(postgres, mergeKeys="k")
    staged = sink.stage([(1, "a"), (1, "b"), (2, "c")])
    assert "closed" in sink.tried(staged).refused[0].reason
    assert run(postgres, "SELECT * FROM bad") == []


def test_a_constraint_that_came_after_the_try_is_met_by_the_commit(url: str) -> None:
    run(url, f"CREATE TABLE t {PLAIN}")
    sink = rejecting(url)
    staged = sink.stage([(1, "a"), (77, "x")])
    assert sink.tried(staged).rejected == {}
    trigger = "CREATE TRIGGER g BEFORE INSERT ON t WHEN NEW.k > 9 BEGIN SELECT RAISE(ABORT, 'large'); END"
    run(url, trigger if url.startswith("sqlite") else "ALTER TABLE t ADD CONSTRAINT small CHECK (k < 9)")
    sink.commit(staged)
    assert (run(url, "SELECT k FROM t"), bad_keys(url)) == ([(1,)], [77])


def test_without_the_option_the_checkpoint_is_refused_as_before(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT small CHECK (k < 9))")
    sink = make(url)
    assert "small" in asked((sink, stage(sink, [(77, "x")], 1, 1)))[0].reason


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["after ledger", "after move", "after transaction"])
def test_a_crash_in_the_commit_leaves_each_row_in_one_place_once_the_next_one_is_done(url: str, step: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT small CHECK (k < 9))")
    sink = rejecting(url)
    staged = sink.stage([(1, "a"), (77, "x"), (2, "b")])
    parts = sink.parts(staged)

    def stop(name: str) -> None:
        if name == step:
            raise SimulatedCrash

    parts["s"].sink.on_step = stop
    with pytest.raises(SimulatedCrash):
        parts["s"].sink.commit_together(permit(1), list(parts.values()))
    if step != "after transaction":
        assert run(url, "SELECT k FROM t UNION ALL SELECT epoch FROM bad") == []
    sink.commit(staged)
    assert (sorted(run(url, "SELECT k FROM t")), bad_keys(url)) == ([(1,), (2,)], [77])


# --- at start ---------------------------------------------------------------------------------------------------


def test_what_cannot_reject_says_so_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sink .memory. has no option .rejects.*sql, delta, files and iceberg can"):
        checked_sinks([("memory", {"path": f"{tmp_path}/m", "rejects": f"{tmp_path}/r"})])
    with pytest.raises(ConfigError, match="options 'rejects' and 'table' are the same"):
        checked_sinks([("sql", {"url": "sqlite://", "table": "t", "rejects": "t"})])
