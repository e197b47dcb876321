"""What an appended file's entry in a Delta log says of its columns, as Spark's Delta does, and what readers find."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta._stats import first_leaves, leaves
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.sinks.delta_stats import FILE, PROPERTIES, SCHEMA, logged, rows

SPARKS = json.loads(FILE.read_text(), parse_float=Decimal)
OURS_ALONE = ("b",)
"""Of booleans Spark has no bounds; delta-rs has, and finds nothing by a column without."""


def appended(path: Path, table: pa.Table, properties: dict[str, str] | None = None, **options: str) -> DeltaTable:
    if properties:
        DeltaTable.create(path, schema=table.schema, configuration=properties)  # type: ignore[arg-type]
    sink = DeltaSink({"path": str(path), **options})
    sink.validate(table.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=table.schema), table))
    return DeltaTable(path)


def flat(tree: dict[str, Any], at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, value in tree.items():
        found |= flat(value, (*at, name)) if isinstance(value, dict) else {(*at, name): value}
    return found


@pytest.mark.parametrize("case", PROPERTIES)
def test_statistics_are_those_that_spark_keeps_of_the_columns_that_the_table_names(tmp_path: Path, case: str) -> None:
    appended(tmp_path / "t", rows(), PROPERTIES[case])
    ours, theirs = logged(tmp_path / "t"), SPARKS[case]
    assert ours["numRecords"] == theirs["numRecords"]
    assert flat(ours["nullCount"]) == flat(theirs.get("nullCount", {}))
    for name in ("minValues", "maxValues"):
        expected = flat(theirs.get(name, {}))
        found = {path: value for path, value in flat(ours[name]).items() if path != OURS_ALONE}
        assert found.keys() == expected.keys()
        for path, value in expected.items():
            assert _same(found[path], value, path[0] in ("ts", "tn")), path


def _same(ours: Any, theirs: Any, is_time: bool) -> bool:
    """Times of Spark's have milliseconds alone; recorded decimals are texts."""
    if is_time:
        return bool(ours.startswith(theirs.rstrip("Z")))
    return bool(ours == (Decimal(theirs) if isinstance(ours, Decimal) else theirs))


def test_columns_behind_the_first_32_are_told_of_where_the_table_asks(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(40)]
    table = pa.table({name: pa.array([n, None, n + 1.5]) for n, name in enumerate(names)})
    appended(tmp_path / "plain", table)
    assert set(logged(tmp_path / "plain")["nullCount"]) == {*names[:32]}
    appended(tmp_path / "all", table, {"delta.dataSkippingNumIndexedCols": "-1"})
    found = logged(tmp_path / "all")
    assert set(found["nullCount"]) == set(found["minValues"]) == {*names}
    appended(tmp_path / "named", table, {"delta.dataSkippingStatsColumns": "c39,c0"})
    assert logged(tmp_path / "named")["maxValues"] == {"c0": Decimal("1.5"), "c39": Decimal("40.5")}


def test_a_flat_column_and_a_field_of_the_same_name_are_not_one_for_any_reader(tmp_path: Path) -> None:
    table = pa.table(
        {
            "host.name": ["z", "y"],
            "host": [{"name": "a", "x": 1}, {"name": "b", "x": 2}],
            "a`b": [1, 2],
            "straße": [3, 4],
            "STRASSE": [5, 6],
        }
    )
    for order in (["host.name", "host"], ["host", "host.name"]):
        path = tmp_path / order[0]
        delta = appended(path, table.select([*order, "a`b", "straße", "STRASSE"]))
        found = logged(path)
        assert (found["minValues"]["host.name"], found["maxValues"]["host.name"]) == ("y", "z")
        assert found["minValues"]["host"] == {"name": "a", "x": 1}
        assert delta.to_pyarrow_table(filters=pc.field("host.name") == "z").num_rows == 1
        query = QueryBuilder().register("t", delta)
        for sql in ("\"host.name\" = 'z'", "host['name'] = 'b'", '"straße" = 4', '"STRASSE" = 6'):
            assert len(pa.table(query.execute(f"select * from t where {sql}").read_all())) == 1, sql


