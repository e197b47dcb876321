"""The ``sql`` source on real databases: the shipped suite, values, rows that are committed late, and errors."""

from __future__ import annotations

import datetime as dt
import threading
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import DecimalType, LongType, StringType, StructType, TimestampType

from spark_ckpt.errors import BadRecordError, CkptError, ConfigError, InvalidInputError, RetryableError
from spark_ckpt.sources.sql._settling import Settling
from spark_ckpt.sources.sql._values import is_over
from spark_ckpt.testing.sink_harness import context, permit, stage_table, typed_rows
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget
from spark_ckpt.testing.source_harness import Rows, batches
from tests.postgres_server import PASSWORD, PostgresServer
from tests.sinks.sql_harness import DATABASES, make, new_database, run

NOW = {"settleDelay": "0s", "discoveryInterval": "0s"}
COUNTED = {
    "sqlite": "CREATE TABLE t (id INTEGER PRIMARY KEY, v VARCHAR(20))",
    "postgresql": "CREATE TABLE t (id bigserial PRIMARY KEY, v text)",
    "mariadb": "CREATE TABLE t (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(20))",
}
TIMES = "CREATE TABLE t (at {} NOT NULL, k bigint PRIMARY KEY)"
TIME_TYPES = {"sqlite": "DATETIME", "postgresql": "timestamptz", "mariadb": "datetime(6)"}


class SqlSourceTarget(SourceTarget):
    def __init__(self, url: str, schema: StructType | None = None, **options: str) -> None:
        super().__init__("sql", {"url": url, "table": "t", "offsetColumn": "id", **NOW, **options}, "", schema)
        self.url = url

    def expected(self) -> Rows:
        return []


class CountedTarget(SqlSourceTarget):
    """Numbers that the database gives, with gaps."""

    rows_a_batch = 3

    def __init__(self, kind: str, url: str) -> None:
        super().__init__(url, maxRowsPerTrigger="3")
        run(
            url,
            COUNTED[kind],
            "INSERT INTO t (id, v) VALUES " + ", ".join(f"({i}, 'v{i}')" for i in (1, 2, 5, 6, 7000)),
        )

    def expected(self) -> Rows:
        return [tuple(r) for r in run(self.url, "SELECT id, v FROM t")]

    def add(self) -> bool:
        top = run(self.url, "SELECT max(id) FROM t")[0][0]
        run(self.url, f"INSERT INTO t (id, v) VALUES ({top + 2}, 'new'), ({top + 9000}, 'new')")
        return True


@pytest.mark.parametrize("kind", DATABASES)
class TestCounted(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path, kind: str) -> SourceTarget:
        return CountedTarget(kind, new_database(kind, tmp_path))


