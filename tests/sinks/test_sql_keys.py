"""Different keys never meet and the same key never has two rows, whatever a database makes of texts by default."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.mariadb_server import shared_mariadb
from tests.postgres_server import shared_server
from tests.sinks.sql_harness import DATABASES, make, new_database, run

TEXTS = pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())])
LOOKALIKES = [
    "a",
    "A",
    "a ",
    "\u00e4",
    "a\u0308",
    "\u00df",
    "ss",
    "",
    " ",
    "\U0001f986",
    "\U0001f40d",
    "i",
    "\u0131",
    "x" * 768,
]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


def upsert(url: str, keys: list[str], checkpoint: int = 1, job: str = "job", table: str = "t") -> None:
    sink = make(url, table, TEXTS, mergeKeys="k")
    rows = pa.table([keys, [100 * checkpoint + i for i in range(len(keys))]], schema=TEXTS)
    ctx = context(checkpoint, checkpoint, job=job, schema=TEXTS)
    sink.commit(permit(checkpoint, job), stage_table(sink, ctx, rows))


def test_texts_that_only_look_alike_are_different_keys(url: str) -> None:
    upsert(url, LOOKALIKES)
    upsert(url, LOOKALIKES[::-1], 2)
    assert dict(run(url, "SELECT k, n FROM t")) == {k: 200 + i for i, k in enumerate(LOOKALIKES[::-1])}


def test_jobs_whose_names_only_look_alike_have_a_ledger_each(url: str) -> None:
    for job in ("orders", "Orders", "orders "):
        upsert(url, [job], job=job)
    assert sorted(run(url, "SELECT k FROM t")) == [("Orders",), ("orders",), ("orders ",)]
    assert len(run(url, "SELECT job FROM spark_ckpt_ledger")) == 3


def test_a_ledger_that_compares_loosely_is_converted_and_keeps_its_rows() -> None:
    url = shared_mariadb().new_database()
    upsert(url, ["before"], job="orders")
    run(url, "ALTER TABLE spark_ckpt_ledger CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    upsert(url, ["after"], job="Orders")
    assert sorted(run(url, "SELECT job, checkpoint FROM spark_ckpt_ledger")) == [("Orders", 1), ("orders", 1)]


_FOLDING = [
    ("mariadb", "k VARCHAR(20) PRIMARY KEY", "latin1_swedish_ci"),
    ("mariadb", "k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY", "utf8mb4_unicode_ci"),
    ("mariadb", "k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY", "utf8mb4_bin"),
    ("mariadb", "k CHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY", r"char\(20\)"),
    ("postgresql", "k CHAR(20) PRIMARY KEY", "bpchar"),
    ("postgresql", "k TEXT COLLATE loose PRIMARY KEY", "collation loose"),
    ("postgresql", "k padded PRIMARY KEY", "bpchar"),
    ("postgresql", "k NAME PRIMARY KEY", "name"),
]


@pytest.mark.parametrize(("database", "column", "found"), _FOLDING)
def test_a_target_whose_key_folds_is_refused_and_the_way_out_works(
    database: str, column: str, found: str, tmp_path: Path
) -> None:
    url = new_database(database, tmp_path)
    if "loose" in column:
        # The server of the tests has no ICU, which alone has such collations; the check goes by the mark.
        run(
            url,
            'CREATE COLLATION loose FROM "C"',
            "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'",
        )
    if "padded" in column:
        run(url, "CREATE DOMAIN cells AS CHAR(5)", "CREATE DOMAIN padded AS cells")
    run(url, f"CREATE TABLE t ({column}, n BIGINT)")
    with pytest.raises(InvalidInputError, match=f"key column 'k'.*{found}") as refused:
        upsert(url, ["a"])
    mended = re.search(r"run: (ALTER TABLE .*)$", str(refused.value))
    assert mended is not None
    run(url, mended[1])
    upsert(url, ["a", "A", "a "])
    assert len(run(url, "SELECT k FROM t")) == 3


def test_a_sqlite_key_with_another_collation_is_refused(tmp_path: Path) -> None:
    url = new_database("sqlite", tmp_path)
    run(url, "CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, n BIGINT)")
    with pytest.raises(InvalidInputError, match="key column 'k' is compared with COLLATE NOCASE"):
        upsert(url, ["a"])


def test_a_key_indexed_by_its_first_characters_is_refused() -> None:
    url = shared_mariadb().new_database("CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    run(url, "CREATE TABLE t (k LONGTEXT, n BIGINT, PRIMARY KEY (k(10)))")
    with pytest.raises(InvalidInputError, match="whole columns, not of their first characters"):
        upsert(url, ["a"])


def test_a_key_too_long_for_an_index_fails_in_its_task_and_is_not_cut() -> None:
    url = shared_mariadb().new_database()
    with pytest.raises(InvalidInputError, match="Data too long for column 'k'"):
        upsert(url, ["x" * 769])
    assert run(url, "SELECT count(*) FROM t") == [(0,)]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize("kind", ["varchar(3)", "domain"])
def test_a_key_that_would_lose_its_last_spaces_fails_in_its_task_and_meets_no_other(
    database: str, kind: str, tmp_path: Path
) -> None:
    """Databases cut spaces silently where a text is too long by them alone: 'abc' and 'abc  ' would be one row."""
    if (database, kind) == ("mariadb", "domain"):
        pytest.skip("has no domains")
    url = new_database(database, tmp_path)
    if kind == "domain":
        run(url, "CREATE DOMAIN domain3 AS varchar(3)")
    run(url, f"CREATE TABLE t (k {kind.replace('domain', 'domain3')} PRIMARY KEY, n BIGINT)")
    if database == "mariadb":
        run(url, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    upsert(url, ["abc", "ab ", "éü "])
    with pytest.raises(InvalidInputError, match="'k' has a text that ends with spaces and is longer than the 3 char"):
        upsert(url, ["x", "abc  "], 2)
    assert sorted(run(url, "SELECT k FROM t")) == [("ab ",), ("abc",), ("éü ",)]


_UNFIT = {
    "no primary key or unique index is on exactly": [
        ["CREATE UNIQUE INDEX i ON t (k)", "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'i'::regclass"],
        ["CREATE UNIQUE INDEX i ON t (k) WHERE n > 0"],
        ["CREATE UNIQUE INDEX i ON t (lower(k))"],
    ],
    "constraint .* on the mergeKeys is deferrable": [
        ["ALTER TABLE t ADD UNIQUE (k) DEFERRABLE", "CREATE UNIQUE INDEX i ON t (k)"],
        ["ALTER TABLE t ADD PRIMARY KEY (k) DEFERRABLE INITIALLY DEFERRED"],
    ],
}


@pytest.mark.parametrize(("said", "index"), [(said, i) for said, indexes in _UNFIT.items() for i in indexes])
def test_an_index_that_no_upsert_goes_by_is_refused_at_start_and_the_way_out_works(
    said: str, index: list[str], tmp_path: Path
) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, "CREATE TABLE t (k TEXT, n BIGINT)", *index)
    with pytest.raises(InvalidInputError, match=said) as refused:
        upsert(url, ["a"])
    mended = re.search(r"run: (ALTER TABLE .*)$", str(refused.value))
    run(url, mended[1] if mended else "CREATE UNIQUE INDEX plain ON t (k) INCLUDE (n)")
    upsert(url, ["a", "b"])
    upsert(url, ["a", "b"], 2)
    assert run(url, "SELECT k, n FROM t ORDER BY k") == [("a", 200), ("b", 201)]


def test_other_unique_indexes_in_mariadb_are_taken() -> None:
    url = shared_mariadb().new_database("CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    run(url, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, n BIGINT, UNIQUE mail (n))")
    upsert(url, ["a"])
    run(url, "ALTER TABLE t DROP INDEX mail, ADD UNIQUE (k, n)", "ALTER TABLE t ADD id BIGINT AUTO_INCREMENT UNIQUE")
    upsert(url, ["a", "b"], 2)
    assert len(run(url, "SELECT k FROM t")) == 2


def test_a_target_without_transactions_is_refused_and_the_way_out_works() -> None:
    url = shared_mariadb().new_database("CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    run(url, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, n BIGINT) ENGINE=MyISAM")
    with pytest.raises(InvalidInputError, match="MyISAM has no transactions; run: ALTER TABLE t ENGINE=InnoDB"):
        upsert(url, ["a"])
    run(url, "ALTER TABLE t ENGINE=InnoDB")
    upsert(url, ["a"])


@pytest.mark.parametrize(
    ("database", "column", "kind"),
    [
        ("mariadb", "DATETIME", pa.timestamp("us")),
        ("mariadb", "FLOAT", pa.float64()),
        ("postgresql", "TIMESTAMP(3)", pa.timestamp("us")),
        ("postgresql", "REAL", pa.float64()),
        ("postgresql", "DOUBLE PRECISION", pa.int64()),
        ("postgresql", "NUMERIC(20, 2)", pa.decimal128(20, 3)),
        ("postgresql", "BIGINT", pa.float64()),
        ("postgresql", "whole", pa.decimal128(20, 3)),
        ("postgresql", "MONEY", pa.decimal128(20, 3)),
        ("mariadb", "YEAR", pa.int32()),
    ],
)
def test_a_key_column_that_rounds_is_refused(database: str, column: str, kind: pa.DataType, tmp_path: Path) -> None:
    url = new_database(database, tmp_path)
    if column == "whole":
        run(url, "CREATE DOMAIN inner_one AS NUMERIC(20, 2)", "CREATE DOMAIN whole AS inner_one")
    run(url, f"CREATE TABLE t (k {column} PRIMARY KEY)")
    with pytest.raises(InvalidInputError, match=r"key column 'k' is .*, which rounds"):
        make(url, schema=pa.schema([pa.field("k", kind)]), mergeKeys="k")


def test_a_zero_stays_a_zero_in_an_auto_increment_column() -> None:
    url = shared_mariadb().new_database()
    run(url, "CREATE TABLE t (k BIGINT AUTO_INCREMENT PRIMARY KEY)")
    keys = pa.schema([pa.field("k", pa.int64())])
    sink = make(url, schema=keys, mergeKeys="k")
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=keys), pa.table([[0, 5]], schema=keys)))
    assert run(url, "SELECT k FROM t ORDER BY k") == [(0,), (5,)]


def test_citext_is_refused_where_it_is_installed() -> None:
    url = shared_server().new_database()
    if not run(url, "SELECT 1 FROM pg_available_extensions WHERE name = 'citext'"):
        # The server of the tests comes without it: a domain has the name, and the check goes by the name.
        run(url, "CREATE DOMAIN citext AS text")
    else:
        run(url, "CREATE EXTENSION citext")
    run(url, "CREATE TABLE t (k citext PRIMARY KEY, n BIGINT)")
    with pytest.raises(InvalidInputError, match="key column 'k' is citext"):
        upsert(url, ["a"])
