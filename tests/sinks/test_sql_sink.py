from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError, InvalidInputError, RetryableError
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_harness import JOB, SCHEMA, context, permit, stage, stage_table, table_of
from tests.postgres_server import PASSWORD, shared_server
from tests.sinks.sql_harness import DATABASES, make, new_database, run, said


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


def test_rows_and_ledger_share_a_transaction_that_a_refused_row_rolls_back(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT, v TEXT, CHECK (v <> 'bad'))")
    sink = make(url)
    staged = stage(sink, [(1, "good"), (2, "bad")])
    with pytest.raises(InvalidInputError, match="committing checkpoint 1 failed"):
        sink.commit(permit(1), staged)
    assert run(url, "SELECT * FROM t") == []
    assert run(url, "SELECT * FROM spark_ckpt_ledger") == []
    if url.startswith("postgresql"):  # the user mends the target and starts again; nothing was lost
        run(url, "ALTER TABLE t DROP CONSTRAINT t_v_check")
        make(url).commit(permit(1), staged)
        assert run(url, "SELECT * FROM t ORDER BY k") == [(1, "good"), (2, "bad")]


def test_rows_that_wait_for_another_table_of_the_database_are_not_put_into_this_one(url: str) -> None:
    """As when two sinks are named in another order, and keep each other's uid."""
    first, second = make(url, "a"), make(url, "b")
    staged = stage(first, [(1, "for a")])
    with pytest.raises(InvalidInputError, match="wait for table a, and the sink of their uid now writes to table b"):
        second.commit(permit(1), staged)
    assert run(url, "SELECT * FROM b") == []
    first.commit(permit(1), staged)
    assert run(url, "SELECT * FROM a") == [(1, "for a")]
    second.commit(permit(1), staged)  # the ledger says that it is done


def test_the_ledger_has_one_row_a_checkpoint(url: str) -> None:
    sink = make(url)
    for checkpoint in (3, 5):
        staged = stage(sink, [(checkpoint, "x")], checkpoint)
        sink.commit(permit(checkpoint), staged)
        sink.commit(permit(checkpoint), staged)
    assert run(url, "SELECT job, sink, checkpoint, l.rows FROM spark_ckpt_ledger l ORDER BY checkpoint") == [
        (JOB, "totals", 3, 1),
        (JOB, "totals", 5, 1),
    ]


def test_an_existing_table_keeps_its_own_columns_types_and_defaults(url: str) -> None:
    serial = {
        "sqlite": "INTEGER PRIMARY KEY",
        "postgresql+psycopg": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "mariadb+pymysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
    }[url.split(":")[0]]
    run(url, f"CREATE TABLE t (id {serial}, v VARCHAR(20), k NUMERIC(12, 0) NOT NULL, note TEXT NOT NULL DEFAULT 'n')")
    sink = make(url)
    sink.commit(permit(1), stage(sink, [(10, "a"), (20, None)]))
    assert run(url, "SELECT v, k, note FROM t ORDER BY id") == [("a", 10, "n"), (None, 20, "n")]


def test_an_upsert_leaves_columns_alone_that_the_query_does_not_have(url: str) -> None:
    run(url, "CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT, note TEXT)", "INSERT INTO t VALUES (1, 'old', 'keep me')")
    sink = make(url, mergeKeys="k")
    sink.commit(permit(1), stage(sink, [(1, "new"), (2, "b")]))
    assert run(url, "SELECT * FROM t ORDER BY k") == [(1, "new", "keep me"), (2, "b", None)]


def test_rows_that_are_nothing_but_key_are_upserted(url: str) -> None:
    keys = pa.schema([SCHEMA.field("k")])
    sink = make(url, schema=keys, mergeKeys="k")
    for checkpoint in (1, 2):
        table = pa.table([[1, 1, 2]], schema=keys)
        sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=keys), table))
    assert run(url, "SELECT k FROM t ORDER BY k") == [(1,), (2,)]


def test_a_null_in_a_merge_key_fails_its_task_and_names_the_column(url: str) -> None:
    sink = make(url, mergeKeys="v")
    with pytest.raises(InvalidInputError, match="'v' has a null"):
        stage(sink, [(1, None)])


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("CREATE TABLE t (k BIGINT)", {}, "has no column 'v'"),
        ("CREATE TABLE t (k DATE, v TEXT)", {}, "'k' is DATE and the query writes int64"),
        ("CREATE TABLE t (k BIGINT, v TEXT, w INTEGER NOT NULL)", {}, "'w' must not be null, has no default"),
        (
            "CREATE TABLE t (k BIGINT, v VARCHAR(9) GENERATED ALWAYS AS ('x') STORED)",
            {},
            "'v' is computed by the database",
        ),
        ("CREATE TABLE t (k BIGINT, v TEXT)", {"mergeKeys": "k"}, r"unique index is on exactly the mergeKeys \(k\)"),
        ("CREATE TABLE t (k BIGINT, v TEXT, UNIQUE (k, v))", {"mergeKeys": "k"}, "unique index is on exactly"),
    ],
)
def test_a_target_the_rows_do_not_fit_is_refused_at_start(
    url: str, ddl: str, options: dict[str, str], message: str
) -> None:
    run(url, ddl)
    with pytest.raises(InvalidInputError, match=message):
        make(url, **options)