class TimesTarget(SqlSourceTarget):
    """Times, two rows to each: a batch is not cut between rows of one time."""

    def __init__(self, kind: str, url: str) -> None:
        super().__init__(url, offsetColumn="at", maxRowsPerTrigger="3")
        self.kind, self.count = kind, 0
        run(url, TIMES.format(TIME_TYPES[kind]))
        for _ in range(4):
            self.add()

    def expected(self) -> Rows:
        zone = ZoneInfo("UTC") if self.kind == "postgresql" else None
        return [(dt.datetime(2026, 1, 1, 12, 0, i // 2, 123456, zone), i) for i in range(self.count)]

    def add(self) -> bool:
        at = f"2026-01-01 12:00:0{self.count // 2}.123456{'+00' if self.kind == 'postgresql' else ''}"
        run(self.url, f"INSERT INTO t VALUES ('{at}', {self.count}), ('{at}', {self.count + 1})")
        self.count += 2
        return True


@pytest.mark.parametrize(
    "kind", [k if k == "postgresql" else pytest.param(k, marks=pytest.mark.soak) for k in DATABASES]
)
class TestTimes(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path, kind: str) -> SourceTarget:
        return TimesTarget(kind, new_database(kind, tmp_path))


def everything(target: SourceTarget) -> Rows:
    reader = target.make()
    return [row for r in batches(reader, reader.initial()) for row in target.rows(reader, *r)]


@pytest.mark.parametrize("kind", DATABASES)
def test_what_the_sink_wrote_is_read_with_the_types_that_it_was_written_with(tmp_path: Path, kind: str) -> None:
    url, rows = new_database(kind, tmp_path), typed_rows(nested=False)
    sink = make(url, schema=rows.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
    found = SqlSourceTarget(url).make()
    # What a database has no type for: bytes, in MariaDB floats, in SQLite instants, long decimals, numbers of few bits.
    lost = {
        "sqlite": {"byte", "short", "int", "float", "big decimal", "instant"},
        "mariadb": {"byte", "float", "instant"},
    }
    for field in rows.schema:
        plain = pa.string() if field.type == pa.large_string() else field.type
        if field.name not in lost.get(kind, {"byte"}):
            assert found.arrow_schema.field(field.name).type == plain, field.name
    wanted = {
        **{f.name: f.dataType for f in found.schema},
        "instant": TimestampType(),
        "big decimal": DecimalType(38, 18),
    }
    schema = StructType()
    for name, data_type in wanted.items():
        schema = schema.add(name, data_type)
    assert everything(SqlSourceTarget(url, schema)) == [tuple(r.values()) for r in rows.to_pylist()]


def test_types_that_only_a_database_has(tmp_path: Path) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE DOMAIN part AS int CHECK (VALUE > 0)",
        "CREATE TABLE t (id part PRIMARY KEY, u uuid, j jsonb, m mood, c varchar(9), n numeric, d date, "
        "h numeric(5,-2))",
        "INSERT INTO t VALUES (1, '0dcd6e0a-98a2-4ba6-8c7d-6ad2a6b2a2f1', "
        "'{\"a\": [1]}', 'ok', 'x', 1.5, '2026-01-02', 1234567)",
    )  # fmt: skip
    (row,) = everything(SqlSourceTarget(url))
    assert [str(v) for v in row] == [
        "1", "0dcd6e0a-98a2-4ba6-8c7d-6ad2a6b2a2f1", '{"a": [1]}', "ok", "x", "1.500000000000000000", "2026-01-02",
        "1234600",
    ]  # fmt: skip
    run(url, "ALTER TABLE t ADD COLUMN a int[]", "UPDATE t SET a = '{1,NULL}'")
    with pytest.raises(ConfigError, match="column 'a' of table t has a type ARRAY, which Spark does not have"):
        SqlSourceTarget(url).make()
    schema = StructType().add("a", StringType()).add("id", LongType())
    assert everything(SqlSourceTarget(url, schema)) == [("{1,NULL}", 1)]


@pytest.mark.parametrize("number", ["1e30", "'NaN'"])
def test_a_numeric_that_no_decimal_holds_ends_the_query_and_is_read_as_a_string(tmp_path: Path, number: str) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, "CREATE TABLE t (id int PRIMARY KEY, n numeric)", f"INSERT INTO t VALUES (1, {number})")
    with pytest.raises(BadRecordError, match=r"column 'n': expected values that fit decimal128\(38, 18\)"):
        everything(SqlSourceTarget(url))
    (row,) = everything(SqlSourceTarget(url, StructType().add("n", StringType())))
    assert row == ("NaN" if number == "'NaN'" else f"1{'0' * 30}",)


def test_bits_are_flags_and_numbers(tmp_path: Path) -> None:
    url = new_database("mariadb", tmp_path)
    run(url, "CREATE TABLE t (id int PRIMARY KEY, a bit, b bit(10), c bit(64))",
        "INSERT INTO t VALUES (1, b'1', b'1010101010', ~0), (2, 0, 0, 0), (3, NULL, NULL, NULL)",
    )  # fmt: skip
    found = everything(SqlSourceTarget(url))
    assert found == [(1, True, 682, Decimal(2**64 - 1)), (2, False, 0, Decimal(0)), (3, None, None, None)]
    as_text = StructType().add("b", StringType())
    assert everything(SqlSourceTarget(url, as_text)) == [("682",), ("0",), (None,)]


@pytest.fixture
def two_sessions(tmp_path: Path) -> Iterator[tuple[str, sa.Connection, sa.Connection]]:
    url = new_database("postgresql", tmp_path)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as one, engine.connect() as two:
        yield url, one, two


def test_a_row_that_is_committed_behind_one_with_a_higher_number_is_not_lost(
    two_sessions: tuple[str, sa.Connection, sa.Connection],
) -> None:
    url, late, early = two_sessions
    run(url, COUNTED["postgresql"])
    late.execute(sa.text("INSERT INTO t (v) VALUES ('late')"))
    early.execute(sa.text("INSERT INTO t (v) VALUES ('early')"))
    early.commit()
    target = SqlSourceTarget(url)
    reader = target.make()
    start = reader.initial()
    assert reader.latest(start, False) == start, "a transaction with a lower number is open"
    early.execute(sa.text("INSERT INTO t (v) VALUES ('newer, and open')"))
    late.commit()
    end = reader.latest(start, False)
    assert target.rows(reader, start, end) == [(1, "late"), (2, "early")]
    assert reader.latest(end, False) == end
    early.rollback()
    run(url, "INSERT INTO t (v) VALUES ('last')")
    assert target.rows(reader, end, reader.latest(end, False)) == [(4, "last")]


def test_a_number_that_was_taken_and_not_used_yet_is_waited_for(
    two_sessions: tuple[str, sa.Connection, sa.Connection],
) -> None:
    """The transaction has no id yet, and no row: it only asked the sequence. Who reads the table holds nobody up."""
    url, late, reads = two_sessions
    run(url, COUNTED["postgresql"])
    number = late.execute(sa.text("SELECT nextval('t_id_seq')")).scalar()
    reads.execute(sa.text("SELECT * FROM t"))
    run(url, "INSERT INTO t (v) VALUES ('early')")
    target = SqlSourceTarget(url)
    reader = target.make()
    start = reader.initial()
    assert reader.latest(start, False) == start
    late.execute(sa.text(f"INSERT INTO t VALUES ({number}, 'late')"))
    late.commit()
    assert target.rows(reader, start, reader.latest(start, False)) == [(1, "late"), (2, "early")]


def test_a_row_of_a_partition_is_waited_for(two_sessions: tuple[str, sa.Connection, sa.Connection]) -> None:
    url, late, _ = two_sessions
    run(
        url,
        "CREATE TABLE t (id bigserial, p int) PARTITION BY LIST (p)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
    )
    late.execute(sa.text("INSERT INTO t1 VALUES (nextval('t_id_seq'), 1)"))
    run(url, "INSERT INTO t (p) VALUES (1)")
    reader = SqlSourceTarget(url).make()
    assert reader.latest(reader.initial(), False) == reader.initial()
    late.commit()
    assert reader.latest(reader.initial(), False) == {"after": 2}


def test_a_time_is_that_of_the_transactions_begin(two_sessions: tuple[str, sa.Connection, sa.Connection]) -> None:
    """It has not touched the table when a later time is already seen."""
    url, late, early = two_sessions
    run(url, "CREATE TABLE t (at timestamptz NOT NULL DEFAULT now(), v text)")
    late.execute(sa.text("SELECT 1"))
    early.execute(sa.text("INSERT INTO t (v) VALUES ('early')"))
    early.commit()
    target = SqlSourceTarget(url, offsetColumn="at")
    reader = target.make()
    start = reader.initial()
    assert reader.latest(start, False) == start
    late.execute(sa.text("INSERT INTO t (v) VALUES ('late')"))
    late.commit()
    assert [v for _, v in target.rows(reader, start, reader.latest(start, False))] == ["late", "early"]


def test_a_value_is_settled_when_it_was_first_seen_some_time_ago() -> None:
    clock = [100.0]
    settling = Settling(5.0, lambda: clock[0])
    found = []
    for at, largest in ((100, 7), (103, 9), (104.9, 9), (105, 9), (107, 10), (108, 10), (112, 10)):
        clock[0] = at
        settling.look(largest, [])
        found.append(settling.settled)
    assert found == [None, None, None, 7, 7, 9, 10]


def test_a_value_waits_for_who_ran_when_it_was_seen_and_for_nobody_later() -> None:
    settling = Settling(0.0, lambda: 0.0)
    found = []
    for largest, running in ((7, ["1/1", "2/1"]), (8, ["1/1", "3/1"]), (9, ["3/1", "4/1"]), (9, ["4/1"]), (9, [])):
        settling.look(largest, running)
        found.append(settling.settled)
    assert found == [None, None, 7, 8, 9]


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_the_delay_waits_for_late_rows_where_the_database_does_not_tell(tmp_path: Path, kind: str) -> None:
    url = new_database(kind, tmp_path)
    run(url, COUNTED[kind], "INSERT INTO t VALUES (2, 'early')")
    target = SqlSourceTarget(url, settleDelay="1h")
    reader = target.make()
    reader._reader._settler._clock = lambda: clock[0]  # type: ignore[attr-defined]
    clock = [0.0]
    start = reader.initial()
    assert reader.latest(start, False) == start
    run(url, "INSERT INTO t VALUES (1, 'late'), (3, 'newer')")
    clock[0] = 3600.0
    assert target.rows(reader, start, reader.latest(start, False)) == [(1, "late"), (2, "early")]


@pytest.mark.parametrize("kind", DATABASES)
def test_the_newest_day_is_read_when_it_is_over_or_a_later_one_is_there(tmp_path: Path, kind: str) -> None:
    """Rows come to a day as long as it lasts: read before, the later ones would be lost."""
    url, today = new_database(kind, tmp_path), dt.datetime.now(dt.timezone.utc).date()
    days = {n: today + dt.timedelta(days=n) for n in (-9, 0, 1)}
    run(
        url, "CREATE TABLE t (day date NOT NULL, v bigint)", f"INSERT INTO t VALUES ('{days[-9]}', 1), ('{days[0]}', 2)"
    )
    target = SqlSourceTarget(url, offsetColumn="day")
    reader = target.make()
    over = reader.latest(reader.initial(), True)
    assert [v for _, v in target.rows(reader, reader.initial(), over)] == [1]
    run(url, f"INSERT INTO t VALUES ('{days[0]}', 3)")
    assert reader.latest(over, False) == over
    run(url, f"INSERT INTO t VALUES ('{days[1]}', 4)")
    assert sorted(v for _, v in target.rows(reader, over, reader.latest(over, False))) == [2, 3]


def test_a_day_is_over_when_no_clock_of_the_world_shows_it() -> None:
    noon = int(dt.datetime(2026, 1, 2, 12, tzinfo=dt.timezone.utc).timestamp() * 1000)
    for day in (dt.date(2026, 1, 1), "2026-01-01", "2026-01-01 00:00:00"):
        assert (is_over(day, noon - 1), is_over(day, noon)) == (False, True)
    assert not is_over("no day", noon)


def test_a_time_keeps_its_instant_where_pandas_on_spark_was_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells Arrow to pass over the zones of Python's times, and the server gives them in the zone of the session."""
    url = new_database("postgresql", tmp_path)
    run(url, TIMES.format("timestamptz"), "INSERT INTO t VALUES ('2026-07-01 12:00:00+00', 1)")
    monkeypatch.setenv("PYARROW_IGNORE_TIMEZONE", "1")
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    target = SqlSourceTarget(url, offsetColumn="at")
    reader = target.make()
    (time, _), *_ = target.rows(reader, reader.initial(), reader.latest(reader.initial(), True))
    assert time == dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 BC", "12000-01-01"])
def test_a_time_that_python_has_not_is_refused_with_a_way_out_that_works_and_is_not_shown(
    tmp_path: Path, value: str
) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, "CREATE TABLE t (id bigint NOT NULL, at timestamptz)", f"INSERT INTO t VALUES (1, '{value}')")
    with pytest.raises(BadRecordError, match=r"column at has a time .* as a string in \.schema") as refused:
        everything(SqlSourceTarget(url))
    assert value.split()[0] not in str(refused.value).replace("infinity, before", "")
    as_text = StructType().add("id", LongType()).add("at", StringType())
    assert everything(SqlSourceTarget(url, as_text))[0][1].startswith(value.split()[0])


def test_an_offset_at_infinity_is_refused_with_a_way_out_that_works(tmp_path: Path) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, "CREATE TABLE t (at timestamptz NOT NULL)", "INSERT INTO t VALUES ('infinity'), ('2026-01-01Z')")
    with pytest.raises(BadRecordError, match=r"'offsetColumn' names at, .* Read a view"):
        everything(SqlSourceTarget(url, offsetColumn="at"))
    run(url, "ALTER TABLE t RENAME TO all_rows", "CREATE VIEW t AS SELECT * FROM all_rows WHERE isfinite(at)")
    assert len(everything(SqlSourceTarget(url, offsetColumn="at"))) == 1


