"""What a database would refuse is found before the checkpoint is complete, and nothing of it is visible."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.protocol.steps import SinkRefused
from spark_ckpt.sinks.base import Part, TwoPhaseSink
from spark_ckpt.sinks.sql._rules import Moved, may_refuse
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.sinks.together import commit_sinks, try_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import CHANGES, SCHEMA, context, permit, stage, stage_table
from spark_ckpt.types import Committable
from tests.sinks.sql_harness import DATABASES, make, new_database, run

PLAIN, KEYED = "(k BIGINT, v VARCHAR(20))", "(k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20))"
TRIGGERS = {
    "sqlite": [
        "CREATE TRIGGER g BEFORE INSERT ON t WHEN NEW.k > 9 BEGIN SELECT RAISE(ABORT, 'k is too large'); END",
    ],
    "postgresql": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.k > 9 THEN RAISE 'k is too large'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
    ],
    "mariadb": [
        "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW "
        "IF NEW.k > 9 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'k is too large'; END IF",
    ],
}
GOOD: list[tuple[int, str | None]] = [(1, "a"), (2, "b")]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


@pytest.fixture
def postgres(tmp_path: Path) -> str:
    return new_database("postgresql", tmp_path)


def asked(*parts: tuple[TwoPhaseSink, Sequence[Committable]]) -> tuple[SinkRefused, ...]:
    return try_sinks({str(i): Part(sink, staged) for i, (sink, staged) in enumerate(parts)}, Retry(1)).refused


def committed(checkpoint: int, *parts: tuple[TwoPhaseSink, Sequence[Committable]]) -> tuple[Exception | None, ...]:
    return commit_sinks(permit(checkpoint), [Part(sink, staged) for sink, staged in parts], Retry(1))


def check(url: str, statements: list[str], bad: list[tuple[int, str | None]], said: str, **options: str) -> None:
    """With the target of ``statements``, ``bad`` rows are refused with ``said`` and leave no trace, good ones not."""
    run(url, *statements)
    sink = make(url, **options)
    before = run(url, "SELECT * FROM t")
    staged = stage(sink, [*GOOD, *bad], 1, 1)
    [refused] = asked((sink, staged))
    assert said in refused.reason
    assert run(url, "SELECT * FROM t") == before
    assert run(url, "SELECT checkpoint FROM spark_ckpt_ledger") == []
    good = stage(sink, GOOD, 1, 2)
    assert asked((sink, good)) == ()
    assert run(url, "SELECT * FROM t") == before
    assert committed(1, (sink, good)) == (None,)
    assert sorted(run(url, "SELECT k, v FROM t WHERE k < 3")) == GOOD


def test_a_check_constraint(url: str) -> None:
    table = "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT small CHECK (k < 9))"
    check(url, [table], [(77, "secret")], "small")


def test_a_primary_key_of_appended_rows(url: str) -> None:
    check(url, [f"CREATE TABLE t {KEYED}", "INSERT INTO t VALUES (77, 'x')"], [(77, "secret")], "")


def test_a_unique_index_besides_the_merge_keys(url: str) -> None:
    table = [f"CREATE TABLE t {KEYED}", "CREATE UNIQUE INDEX one_v ON t (v)", "INSERT INTO t VALUES (50, 'taken')"]
    check(url, table, [(77, "taken")], "v", mergeKeys="k")


def test_a_trigger_that_raises(url: str) -> None:
    check(url, [f"CREATE TABLE t {PLAIN}", *TRIGGERS[url.split("+")[0].split(":")[0]]], [(77, "secret")], "too large")


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)  # SQLite: only if a session asks
def test_a_foreign_key(url: str) -> None:
    parent = [f"CREATE TABLE p {KEYED}", "INSERT INTO p VALUES (1, 'x'), (2, 'y')"]
    child = "CREATE TABLE t (k BIGINT, v VARCHAR(20), CONSTRAINT parent FOREIGN KEY (k) REFERENCES p (k))"
    check(url, [*parent, child], [(77, "secret")], "parent")


def test_a_deferred_foreign_key(postgres: str) -> None:
    parent = [f"CREATE TABLE p {KEYED}", "INSERT INTO p VALUES (1, 'x'), (2, 'y')"]
    later = "REFERENCES p DEFERRABLE INITIALLY DEFERRED"
    child = f"CREATE TABLE t (k BIGINT CONSTRAINT parent {later}, v VARCHAR(20))"
    check(postgres, [*parent, child], [(77, "secret")], "parent")


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_row_that_no_partition_takes(url: str) -> None:
    table = {
        "postgresql": [
            f"CREATE TABLE t {PLAIN} PARTITION BY RANGE (k)",
            "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        ],
        "mariadb": [f"CREATE TABLE t {PLAIN} PARTITION BY RANGE (k) (PARTITION a VALUES LESS THAN (10))"],
    }[url.split("+")[0]]
    check(url, table, [(77, "secret")], "partition")


def test_a_generated_column_that_cannot_be_computed(postgres: str) -> None:
    table = "CREATE TABLE t (k BIGINT, v VARCHAR(20), w BIGINT GENERATED ALWAYS AS (1 / k) STORED)"
    check(postgres, [table], [(0, "secret")], "division by zero")


def test_an_index_entry_that_is_too_long(postgres: str) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))
    check(postgres, ["CREATE TABLE t (k BIGINT, v TEXT)", "CREATE INDEX i ON t (v)"], [(77, long)], "index")


def test_a_merge_key_that_is_too_long_for_its_index(postgres: str) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))
    run(postgres, "CREATE TABLE t (k BIGINT, v TEXT PRIMARY KEY)")
    sink = make(postgres, mergeKeys="v")
    assert "index" in asked((sink, stage(sink, [(1, long)], 1, 1)))[0].reason
    assert asked((sink, stage(sink, [(1, "a" * 1000)], 1, 2))) == ()


def test_a_table_that_was_altered_since_the_query_started(url: str) -> None:
    run(url, f"CREATE TABLE t {PLAIN}")
    sink = make(url)
    staged = stage(sink, GOOD, 1, 1)
    run(url, "ALTER TABLE t RENAME COLUMN v TO w")
    assert "v" in asked((sink, staged))[0].reason


def test_a_message_tells_constraint_and_columns_and_values_only_if_asked_to(postgres: str) -> None:
    run(
        postgres, f"CREATE TABLE t {KEYED}", "CREATE UNIQUE INDEX one_v ON t (v)", "INSERT INTO t VALUES (50, 'hidden')"
    )
    for values in ("false", "true"):
        sink = make(postgres, mergeKeys="k", errorValues=values)
        [refused] = asked((sink, stage(sink, [(77, "hidden")], 1, 1)))
        assert "one_v" in refused.reason
        assert "(v)" in refused.reason
        assert ("hidden" in refused.reason) == (values == "true")


def test_a_message_of_mariadb_quotes_no_value(tmp_path: Path) -> None:
    url = new_database("mariadb", tmp_path)
    run(url, f"CREATE TABLE t {KEYED}", "INSERT INTO t VALUES (770077, 'x')")
    sink = make(url)
    [refused] = asked((sink, stage(sink, [(770077, "y")], 1, 1)))
    assert "Duplicate entry for key 'PRIMARY'" in refused.reason


# --- what is not tried ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["", "k"])
def test_a_target_without_rules_is_not_tried(url: str, keys: str) -> None:
    sink = make(url, mergeKeys=keys) if keys else make(url)
    name = str(run(url, "SELECT staging FROM spark_ckpt_stages")[0][0]) if stage(sink, GOOD, 1, 1) else ""
    with sa.create_engine(url, poolclass=sa.pool.NullPool).connect() as connection:
        moved = Moved("t", name, None, ("k", "v"), tuple(keys), removes=False)
        assert not may_refuse(connection, moved)


# --- two tables -------------------------------------------------------------------------------------------------


def two_tables(url: str) -> tuple[SqlSink, SqlSink]:
    """A child whose rows refer to rows of its parent."""
    run(url, f"CREATE TABLE parent {KEYED}")
    run(url, "CREATE TABLE child (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20), FOREIGN KEY (k) REFERENCES parent (k))")
    return make(url, "child", mergeKeys="k"), make(url, "parent", mergeKeys="k")


def staged_as(sink: TwoPhaseSink, name: str, rows: list[tuple[int, str]], epoch: int) -> list[Committable]:
    table = pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, SCHEMA)
    return stage_table(sink, context(epoch, epoch, sink=name), table)


def test_rows_may_refer_to_rows_of_the_same_checkpoint_in_whatever_order_the_query_names_the_tables(url: str) -> None:
    child, parent = two_tables(url)
    parts = (child, staged_as(child, "c", [(1, "a")], 1)), (parent, staged_as(parent, "p", [(1, "b")], 1))
    assert asked(*parts) == ()
    assert committed(1, *parts) == (None, None)
    assert run(url, "SELECT k FROM child") == run(url, "SELECT k FROM parent") == [(1,)]
    assert run(url, "SELECT count(*) FROM spark_ckpt_stages") == [(0,)]


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)  # SQLite: only if a session asks
def test_a_row_without_its_parent_is_refused_in_the_child(url: str) -> None:
    child, parent = two_tables(url)
    parts = (parent, staged_as(parent, "p", [(1, "b")], 1)), (child, staged_as(child, "c", [(2, "a")], 1))
    assert [r.sink for r in asked(*parts)] == ["1"]


def test_two_tables_of_one_database_show_a_checkpoint_both_or_neither(url: str) -> None:
    _, parent = two_tables(url)
    run(url, "CREATE TABLE other (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20), CONSTRAINT c CHECK (k < 9))")
    other = make(url, "other", mergeKeys="k")
    parts = (parent, staged_as(parent, "p", [(1, "b")], 1)), (other, staged_as(other, "o", [(77, "a")], 1))
    first, second = committed(1, *parts)
    assert first is None
    assert "table other" in str(second)
    assert run(url, "SELECT * FROM parent") == []
    assert run(url, "SELECT * FROM spark_ckpt_ledger") == []
    run(url, "DROP TABLE other", f"CREATE TABLE other {KEYED}")
    assert committed(1, *parts) == (None, None)
    assert committed(1, *parts) == (None, None)
    assert run(url, "SELECT k FROM parent UNION ALL SELECT k FROM other") == [(1,), (77,)]


# --- unique values that move among rows ------------------------------------------------------------------------


@pytest.fixture(params=DATABASES)
def unique(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = new_database(request.param, tmp_path)
    run(url, f"CREATE TABLE t {KEYED}", "CREATE UNIQUE INDEX one_v ON t (v)")
    run(url, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return url


MOVES = [
    [(1, "b"), (2, "a")],  # a swap
    [(1, "b"), (2, "c"), (3, "a")],  # a circle
    [(2, "a"), (1, "z")],  # a value that becomes free
    [(4, "c"), (3, "b"), (2, "d")],  # a shift by one, to a new row
]
ALSO = {
    "nothing else": ["SELECT 1"],
    "a column that the query does not write": ["ALTER TABLE t ADD COLUMN note VARCHAR(9) DEFAULT 'kept'"],
    "a foreign key of another table": [
        "CREATE TABLE child (k BIGINT REFERENCES t (k))",
        "INSERT INTO child VALUES (1), (2), (3)",
    ],
}


@pytest.mark.parametrize("rows", MOVES)
@pytest.mark.parametrize("also", ALSO)
def test_unique_values_may_move_among_rows(unique: str, rows: list[tuple[int, str]], also: str) -> None:
    run(unique, *ALSO[also])
    sink = make(unique, mergeKeys="k")
    staged = stage(sink, rows, 1, 1)
    assert asked((sink, staged)) == ()
    assert committed(1, (sink, staged)) == (None,)
    assert run(unique, "SELECT k, v FROM t ORDER BY k") == sorted({1: "a", 2: "b", 3: "c", **dict(rows)}.items())
    if also.startswith("a column"):
        assert set(run(unique, "SELECT note FROM t")) == {("kept",)}


def test_change_rows_may_move_a_unique_value_to_another_key(unique: str) -> None:
    sink = make(unique, schema=CHANGES, mergeKeys="k", changeColumn="op")
    table = pa.table({"op": ["+I", "-D", "+U"], "k": [4, 1, 2], "v": ["a", "a", "z"]}, CHANGES)
    staged = stage_table(sink, context(1, 1, schema=CHANGES), table)
    assert asked((sink, staged)) == ()
    assert committed(1, (sink, staged)) == (None,)
    assert run(unique, "SELECT k, v FROM t ORDER BY k") == [(2, "z"), (3, "c"), (4, "a")]


def test_rows_that_end_in_a_collision_are_refused(unique: str) -> None:
    sink = make(unique, mergeKeys="k")
    assert len(asked((sink, stage(sink, [(1, "b")], 1, 1)))) == 1


def test_a_swap_is_refused_where_rows_have_other_columns_and_a_unique_value_cannot_be_null(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT NOT NULL PRIMARY KEY, v VARCHAR(20) NOT NULL UNIQUE, note VARCHAR(9))")
    run(url, "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    sink = make(url, mergeKeys="k")
    assert len(asked((sink, stage(sink, [(1, "b"), (2, "a")], 1, 1)))) == 1
    assert run(url, "SELECT * FROM t ORDER BY k") == [(1, "a", "x"), (2, "b", "y")]


def test_an_upsert_into_mariadb_never_takes_the_row_of_another_key(tmp_path: Path) -> None:
    url = new_database("mariadb", tmp_path)
    run(url, "CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR(20) UNIQUE, note BIGINT DEFAULT NULL UNIQUE)")
    sink = make(url, mergeKeys="k")
    for checkpoint, rows in enumerate(([(1, "a"), (2, "b"), (1, "c")], [(2, "c"), (1, "b"), (3, "a")]), 1):
        staged = stage(sink, rows, checkpoint, checkpoint)
        assert asked((sink, staged)) == ()
        assert committed(checkpoint, (sink, staged)) == (None,)
    expected = [(1, "b"), (2, "c"), (3, "a")]
    assert run(url, "SELECT k, v FROM t ORDER BY k") == expected
    assert len(asked((sink, stage(sink, [(4, "a")], 3, 3)))) == 1
    run(url, "ALTER TABLE t ALTER note SET DEFAULT 7", "UPDATE t SET note = 7 WHERE k = 1")
    assert len(asked((sink, stage(sink, [(4, "d")], 4, 4)))) == 1
    assert run(url, "SELECT k, v FROM t ORDER BY k") == expected


# --- names of our own ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_ckpt_rank", "_CKPT_RANK", "_ckpt_rank_"])
def test_a_column_may_be_called_as_the_rank_of_a_merge_is(url: str, name: str) -> None:
    schema = pa.schema([("k", pa.int64()), (name, pa.string()), ("_ckpt_rank2", pa.string())])
    sink = make(url, schema=schema, mergeKeys="k")
    table = pa.table([[1, 1], ["old", "new"], ["x", "y"]], schema=schema)
    staged = stage_table(sink, context(1, 1, schema=schema), table)
    assert committed(1, (sink, staged)) == (None,)
    assert run(url, "SELECT * FROM t") == [(1, "new", "y")]


@pytest.mark.parametrize("name", ["anon_1", "anon_2", "_ckpt_rows"])
def test_a_table_and_its_columns_may_be_called_as_a_subquery_is(url: str, name: str) -> None:
    schema = pa.schema([("op", pa.string()), ("k", pa.int64()), ("anon_1", pa.string())])
    run(url, f"CREATE TABLE {name} (k BIGINT NOT NULL PRIMARY KEY, anon_1 VARCHAR(20) UNIQUE)")
    sink = make(url, name, schema, mergeKeys="k", changeColumn="op")
    changes = [["+I", "+I", "+I"], [1, 2, 3], ["a", "b", "c"]], [["+U", "+U", "-D"], [1, 2, 3], ["b", "a", "c"]]
    for checkpoint, columns in enumerate(changes, 1):
        staged = stage_table(sink, context(checkpoint, checkpoint, schema=schema), pa.table(columns, schema=schema))
        assert asked((sink, staged)) == ()
        assert committed(checkpoint, (sink, staged)) == (None,)
    assert run(url, f"SELECT k, anon_1 FROM {name} ORDER BY k") == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("name", ["_ckpt_stage", "_CKPT_SEQ"])
def test_a_column_with_a_name_of_the_staging_table_is_refused_at_start(url: str, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"column '{name}' has a name that the sink needs"):
        make(url, schema=pa.schema([("k", pa.int64()), (name, pa.string())]))


@pytest.mark.parametrize("table", ["spark_ckpt_ledger", "SPARK_CKPT_STAGES"])
def test_a_table_of_the_sink_itself_is_refused_as_a_target(url: str, table: str) -> None:
    with pytest.raises(InvalidInputError, match="is the sink's own"):
        make(url, table)