@pytest.mark.parametrize("ddl", ["CREATE UNIQUE INDEX i ON t (v, k)", "ALTER TABLE t ADD UNIQUE (k, v)"])
def test_a_unique_index_or_constraint_on_the_merge_keys_is_enough(ddl: str) -> None:
    url = shared_server().new_database()
    run(url, "CREATE TABLE t (k BIGINT, v TEXT)", ddl)
    sink = make(url, mergeKeys="k,v")
    sink.commit(permit(1), stage(sink, [(1, "a"), (1, "a")]))
    assert run(url, "SELECT * FROM t") == [(1, "a")]


def test_a_missing_target_is_refused_if_it_may_not_be_made(url: str) -> None:
    with pytest.raises(InvalidInputError, match="does not exist and option 'createTable' is false"):
        make(url, createTable="false")


def test_a_nested_column_is_refused_at_start_by_name(url: str) -> None:
    nested = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(InvalidInputError, match=r"column .tags. has type list<.*columns"):
        make(url, schema=nested)


def test_a_row_the_target_would_refuse_fails_in_its_task_and_not_in_a_commit() -> None:
    url = shared_server().new_database()
    run(url, "CREATE TABLE t (k SMALLINT, v VARCHAR(3) NOT NULL)")
    sink = make(url)
    for rows, message in ([(1, "long")], "too long"), ([(1, None)], "null value"), ([(1 << 40, "a")], "out of range"):
        with pytest.raises(InvalidInputError, match=f"(?s)staging rows of epoch 1 failed: .*{message}"):
            stage(sink, rows)
    assert run(url, "SELECT * FROM spark_ckpt_stages") == []


def test_rows_staged_before_the_query_changed_are_committed_with_the_new_ones(url: str) -> None:
    before = make(url)
    old = stage(before, [(1, "a")])
    wide = SCHEMA.append(pa.field("w", pa.int64()))
    run(url, "ALTER TABLE t ADD COLUMN w BIGINT")
    after = make(url, schema=wide)
    new = stage_table(after, context(2, 2, schema=wide), pa.table([[2], ["b"], [7]], schema=wide))
    after.commit(permit(2), old + new)
    assert run(url, "SELECT * FROM t ORDER BY k") == [(1, "a", None), (2, "b", 7)]
    assert run(url, "SELECT * FROM spark_ckpt_stages") == []


def test_an_altered_target_gets_a_staging_table_of_its_new_types() -> None:
    url = shared_server().new_database()
    run(url, "CREATE TABLE t (k BIGINT, v VARCHAR(3))")
    make(url)
    run(url, "ALTER TABLE t ALTER COLUMN v TYPE TEXT")
    sink = make(url)
    sink.commit(permit(1), stage(sink, [(1, "longer now")]))
    assert run(url, "SELECT v FROM t") == [("longer now",)]


def test_an_attempt_that_was_aborted_while_it_still_wrote_cannot_stage_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ckpt.sinks.sql._writer._CHUNK_ROWS", 1)
    sink = make(url)
    writer = sink.writer(context(1, 1))
    batch = table_of([(1, "a")]).to_batches()[0]
    writer.write(batch)
    assert len(sink.gc(JOB, [])) == 1
    with pytest.raises(RetryableError, match="aborted while it still wrote"):
        writer.write(batch)
    assert run(url, "SELECT * FROM spark_ckpt_stages") == []


def test_many_staged_transactions_commit_and_abort(url: str) -> None:
    sink = make(url)
    staged = [c for i in range(60) for c in stage(sink, [(i, "x")], partition=i)]
    sink.abort(staged[40:])
    sink.commit(permit(1), staged[:40])
    assert run(url, "SELECT count(*), min(k), max(k) FROM t") == [(40, 0, 39)]