@pytest.mark.parametrize("kind", DATABASES)
def test_a_start_at_a_value(tmp_path: Path, kind: str) -> None:
    target = CountedTarget(kind, new_database(kind, tmp_path))
    target.options["startingOffset"] = "5"
    assert everything(target) == [(5, "v5"), (6, "v6"), (7000, "v7000")]
    times = TimesTarget(kind, new_database(kind, tmp_path / "..") if kind != "sqlite" else f"sqlite:///{tmp_path}/y.db")
    times.options["startingOffset"] = "2026-01-01 12:00:01.123456"
    assert [k for _, k in everything(times)] == [2, 3, 4, 5, 6, 7]


REFUSED = {
    "no column": ({"offsetColumn": "nope"}, "offsetColumn' names nope; the columns of table t are id, v"),
    "text": ({"offsetColumn": "v"}, "offsetColumn' names v, whose type is TEXT; it is a whole number"),
    "no table": ({"table": "nope"}, "table nope does not exist"),
    "start": ({"startingOffset": "monday"}, "startingOffset.*such as 42"),
    "nulls": ({"table": "n", "offsetColumn": "x"}, "x, which is null in rows of table n"),
    "url": ({"url": "not a url"}, "option 'url' is not a SQLAlchemy URL"),
    "option": ({"pollInterval": "1s"}, "no option 'pollinterval'; valid options: discoveryInterval"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_when_the_dataframe_is_built(tmp_path: Path, case: str) -> None:
    url, (options, said) = new_database("postgresql", tmp_path), REFUSED[case]
    run(url, COUNTED["postgresql"], "CREATE TABLE n (x int, v text)", "INSERT INTO n VALUES (NULL, 'a')")
    target = SqlSourceTarget(url)
    target.options |= options
    with pytest.raises(InvalidInputError, match=said) as refused:
        target.make()
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))


