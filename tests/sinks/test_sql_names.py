"""Any name a database takes works, a name it would cut is refused, and no name or URL shows a password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks.sql.sink import SqlSink
from spark_ckpt.testing.sink_harness import context, permit, stage, stage_table
from tests.mariadb_server import shared_mariadb
from tests.postgres_server import PASSWORD, shared_server
from tests.sinks.sql_harness import DATABASES, make, new_database, run, said

WRONG = "wr0ng"
NAMES = [
    "100%", "%s", "%(k)s", "%%", 'a"b', "a`b", "a'b", "a\\b", "a.b", "a b", "(a)", "a:b", ":k", "?", "$1",
    "select", "Select",
    "\u540d\u524d", "caf\u00e9", "values (%s)", "_ckpt", "--x", "/*x*/", "{}", "a;b", "excluded", "\u00e9" * 30,
]  # fmt: skip


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_names_that_databases_take_work_for_columns(url: str, mode: str) -> None:
    taken = [n for n in NAMES if not (url.startswith("sqlite") and n == "Select")]  # names ignore case there
    taken = [n for n in taken if not (url.startswith("mariadb") and n == "Select")]
    schema = pa.schema([pa.field(n, pa.int64() if n == "100%" else pa.string()) for n in taken])
    options = {"mergeKeys": "100%"} if mode == "upsert" else {}
    for checkpoint in (1, 2):  # the second start finds everything under the same names
        sink = make(url, "100% %s", schema, **options)
        values = [1 if n == "100%" else f"{n}{checkpoint}" for n in taken]
        staged = stage_table(
            sink, context(checkpoint, checkpoint, schema=schema), pa.table([[v] for v in values], schema=schema)
        )
        sink.commit(permit(checkpoint), staged)
    found = read(url, "100% %s", taken)
    assert found[-1] == tuple(values)
    assert len(found) == (1 if options else 2)


@pytest.mark.parametrize("name", ["%(k)s", 'a"`b', "a b.c", "\u540d\u524d", "\u00e9" * 31, "x" * 63, "\U0001f986" * 15])
def test_names_that_databases_take_work_for_tables_again_and_again(url: str, name: str) -> None:
    if name > "\U0001f985" and url.startswith("mariadb"):
        with pytest.raises(InvalidInputError, match="character beyond"):
            make(url, name)
        return
    for checkpoint in (1, 2):
        sink = make(url, name, mergeKeys="k")
        sink.commit(permit(checkpoint), stage(sink, [(checkpoint, "a")], checkpoint, checkpoint))
    assert read(url, name, ["k"]) == [(1,), (2,)]


def test_a_table_that_postgresql_cannot_upsert_into_is_refused_at_start() -> None:
    with pytest.raises(InvalidInputError, match="another name"):
        make(shared_server().new_database(), "excluded", mergeKeys="k")


def read(url: str, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    with sa.create_engine(url, poolclass=sa.pool.NullPool).connect() as connection:
        found = sa.table(table, *map(sa.column, names))
        return [tuple(r) for r in connection.execute(sa.select(found).order_by(found.c[names[-1]]))]


@pytest.mark.parametrize("kind", ["table", "column"])
def test_a_name_that_the_database_would_cut_is_refused_at_start(kind: str) -> None:
    for url, name in ((shared_server().new_database(), "\u00e9" * 32), (shared_mariadb().new_database(), "x" * 65)):
        table, column = (name, "k") if kind == "table" else ("t", name)
        with pytest.raises(InvalidInputError, match=f"{kind} name .* is 6[45] .* choose a shorter one"):
            make(url, table, pa.schema([pa.field(column, pa.int64())]))


def _secret_urls() -> list[str]:
    address = shared_server().new_database().split("@")[1]
    quoted = PASSWORD.replace("/", "%2F").replace(":", "%3A")
    maria = shared_mariadb().new_database().split("@")[1]
    return [
        f"postgresql://postgres@{address}?password={quoted}",
        f"postgresql://{address}?user=postgres&password={quoted}&sslpassword=hunter2&application_name=x",
        f"mariadb://ckpt@{maria}?password={quoted}",
    ]


@pytest.mark.parametrize("which", range(3))
def test_a_password_in_the_query_string_works_and_shows_nowhere(which: int) -> None:
    url = _secret_urls()[which]
    sink = make(url)
    staged = stage(sink, [(1, "a")])
    shown = [repr(sink), str(sink), *map(repr, staged)]
    sink.abort(staged)
    with pytest.raises(Exception, match="missing") as missing:
        sink.commit(permit(1), staged)
    other = url.replace("s3cret", WRONG)
    with pytest.raises(InvalidInputError) as wrong:
        make(other)
    with pytest.raises((InvalidInputError, ConfigError)) as odd:
        make(f"{other}&connect_timeout=soon")
    shown += [said(e.value) for e in (missing, wrong, odd)]
    for secret in (PASSWORD, "s3cret", WRONG, "hunter2"):
        assert [text for text in shown if secret in text] == []


def test_a_url_shows_where_the_database_is_and_no_parameters() -> None:
    sink = SqlSink({"url": "postgresql://me:hunter2@db.example:5432/x?options=-cfoo%3Dhunter2", "table": "t"})
    assert repr(sink) == "SqlSink(table t of postgresql+psycopg://me:***@db.example:5432/x)"


def test_refused_text_shows_the_column_and_the_reason() -> None:
    url = shared_server().new_database()
    sink = make(url)
    with pytest.raises(InvalidInputError, match="0x00"):
        stage(sink, [(1, "a\0b")])
    assert run(url, "SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("kind", "declared"),
    [("postgresql", "xml"), ("postgresql", "point"), ("postgresql", "pair"), ("mariadb", "inet6"), ("sqlite", "")],
)
def test_a_column_of_a_type_that_nothing_maps_is_refused_at_start_by_name(
    tmp_path: Path, kind: str, declared: str
) -> None:
    url = new_database(kind, tmp_path)
    made = ["CREATE TYPE pair AS (a int, b int)"] if declared == "pair" else []
    run(url, *made, f"CREATE TABLE t (k bigint, odd {declared})")
    with pytest.raises(InvalidInputError, match=r"column 'odd' has a type that nothing here knows.*option 'columns'"):
        make(url, schema=pa.schema([("k", pa.int64()), ("odd", pa.string())]))
    make(url, schema=pa.schema([("k", pa.int64())]))


@pytest.mark.parametrize("names", [("id", "ID"), ("\u00e9", "e\u0301"), ("\u00e9", "\u00c9"), ("a.b", "a")])
def test_pairs_of_names_are_two_columns_or_refused_at_start_by_name(url: str, names: tuple[str, str]) -> None:
    schema = pa.schema([("k", pa.int64()), *((n, pa.string()) for n in names)])
    try:
        sink = make(url, schema=schema)
    except InvalidInputError as refused:
        assert f"column name '{names[1]}'" in str(refused) or f"column name: {names[1]}" in str(refused)  # noqa: PT017
        assert not url.startswith("postgresql")
        assert names[0].lower() == names[1].lower()
        return
    sink.commit(
        permit(1), stage_table(sink, context(1, 1, schema=schema), pa.table([[1], ["one"], ["two"]], schema=schema))
    )
    assert read(url, "t", list(names)) == [("one", "two")]
