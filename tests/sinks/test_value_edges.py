"""The edges of every type, in every sink, as a value, a partition and a key: what is taken comes back as it was, and
what is refused is refused while it is staged, with the column named, and leaves a target that opens and goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from spark_ckpt.types import Committable
from tests.mariadb_server import shared_mariadb
from tests.postgres_server import shared_server
from tests.sinks.iceberg_harness import catalog_of, catalog_options

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
NAN, INFINITE = float("nan"), float("inf")
_9999, _10000 = 253_402_300_799_999_999, 253_402_300_800_000_000
MOMENTS = [0, -1, _9999, _10000, -62_135_596_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63)]
DAYS = [0, -1, 2_932_896, 2_932_897, -719_162, -719_163, -719_529, 11_248_738, 95_026_237, 2**31 - 1, -(2**31)]
EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "date": (pa.date32(), DAYS),
    "instant": (UTC, MOMENTS),
    "local": (LOCAL, MOMENTS),
    "long": (pa.int64(), [0, 2**63 - 1, -(2**63)]),
    "byte": (pa.int8(), [-128, 127]),
    "bool": (pa.bool_(), [True, False]),
    "double": (pa.float64(), [0.0, 1e300, 5e-324, 0.1, -INFINITE, INFINITE, NAN]),
    "digits": (pa.decimal128(38, 10), [Decimal("1E-10"), Decimal("-" + "9" * 28 + ".9999999999"), Decimal("0E-10")]),
    "text": (pa.string(), ["a", "", " ", "a ", "A", "a\0b", "\x01\x7f", "é", "e\u0301", "🦆", "%", "..", "x" * 70_000]),
    "bytes": (pa.binary(), [b"", b"\0", bytes(range(256))]),
}
PARTITIONS = ("date", "long", "bool", "digits", "text")
KEYS = ("date", "instant", "local", "long", "digits", "text", "double")


def values(kind: pa.DataType, given: list[Any]) -> pa.Array:
    """Days and moments are given as numbers: Python has no objects for the far ones."""
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    return pa.array(given, plain).cast(kind)


def numbers(column: Any) -> list[Any]:
    kind = column.type
    plain = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    return [repr(v) for v in column.cast(plain).to_pylist()]


class Place(ABC):
    """An empty target. ``role`` of column ``v``: "value", "partition" or "key"."""

    roles: tuple[str, ...] = ("value", "partition", "key")

    def __init__(self, folder: Path, role: str) -> None:
        self.folder, self.role = folder, role
        extra = {"partition": {"partitionBy": "v"}, "key": {"mergeKeys": "v"}, "value": {}}[role]
        self.sink = {**self.options(), **extra}

    @abstractmethod
    def options(self) -> dict[str, str]: ...

    @abstractmethod
    def found(self, kind: pa.DataType) -> dict[int, str]:
        """``k`` -> ``v``, by a reader that is not ours where there is one."""

    def kept(self, text: str) -> str:
        """What the target makes of a value by its documented rules."""
        return text

    def made(self, schema: pa.Schema) -> Any:
        options = dict(self.sink)
        sink = create_sink(options.pop("format"), options)
        sink.validate(schema)
        return sink


def by_k(table: pa.Table, kind: pa.DataType) -> dict[int, str]:
    held = table["v"]
    if pa.types.is_timestamp(kind):
        held = held.cast(kind)
    return dict(zip(table["k"].to_pylist(), numbers(held.cast(kind)), strict=True))


class Files(Place):
    roles = ("value", "partition")

    def options(self) -> dict[str, str]:
        return {"format": "files", "path": f"{self.folder}/o"}

    def found(self, kind: pa.DataType) -> dict[int, str]:
        files = [p for p in Path(f"{self.folder}/o").rglob("part-*.parquet") if ".staging" not in p.parts]
        if self.role == "value":
            return by_k(pa.concat_tables(pq.ParquetFile(p).read() for p in files), kind)
        # Spark reads the texts of such folders in tests/spark/test_texts_of_values.py.
        pairs = [(unquote(p.parent.name.removeprefix("v=")), pq.ParquetFile(p).read()["k"]) for p in files]
        return {k: text for text, ks in pairs for k in ks.to_pylist()}


class Delta(Place):
    def kept(self, text: str) -> str:
        return "None" if self.role == "partition" and text == "''" else text

    def options(self) -> dict[str, str]:
        return {"format": "delta", "path": f"{self.folder}/t"}

    def found(self, kind: pa.DataType) -> dict[int, str]:
        table = DeltaTable(f"{self.folder}/t")
        table.create_checkpoint()
        again = QueryBuilder().register("t", DeltaTable(f"{self.folder}/t"))
        return by_k(pa.table(again.execute("select k, v from t").read_all()), kind)


class Iceberg(Place):
    def options(self) -> dict[str, str]:
        self.catalog = catalog_options(self.folder)
        return {"format": "iceberg", "table": "db.t", **self.catalog}

    def found(self, kind: pa.DataType) -> dict[int, str]:
        return by_k(catalog_of(self.catalog).load_table("db.t").scan().to_arrow(), kind)


class Memory(Place):
    roles = ("value", "key")

    def options(self) -> dict[str, str]:
        return {"format": "memory", "path": f"{self.folder}/m"}

    def found(self, kind: pa.DataType) -> dict[int, str]:
        return by_k(memory.read(f"{self.folder}/m"), kind)


class Sql(Place):
    roles = ("value", "key")

    def options(self) -> dict[str, str]:
        self.url = self.new_database()
        return {"format": "sql", "url": self.url, "table": "t"}

    def new_database(self) -> str:
        return f"sqlite:///{self.folder}/x.db"

    def number(self, kind: pa.DataType) -> str:
        """The database's own number of a day or a moment."""
        if pa.types.is_date(kind):
            return "strftime('%s', v) / 86400"
        return "strftime('%s', substr(v, 1, 19)) * 1000000 + substr(v, 21)"

    def found(self, kind: pa.DataType) -> dict[int, str]:
        column = self.number(kind) if pa.types.is_temporal(kind) else "v"
        with sa.create_engine(self.url, poolclass=sa.pool.NullPool).connect() as connection:
            rows = connection.exec_driver_sql(f"SELECT k, {column} FROM t").all()
        return {k: self.shown(v, kind) for k, v in rows}

    def shown(self, value: Any, kind: pa.DataType) -> str:
        if pa.types.is_temporal(kind):
            return repr(round(value))
        if pa.types.is_decimal(kind):
            return repr(Decimal(value))
        return repr(bool(value)) if pa.types.is_boolean(kind) else repr(value)

    def kept(self, text: str) -> str:
        return "None" if text == "nan" else text


