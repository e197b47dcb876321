"""Every value that a query can hold comes out of a database as it went in: all types at once, in each database."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.how_many import some
from tests.sinks.sql_harness import DATABASES, make, new_database, run
from tests.sinks.test_sink_conformance import SqlTarget

UTC = dt.timezone.utc
_FIRST, _LAST = dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)

_TEXTS = ["", " ", "a ", "\\", "\\.", "\\N", "\\x00", "'", '"', ",", "\n", "\r\n", "\t", "NULL", "%s", "%", ":a", "$1"]
_TEXTS += ["\ufeff", "\u2028", "漢字", "🦆", "a\u0308", "\x01", "\x7f", "x" * 300]
_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], list[Any]]] = {
    "bool": (pa.bool_(), st.booleans(), [True, False]),
    "byte": (pa.int8(), st.integers(-128, 127), [-128, 127]),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "float": (
        pa.float32(),
        st.floats(width=32),
        [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, 3.4028234663852886e38, 16777217.0],
    ),
    "double": (
        pa.float64(),
        st.floats(),
        [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3],
    ),
    "decimal": (
        pa.decimal128(9, 2),
        st.decimals(-9_999_999, 9_999_999, places=2),
        [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999.99")],
    ),
    "digits": (
        pa.decimal128(38, 18),
        st.decimals(-(10**19), 10**19, places=18),
        [Decimal("1E-18"), Decimal("-1E-18"), Decimal("99999999999999999999.999999999999999999")],
    ),
    "small": (
        pa.decimal128(38, 30),
        st.decimals("-1E-6", "1E-6", places=30),
        [Decimal("1.23456789012345678901234E-7"), Decimal("0E-30"), Decimal("99999999.000000000000000000000000000001")],
    ),
    "text": (pa.string(), st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20), _TEXTS),
    "bytes": (pa.binary(), st.binary(max_size=20), [b"", b"\x00", b"\\x00", b"\xff\xfe", bytes(range(256))]),
    "date": (pa.date32(), st.dates(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)]),
    "instant": (
        pa.timestamp("us", "UTC"),
        st.datetimes(_FIRST, _LAST, timezones=st.just(UTC)),
        [t.replace(tzinfo=UTC) for t in (_FIRST, _LAST, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999))],
    ),
    "local": (pa.timestamp("us"), st.datetimes(), [dt.datetime.min, dt.datetime.max, dt.datetime(2024, 3, 10, 2, 30)]),
}
SCHEMA = pa.schema([pa.field("id", pa.int64()), *[pa.field(name, kind) for name, (kind, _, _) in _TYPES.items()]])
NASTY = {name: [None, *values] for name, (_, _, values) in _TYPES.items()}

Values = dict[str, list[Any]]


@st.composite
def values(draw: st.DrawFn) -> Values:
    return {n: draw(st.lists(st.none() | drawn, min_size=1, max_size=8)) for n, (_, drawn, _) in _TYPES.items()}


def test_long_decimals_are_texts_of_all_their_digits_in_sqlite(tmp_path: Path) -> None:
    url, kind = new_database("sqlite", tmp_path), pa.decimal128(38, 18)
    rows = pa.table({"id": pa.array([Decimal(n) for n in ("0E-18", "-1E-18", "1E-7", "12.5")], kind)})
    sink = make(url, schema=rows.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
    found = [text for (text,) in run(url, "SELECT id FROM t")]
    assert found == ["0.000000000000000000", "-0.000000000000000001", "0.000000100000000000", "12.500000000000000000"]


_DECLARED = ["TEXT", "VARCHAR(40)", "BLOB", "JSON", "JSONB", "ANY", "STRING", "UUID", "NUMERIC", "DECIMAL(38,2)",
             "DECIMAL(15,2)", "REAL", "INTEGER", "DATE", "POINT"]  # fmt: skip


@pytest.mark.parametrize("declared", _DECLARED)
def test_a_column_of_sqlite_keeps_a_value_or_is_refused_and_never_changes_it(declared: str, tmp_path: Path) -> None:
    """SQLite makes a number of 007 where a column is declared JSON, and drops digits of a DECIMAL(38,2)."""
    long = Decimal("123456789012345678.91")
    texts = ["007", "1.10", "1e5", "0x1", "12345678901234567890", '{"a": 1.0}', "abc", ""]
    for kind, values in (
        (pa.string(), texts),
        (pa.decimal128(20, 2), [long]),
        (pa.decimal128(15, 2), [Decimal("1.10")]),
    ):
        url = f"sqlite:///{tmp_path}/{kind}.db"
        run(url, f"CREATE TABLE t (id {declared})")
        schema = pa.schema([pa.field("id", kind)])
        try:
            sink = make(url, schema=schema)
        except InvalidInputError:
            continue
        rows = pa.table([values], schema=schema)
        sink.commit(permit(1), stage_table(sink, context(1, 1, schema=schema), rows))
        assert [type(values[0])(str(v)) for (v,) in run(url, "SELECT id FROM t")] == values


def test_the_texts_and_numbers_that_a_column_of_sqlite_would_change_are_named_with_a_way_out(tmp_path: Path) -> None:
    for n, (declared, kind, said) in enumerate(
        [
            ("JSON", pa.string(), "column 'id' is JSON, in which SQLite makes numbers of texts"),
            ("DECIMAL(20,2)", pa.decimal128(20, 2), r"SQLite keeps 15 digits of a number.*cast to decimal\(15,2\)"),
        ]
    ):
        url = f"sqlite:///{tmp_path}/{n}.db"
        run(url, f"CREATE TABLE t (id {declared})")
        with pytest.raises(InvalidInputError, match=said):
            make(url, schema=pa.schema([pa.field("id", kind)]))


def test_long_rows_side_by_side_go_into_mariadb_and_one_that_no_packet_holds_is_refused_in_plain_words(
    tmp_path: Path,
) -> None:
    """A server takes 16 MB in a statement, and hangs up on more without a word. Short rows ahead of long ones must not
    make a statement of many long ones."""
    url, kind = new_database("mariadb", tmp_path), pa.schema([pa.field("id", pa.int64()), pa.field("b", pa.binary())])
    sink = make(url, schema=kind)
    sizes = [1] * 8_000 + [1 << 20] * 12
    rows = pa.table([range(len(sizes)), [b"\xff" * n for n in sizes]], schema=kind)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=kind), rows))
    assert run(url, "SELECT count(*), sum(length(b)) FROM t") == [(len(sizes), sum(sizes))]
    too_long = pa.table([[1], [b"x" * (9 << 20)]], schema=kind)
    with pytest.raises(
        InvalidInputError, match=r"18,874,\d+ bytes, and the server takes 16,777,216 \(max_allowed_pack"
    ):
        stage_table(sink, context(2, 2, schema=kind), too_long)


@pytest.mark.parametrize("database", DATABASES)
def test_a_time_without_a_zone_is_one_of_utc_whatever_zone_the_server_has(database: str, tmp_path: Path) -> None:
    """02:30 of the night in which New York's clocks go forward is no time there, and one in UTC."""
    url = new_database(database, tmp_path)
    if database == "postgresql":
        run(url, f"ALTER DATABASE {sa.make_url(url).database} SET timezone = 'America/New_York'")
    run(url, f"CREATE TABLE t (id {'timestamptz' if database == 'postgresql' else 'timestamp'})")
    local = dt.datetime(2026, 3, 8, 2, 30)
    schema = pa.schema([pa.field("id", pa.timestamp("us"))])
    sink = make(url, schema=schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=schema), pa.table([[local]], schema=schema)))
    seconds = {"sqlite": "unixepoch(id)", "mariadb": "unix_timestamp(id)", "postgresql": "extract(epoch FROM id)"}
    ((found,),) = run(url, f"SELECT {seconds[database]} FROM t")
    assert float(found) == local.replace(tzinfo=UTC).timestamp()