def test_a_schema_of_its_own_holds_the_target_and_all_that_is_ours() -> None:
    url = shared_server().new_database()
    run(url, 'CREATE SCHEMA "My Schema"')
    sink = SqlSink({"url": url, "table": "T", "schema": "My Schema", "mergeKeys": "k"})
    sink.validate(SCHEMA)
    sink.commit(permit(1), stage(sink, [(1, "a"), (1, "b")]))
    assert run(url, 'SELECT * FROM "My Schema"."T"') == [(1, "b")]
    assert run(url, 'SELECT count(*) FROM "My Schema".spark_ckpt_ledger') == [(1,)]


def test_user_and_password_may_be_given_beside_the_url() -> None:
    server = shared_server()
    host = server.new_database().split("@")[1]
    sink = make(f"postgresql://{host}", user="postgres", password=PASSWORD)
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    assert run(f"postgresql+psycopg://postgres:s3cret%2Fpass%3Aword@{host}", "SELECT k FROM t") == [(1,)]


def test_a_wrong_password_is_refused_at_start_without_showing_it() -> None:
    wrong = shared_server().new_database().replace("s3cret", "wr0ng")
    with pytest.raises(InvalidInputError, match="password authentication failed") as refused:
        make(wrong)
    assert "wr0ng" not in said(refused.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1/x", "connection"),
        ("sqlite:////no/such/folder/x.db", "unable to open"),
        ("postgresql://u:hunter2@127.0.0.1:1/x?sslpassword=hunter2&sslmode=nonsense", "sslmode"),
    ],
)
def test_a_database_out_of_reach_is_refused_at_start_without_secrets(url: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        make(url)
    assert "hunter2" not in said(refused.value)


@pytest.mark.parametrize("url", ["hunter2 is no url", "nosuchdb://u:hunter2@h/x", "oracle://u:hunter2@h/x"])
def test_an_unusable_url_is_a_config_error_without_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make(url)
    assert "hunter2" not in said(refused.value)


def test_an_outage_while_staging_is_worth_a_retry_and_shows_no_secret(tmp_path: Path) -> None:
    sink = SqlSink({"url": "postgresql://u:hunter2@127.0.0.1:1/x", "table": "t"})
    sink.place = JobPlace(str(tmp_path), JobConfig(dir=str(tmp_path), retry_timeout_ms=300))
    with pytest.raises(RetryableError, match="staging rows of epoch 1 failed") as refused:
        stage(sink, [(1, "a")])
    assert "hunter2" not in said(refused.value)


def test_dropped_bookkeeping_tables_are_an_error_to_mend_and_not_to_retry(url: str) -> None:
    sink = make(url)
    run(url, "DROP TABLE spark_ckpt_stages")
    with pytest.raises(InvalidInputError, match="spark_ckpt_stages"):
        stage(sink, [(1, "a")])
    assert sink.gc(JOB, []) == []


FLOATS = pa.schema([pa.field("f", pa.float64())])


def test_nan_is_itself_in_postgresql_and_null_where_there_is_none(url: str) -> None:
    sink = make(url, schema=FLOATS)
    table = pa.table([[float("nan"), -0.5]], schema=FLOATS)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=FLOATS), table))
    expected = "[(-0.5,), (nan,)]" if url.startswith("postgresql") else "[(None,), (-0.5,)]"
    assert str(run(url, "SELECT f FROM t ORDER BY f")) == expected


def test_an_infinity_is_itself_and_an_error_in_mariadb_that_says_what_to_do(url: str) -> None:
    sink = make(url, schema=FLOATS)
    table = pa.table([[float("inf")]], schema=FLOATS)
    if url.startswith("mariadb"):
        with pytest.raises(InvalidInputError, match=r"column 'f' has an infinite value.*F\.when"):
            stage_table(sink, context(1, 1, schema=FLOATS), table)
        return
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=FLOATS), table))
    assert run(url, "SELECT f FROM t") == [(float("inf"),)]


def test_a_key_that_is_nan_is_refused_where_it_would_become_null(url: str) -> None:
    sink = make(url, schema=FLOATS, mergeKeys="f")
    table = pa.table([[float("nan"), float("nan")]], schema=FLOATS)
    if not url.startswith("postgresql"):
        with pytest.raises(InvalidInputError, match="mergeKeys column 'f' has a NaN"):
            stage_table(sink, context(1, 1, schema=FLOATS), table)
        return
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=FLOATS), table))
    assert str(run(url, "SELECT f FROM t")) == "[(nan,)]"


def test_a_commit_waits_for_another_writer_of_the_same_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    sink = make(url)
    staged = stage(sink, [(1, "a")])
    reader = sa.create_engine(url, poolclass=sa.pool.NullPool).connect()
    reader.execute(sa.text("SELECT * FROM t")).all()  # an open snapshot must not block the commit
    sink.commit(permit(1), staged)
    reader.close()
    assert run(url, "SELECT k FROM t") == [(1,)]