def said_without_password(work: Any, kind: type[CkptError]) -> str:
    with pytest.raises(kind) as failed:
        work()
    text = "".join(traceback.format_exception(failed.value))
    assert PASSWORD not in text
    assert "s3cret" not in text
    return str(failed.value)


def test_wrong_credentials_and_missing_permission_are_said_without_the_password(tmp_path: Path) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, COUNTED["postgresql"], "CREATE ROLE reader_of_nothing LOGIN PASSWORD 's3cret-too'")
    wrong = SqlSourceTarget(url, password="s3cret-and-wrong")
    assert "password authentication failed" in said_without_password(wrong.make, InvalidInputError)
    other = SqlSourceTarget(url, user="reader_of_nothing", password="s3cret-too")
    reader = other.make()
    assert "permission denied" in said_without_password(
        lambda: reader.latest(reader.initial(), True), InvalidInputError
    )
    run(url, "DROP ROLE reader_of_nothing")


def test_a_server_that_is_away_for_a_while_is_waited_for_with_a_line_in_the_log(caplog: Any) -> None:
    server = PostgresServer().start()
    try:
        url = server.new_database()
        run(url, COUNTED["postgresql"], "INSERT INTO t (v) VALUES ('a')")
        target = SqlSourceTarget(url)
        reader = target.make()
        start = reader.initial()
        for ask in (
            lambda: reader.latest(start, False),
            lambda: target.rows(reader, start, reader.latest(start, False)),
        ):
            server.kill()
            back = threading.Timer(0.5, server.restart)
            back.start()
            found = ask()
            back.join()
        assert found == [(1, "a")]
        assert "it is asked again for 30 s" in caplog.text
        assert PASSWORD not in caplog.text
    finally:
        server.stop()