class Postgres(Sql):
    def new_database(self) -> str:
        return shared_server().new_database()

    def number(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            return "v - date '1970-01-01'"
        # In whole seconds: far from 1970 the whole of it has no microseconds.
        return "extract(epoch from date_trunc('second', v)) * 1000000 + mod(extract(microseconds from v), 1000000)"

    def kept(self, text: str) -> str:
        return text


class MariaDb(Sql):
    def new_database(self) -> str:
        return shared_mariadb().new_database()

    def number(self, kind: pa.DataType) -> str:
        if pa.types.is_date(kind):
            return "to_days(v) - to_days('1970-01-01')"
        return "timestampdiff(microsecond, '1970-01-01', v)"


PLACES: dict[str, type[Place]] = {
    "files": Files, "delta": Delta, "iceberg": Iceberg, "memory": Memory, "sqlite": Sql, "postgresql": Postgres,
    "mariadb": MariaDb,
}  # fmt: skip


_OFTEN_WRONG = ("date", "instant", "text")


def cases() -> Iterator[Any]:
    kinds = {"value": tuple(EDGES), "partition": PARTITIONS, "key": KEYS}
    for name, place in PLACES.items():
        for role in place.roles:
            for kind in kinds[role]:
                yield pytest.param(name, role, kind, marks=[] if kind in _OFTEN_WRONG else pytest.mark.soak)


@pytest.mark.parametrize(("name", "role", "kind_name"), list(cases()))
def test_edges_come_back_or_are_refused_while_staged(tmp_path: Path, name: str, role: str, kind_name: str) -> None:
    kind, given = EDGES[kind_name]
    place = PLACES[name](tmp_path, role)
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    sink = place.made(schema)
    taken: dict[int, str] = {}
    staged: list[Committable] = []
    for k, one in enumerate(given):
        row = pa.table([pa.array([k]), values(kind, [one])], schema=schema)
        try:
            staged += stage_table(sink, context(1, 1, k, schema=schema), row)
            taken[k] = place.kept(numbers(row["v"])[0])
        except InvalidInputError as refused:
            assert "v" in str(refused).split("'"), refused  # noqa: PT017
    assert taken
    sink.commit(permit(1), staged)
    if name == "files" and role == "partition":
        assert set(place.found(kind)) == set(taken)
    else:
        assert place.found(kind) == taken
    again = place.made(schema)
    row = pa.table([pa.array([1000]), values(kind, [given[0]])], schema=schema)
    again.commit(permit(2), stage_table(again, context(2, 2, schema=schema), row))
    assert 1000 in place.found(kind)