class Written:
    """One table of one database, which grows by a commit at a time."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.sink = kind, make(url, schema=SCHEMA)
        self._target = SqlTarget("sql", {"url": url, "table": "t"})
        self._checkpoints, self._rows = itertools.count(1), 0

    def and_read(self, rows: pa.Table) -> pa.Table:
        """What the database has of ``rows``, in their order, once they are committed."""
        k, first = next(self._checkpoints), self._rows
        self._rows += rows.num_rows
        numbered = rows.set_column(0, SCHEMA.field("id"), pa.array(range(first, self._rows), pa.int64()))
        self.sink.commit(permit(k), stage_table(self.sink, context(k, k, schema=SCHEMA), numbered))
        return self._target.read(SCHEMA).slice(first)


@pytest.fixture(scope="module", params=DATABASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(request.param, new_database(request.param, tmp_path_factory.mktemp("values")))


@settings(
    max_examples=some(4), phases=[Phase.explicit, Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck)
)
@example(drawn=NASTY)
@given(drawn=values())
def test_every_value_comes_out_of_a_database_as_it_went_in(written: Written, drawn: Values) -> None:
    rows = table_of(drawn, written.kind)
    found = written.and_read(rows)
    for name in _TYPES:
        assert texts(found[name], "postgresql") == texts(rows[name], written.kind), name


def table_of(drawn: Values, kind: str) -> pa.Table:
    """As many rows as the longest list has values; ``id`` is given when they are written."""
    rows = max(map(len, drawn.values()))
    columns = [list(itertools.islice(itertools.cycle(column), rows)) for column in drawn.values()]
    if kind == "mariadb":
        # Refused there, which has a test of its own.
        columns = [[None if v in (math.inf, -math.inf) else v for v in column] for column in columns]
    return pa.table([[0] * rows, *columns], schema=SCHEMA)


def texts(column: pa.ChunkedArray, kind: str) -> list[str]:
    """The values as a database of ``kind`` keeps them. ``repr`` tells -0.0 from 0.0 and takes all NaNs for one."""
    return [repr(_kept(value, kind)) for value in column.to_pylist()]


def _kept(value: Any, kind: str) -> Any:
    if not isinstance(value, float) or kind == "postgresql":
        return value
    return None if math.isnan(value) else value + 0.0  # no NaN there, and no zero with a sign