def test_a_server_that_goes_down_ends_the_query_and_a_new_start_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ckpt.sources.sql.source._PATIENCE_S", 0.3)
    server = PostgresServer().start()
    try:
        url = server.new_database()
        run(url, COUNTED["postgresql"], "INSERT INTO t (v) VALUES ('a')")
        target = SqlSourceTarget(url)
        reader = target.make()
        end = reader.latest(reader.initial(), False)
        server.kill()
        assert "looking for new rows" in said_without_password(lambda: reader.latest(end, False), RetryableError)
        assert "planning a batch" in said_without_password(
            lambda: target.rows(reader, reader.initial(), end), CkptError
        )
        said_without_password(target.make, InvalidInputError)
        server.restart()
        run(url, "INSERT INTO t (v) VALUES ('b')")
        again = target.make()
        assert [v for _, v in target.rows(again, end, again.latest(end, False))] == ["b"]
    finally:
        server.stop()


def test_a_table_that_is_altered_while_it_is_read(tmp_path: Path) -> None:
    url = new_database("postgresql", tmp_path)
    run(url, COUNTED["postgresql"], "INSERT INTO t (v) VALUES ('a')")
    target = SqlSourceTarget(url)
    reader = target.make()
    start = reader.initial()
    end = reader.latest(start, False)
    run(url, "ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    assert target.rows(reader, start, end) == [(1, "a")]
    run(url, "ALTER TABLE t ALTER COLUMN v TYPE bytea USING v::bytea")
    with pytest.raises(InvalidInputError, match=r"column 'v'.*was the table altered"):
        target.rows(reader, start, end)
    run(url, "ALTER TABLE t DROP COLUMN v")
    with pytest.raises(InvalidInputError, match=r"column t\.v does not exist"):
        target.rows(reader, start, end)


def test_a_table_that_begins_its_numbers_anew_is_told_once(tmp_path: Path, caplog: Any) -> None:
    url = new_database("sqlite", tmp_path)
    run(url, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (7, 'c')")
    reader = SqlSourceTarget(url).make()
    end = reader.latest(reader.initial(), False)
    assert end == {"after": 7}
    run(url, "DELETE FROM t WHERE id > 1")  # tidied up: nothing came
    assert reader.latest(end, False) == end
    run(url, "DELETE FROM t")
    assert reader.latest(end, False) == end
    run(url, "INSERT INTO t VALUES (1, 'new')")
    assert reader.latest(end, False) == end
    assert not caplog.records
    for number in (2, 3):
        run(url, f"INSERT INTO t VALUES ({number}, 'new')")
        assert reader.latest(end, False) == end
    (told,) = [r.getMessage() for r in caplog.records]
    assert "was read up to id = 7, and has new rows up to 2, which are not read" in told


@pytest.mark.parametrize(("kind", "value"), [("BOOLEAN", "'false'"), ("BOOLEAN", "0.5"), ("DATETIME", "1767225600")])
def test_what_sqlite_keeps_in_a_column_of_another_type_is_refused_by_its_value(
    tmp_path: Path, kind: str, value: str
) -> None:
    url = new_database("sqlite", tmp_path)
    run(url, f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})", f"INSERT INTO t (v) VALUES (NULL), ({value})")
    with pytest.raises(InvalidInputError, match=rf"column 'v': expected .* {value.strip()}\); was the table altered"):
        everything(SqlSourceTarget(url))


def test_the_reader_writes_nothing(tmp_path: Path) -> None:
    for kind in ("sqlite", "postgresql"):
        reader = CountedTarget(kind, new_database(kind, tmp_path)).make()
        database = reader._source.database()  # type: ignore[attr-defined]
        with pytest.raises(sa.exc.DBAPIError), database.engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM t"))


def test_a_relative_file_is_the_same_for_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("sqlite:///x.db", COUNTED["sqlite"], "INSERT INTO t VALUES (1, 'a')")
    target = SqlSourceTarget("sqlite:///x.db")
    reader = target.make()
    end = reader.latest(reader.initial(), True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert target.rows(reader, reader.initial(), end) == [(1, "a")]


@pytest.mark.parametrize("kind", DATABASES)
def test_columns_of_any_name_are_read(tmp_path: Path, kind: str) -> None:
    names = ["100%", "%(k)s", "a`b", 'a"b', "a.b", "a", "[x]", ":k", "?", "\u00e9", "e\u0301", "id", "select", "a\\b"]
    names += ["ID"] if kind == "postgresql" else []
    schema = pa.schema([("at.`x", pa.int64()), *((n, pa.string()) for n in names)])
    url = new_database(kind, tmp_path)
    sink = make(url, schema=schema)
    written = pa.table([[1, 2], *([f"v {n}", None] for n in names)], schema=schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=schema), written))
    for chosen in (names, names[2:3], names[4:5], names[-1:]):
        spark = StructType().add("at.`x", LongType())
        for name in chosen:
            spark = spark.add(name, StringType())
        target = SqlSourceTarget(url, spark, offsetColumn="at.`x")
        reader = target.make()
        found = [tuple(r) for a, b in batches(reader, reader.initial()) for r in target.rows(reader, a, b)]
        assert found == [(1, *(f"v {n}" for n in chosen)), (2, *(None for _ in chosen))]