def test_every_row_is_found_by_every_value_of_it(tmp_path: Path) -> None:
    """With delta-rs, which skips files by what the log says of them."""
    path = tmp_path / "t"
    sink = DeltaSink({"path": str(path)})
    sink.validate(SCHEMA)
    for number in range(3):
        staged = stage_table(sink, context(number + 1, 1, schema=SCHEMA), rows().slice(number, 1))
        sink.commit(permit(number + 1), staged)
    table = DeltaTable(path)
    everything = table.to_pyarrow_table()
    assert sorted(everything["id"].to_pylist()) == [1, 2, 3]
    for name in ("id", "host.name", "d", "f", "e", "dc", "dl", "dt", "ts", "tn", "b", "by", "sh"):
        for number, value in enumerate(rows()[name]):
            given = pc.is_nan(pc.field(name)) if str(value) == "nan" else pc.field(name) == value
            found = table.to_pyarrow_table(filters=given if value.is_valid else pc.field(name).is_null())
            assert number + 1 in found["id"].to_pylist(), (name, value)


def test_nan_is_the_largest_number_in_every_row_group(tmp_path: Path) -> None:
    nan, count = float("nan"), 200_000
    table = pa.table(
        {
            "last": [1.5] * (count - 1) + [nan],
            "groups": [nan] * 140_000 + [-2.5] * (count - 140_000),
            "field": [{"c": nan}] * count,
            "none": [0.5, None] * (count // 2),
        }
    )
    appended(tmp_path / "t", table)
    found = logged(tmp_path / "t")
    assert found["minValues"] == {
        "last": Decimal("1.5"), "groups": Decimal("-2.5"), "field": {"c": "NaN"}, "none": Decimal("0.5"),
    }  # fmt: skip
    assert found["maxValues"] == {"last": "NaN", "groups": "NaN", "field": {"c": "NaN"}, "none": Decimal("0.5")}


LAST = chr(0x10FFFF)


@pytest.mark.parametrize(
    "text", ["", "a" * 32, "a" * 33, "a" * 5000, "é" * 40, f"a{LAST * 40}", LAST * 40, "\U00020000"]
)
def test_bounds_of_long_texts_are_short_and_true(tmp_path: Path, text: str) -> None:
    delta = appended(tmp_path / "t", pa.table({"v": [text]}))
    found = logged(tmp_path / "t")
    if len(text.encode()) <= 4096:  # what a footer has bounds of
        least, most = found["minValues"]["v"], found["maxValues"]["v"]
        assert least.encode() <= text.encode() <= most.encode()
        assert len(least) <= 32
        assert delta.to_pyarrow_table(filters=pc.field("v") == text).num_rows == 1


@pytest.mark.parametrize("count", [1, 200_000])
def test_bounds_are_those_of_all_row_groups(tmp_path: Path, count: int) -> None:
    table = pa.table({"n": range(count), "s": [{"x": None if n else 7} for n in range(count)]})
    appended(tmp_path / "t", table)
    found = logged(tmp_path / "t")
    assert (found["minValues"], found["maxValues"]) == ({"n": 0, "s": {"x": 7}}, {"n": count - 1, "s": {"x": 7}})
    assert found["nullCount"] == {"n": 0, "s": {"x": count - 1}}


def test_days_and_moments_that_python_has_none_of_have_no_bounds_and_are_read(tmp_path: Path) -> None:
    edges = {"dt": (pa.date32(), [-(10**6), 0, 10**7]), "ts": (pa.timestamp("us", "UTC"), [-(2**63), 0, 2**63 - 1])}
    for name, (kind, numbers) in edges.items():
        table = pa.table({"id": [0, 1, 2], name: pa.array(numbers, kind)})
        appended(tmp_path / name, table)
        assert list(logged(tmp_path / name)["minValues"]) == ["id"]
        assert DeltaTable(tmp_path / name).to_pyarrow_table().num_rows == 3


def test_a_column_that_becomes_not_null_is_looked_at_wherever_it_stands(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(40)]
    table = pa.table({name: pa.array([1, None]) for name in names})
    sink = DeltaSink({"path": str(tmp_path / "t")})
    sink.validate(table.schema)
    staged = stage_table(sink, context(1, 1, schema=table.schema), table)
    log = tmp_path / "t" / "_delta_log"
    actions = map(json.loads, (log / f"{0:020d}.json").read_text().splitlines())
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][39]["nullable"] = False
    changed = {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    (log / f"{1:020d}.json").write_text(json.dumps(changed) + "\n")
    with pytest.raises(InvalidInputError, match="column 'c39' must not be null"):
        sink.commit(permit(1), staged)


def test_leaves_are_counted_as_delta_counts_columns() -> None:
    paths = [".".join(leaf.path) for leaf in leaves(SCHEMA)]
    assert paths[:6] == ["id", "host.name", "host.name", "host.port", "host.deep.a", "host.deep.b"]
    assert len(first_leaves(pa.schema([(f"c{n}", pa.int64()) for n in range(40)]))) == 32
