"""Each kind of state, each kind of change: half of the rows before it and half behind it, compared with all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.jobs._state_tables import check_constants
from spark_ckpt.protocol.migration import Add
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.arrow_function import ArrowStateFunction
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from tests.state.changing_harness import Changing, lines_of

KEY = pa.schema([("k", pa.string())])
LONG = pa.int64()
ROWS = [("a", 1), ("b", 10), ("a", 2), ("c", 100), ("b", 20), ("a", 4), ("d", 1000), ("c", 200)]


def table(rows: Sequence[tuple[Any, ...]], key: pa.Schema = KEY, kind: pa.DataType = LONG) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(columns[0], key.field(0).type), pa.array(columns[1], kind)], [key.names[0], "v"])


def kept(
    value_schema: pa.Schema, fold: Callable[[Any, int], dict[str, Any]], key: pa.Schema = KEY
) -> ArrowStateFunction:
    """``applyInArrowWithState`` that keeps what ``fold`` makes of the state's row (None: there is none) and a value,
    and shows the state."""

    def func(rows: pa.Table, state: pa.Table, ctx: Any) -> tuple[pa.Table, pa.Table]:
        found = [row if row["_exists"] else None for row in state.to_pylist()]
        touched = dict.fromkeys(rows["_key"].to_pylist())
        for at, value in zip(rows["_key"].to_pylist(), rows["v"].to_pylist(), strict=True):
            found[at] = {**(found[at] or {}), **fold(found[at], value)}
        new = pa.Table.from_pylist(
            [{n: row.get(n) for n in value_schema.names} for row in map(dict, found)], value_schema
        )
        out = pa.table([state[key.names[0]], *new.columns], schema=output).take(pa.array(list(touched), pa.int64()))
        return out, new

    output = pa.schema([*key, *value_schema])
    inputs = pa.schema([*key, ("v", pa.int64())])
    return ArrowStateFunction(func, key, inputs, output, value_schema)


def total(name: str = "total", kind: pa.DataType = LONG, key: pa.Schema = KEY, **more: pa.DataType) -> StateFunction:
    """A sum under ``name``, and columns that nobody writes."""
    schema = pa.schema([(name, kind), *more.items()])
    make = Decimal if pa.types.is_decimal(kind) else str if kind == pa.string() else int
    zero = make(0)
    return kept(schema, lambda row, v: {name: make(int(row[name] if row and row[name] is not None else zero) + v)}, key)


def halves(before: StateFunction, now: StateFunction, *lines: str, key: pa.Schema = KEY) -> dict[Any, Any]:
    """The last row of each key, of a query that became another in the middle; checked again behind a merge."""
    query = Changing(before)
    query.rows(table(ROWS[:4], before.key_schema))
    for line in lines:
        query.write(line)
    query.change(now)
    query.merged()
    query.change(now)  # the lines stay: they do nothing any more
    out = query.rows(table(ROWS[4:], now.key_schema))
    return {row.pop(now.key_schema.names[0]): row for row in out}


def sums(name: str = "total") -> dict[str, Any]:
    """Of all rows, by pandas: of the keys that have rows in the second half."""
    frame = pd.DataFrame(ROWS, columns=["k", "v"])
    return {k: {name: v} for k, v in frame.groupby("k")["v"].sum().items()}


def test_a_column_that_comes_is_null_or_what_a_migration_says_and_the_others_go_on() -> None:
    now = total(note=pa.string())
    assert halves(total(), now) == {k: {**v, "note": None} for k, v in sums().items()}
    told = halves(total(), now, "ckpt.migrate('u').add('note', 'EUR')")
    assert told == {k: {**v, "note": None if k == "d" else "EUR"} for k, v in sums().items()}


def test_a_constant_that_its_column_cannot_have_is_refused_ahead_of_the_start() -> None:
    tables = {"u": pa.schema([("n", LONG)]), "u.values": pa.schema([("n", pa.decimal128(9, 2))]), "us": KEY}
    check_constants(tables, [Add("u", "n", 1), Add("u.values", "n", "1.25"), Add("u", "other", "x")])
    with pytest.raises(InvalidInputError, match=r"add\('n', ...\): expected a value of int64, found a str"):
        check_constants(tables, [Add("u", "n", "x")])


def test_a_column_that_goes_is_forgotten_and_comes_back_empty() -> None:
    query = Changing(total(note=LONG, other=pa.string()))
    query.rows(table(ROWS[:4]))
    query.change(total())
    query.rows(table(ROWS[4:]))
    query.change(kept(pa.schema([("note", LONG), ("total", LONG)]), lambda row, v: {"note": (row or {}).get("note")}))
    assert query.rows(table([("a", 0)])) == [{"k": "a", "note": None, "total": 7}]


WIDER = [
    (pa.int32(), LONG),
    (pa.decimal128(10, 2), pa.decimal128(20, 3)),
    (pa.int8(), pa.int16()),
]


@pytest.mark.parametrize(("before", "now"), WIDER)
def test_a_column_becomes_wider_by_itself(before: pa.DataType, now: pa.DataType) -> None:
    rows = Changing(total(kind=before))
    rows.rows(table(ROWS[:4]))
    rows.change(total(kind=now))
    assert {r["k"]: int(r["total"]) for r in rows.rows(table(ROWS[4:7]))} == {"a": 7, "b": 30, "d": 1000}


def test_a_date_becomes_a_time_of_day_without_zone_and_a_float_a_double() -> None:
    def keeps(kinds: dict[str, pa.DataType], new: dict[str, Any]) -> StateFunction:
        return kept(pa.schema([*kinds.items()]), lambda row, v: {} if row else new)

    query = Changing(keeps({"d": pa.date32(), "x": pa.float32()}, {"d": date(2024, 2, 29), "x": 0.1}))
    query.rows(table([("a", 1)]))
    query.change(keeps({"d": pa.timestamp("us"), "x": pa.float64()}, {}))
    (row,) = query.rows(table([("a", 1)]))
    assert (row["d"], row["x"]) == (datetime(2024, 2, 29), pytest.approx(0.1, abs=1e-7))
    assert row["x"] == pa.scalar(0.1, pa.float32()).as_py()


def test_structs_lists_and_maps_change_in_their_depth() -> None:
    point = pa.struct([("x", pa.int32()), ("gone", pa.string())])
    new = pa.struct([("z", pa.float64()), ("x", LONG)])

    def nested(of: pa.DataType, value: Any) -> StateFunction:
        kinds = {"one": of, "many": pa.list_(of), "named": pa.map_(pa.string(), of)}
        made = {"one": value, "many": [value, None], "named": [("p", value)]}
        return kept(pa.schema([*kinds.items()]), lambda row, v: {} if row else made)

    query = Changing(nested(point, {"x": 1, "gone": "-"}))
    query.rows(table([("a", 1), ("b", 1)]))
    query.change(nested(new, {"z": 0.5, "x": 2}))
    query.merged()
    old, fresh = {"z": None, "x": 1}, {"z": 0.5, "x": 2}
    found = {row["k"]: row for row in query.rows(table([("b", 1), ("c", 1), ("a", 1)]))}
    assert [found[k]["one"] for k in "abc"] == [old, old, fresh]
    assert [found[k]["many"] for k in "abc"] == [[old, None], [old, None], [fresh, None]]
    assert [found[k]["named"] for k in "abc"] == [[("p", old)], [("p", old)], [("p", fresh)]]


def test_another_name_is_a_question_and_both_lines_hold() -> None:
    for which, wanted in (
        ("rename", sums("sum")),
        ("begin_empty", {"b": {"sum": 20}, "a": {"sum": 4}, "d": {"sum": 1000}, "c": {"sum": 200}}),
    ):
        query = Changing(total())
        query.rows(table(ROWS[:4]))
        with pytest.raises(TopologyError, match=r"total .* goes and sum .* comes") as refused:
            query.change(total("sum"))
        query.follow(total("sum"), refused.value, which)
        assert {row.pop("k"): row for row in query.rows(table(ROWS[4:]))} == wanted


def test_another_name_of_a_field_is_a_question_and_both_lines_hold() -> None:
    def point(field: str) -> StateFunction:
        kinds = pa.schema([("p", pa.struct([(field, LONG), ("y", LONG)]))])
        return kept(kinds, lambda row, v: {} if row else {"p": {field: v, "y": 0}})

    for which, wanted in (("rename", 1), ("begin_empty", None)):
        query = Changing(point("x"))
        query.rows(table(ROWS[:1]))
        with pytest.raises(TopologyError, match=r"field 'p.x' goes and 'p.lon' comes") as refused:
            query.change(point("lon"))
        query.follow(point("lon"), refused.value, which)
        query.merged()
        query.change(point("lon"))
        assert query.rows(table([("a", 9)])) == [{"k": "a", "p": {"lon": wanted, "y": 0}}]


def test_a_field_of_a_struct_does_not_come_back_with_what_some_rows_still_have() -> None:
    def point(*fields: str) -> StateFunction:
        kinds = pa.schema([("p", pa.struct([(f, LONG) for f in fields])), ("n", LONG)])
        return kept(kinds, lambda row, v: {"p": dict.fromkeys(fields, v)})

    query = Changing(point("x", "y"))
    query.rows(table(ROWS[:1]))
    query.change(point("y"))
    with pytest.raises(TopologyError, match=r"field 'p.x' was in it before.*choose another name"):
        query.change(point("x", "y"))
    query.change(point("z", "y"))
    renamed = Changing(point("x", "y"))
    renamed.write("ckpt.migrate('u').rename('p.x', 'p.lon')")
    renamed.change(point("lon", "y"))
    with pytest.raises(TopologyError, match=r"field 'p.x' was in it before"):
        renamed.change(point("lon", "x", "y"))


def test_a_type_that_may_not_hold_the_values_is_cast_where_the_query_says_so() -> None:
    text = total(kind=pa.string())
    for which, wanted in (("cast", 7), ("begin_empty", 4)):
        query = Changing(text)
        query.rows(table(ROWS[:4]))
        with pytest.raises(TopologyError, match="'total' of its state was string, and is now int64") as refused:
            query.change(total())
        query.follow(total(), refused.value, which)
        query.merged()
        query.change(total())
        assert query.rows(table([("a", 4)])) == [{"k": "a", "total": wanted}]
    decimal = pa.decimal128(20, 2)
    assert halves(total(), total(kind=decimal), "ckpt.migrate('u').cast('total', 'decimal(20, 2)')") == sums()
    with pytest.raises(TopologyError, match="the type that the query has, bigint"):
        halves(text, total(), "ckpt.migrate('u').cast('total', 'int')")


def test_a_value_that_the_new_type_does_not_hold_fails_and_is_not_shown() -> None:
    query = Changing(kept(pa.schema([("n", pa.string())]), lambda row, v: {"n": "secret"}))
    query.rows(table(ROWS[:1]))
    query.write("ckpt.migrate('u').cast('n', 'bigint')")
    query.change(kept(pa.schema([("n", LONG)]), lambda row, v: {"n": v}))
    with pytest.raises(InvalidInputError, match=r"'n': expected values of int64, found .*try_cast") as failed:
        query.rows(table(ROWS[:1]))
    assert "secret" not in str(failed.value)


def test_behind_a_cast_that_failed_such_values_can_be_null() -> None:
    texts = iter(["1", "x", "3", "y"])
    query = Changing(kept(pa.schema([("n", pa.string())]), lambda row, v: {"n": next(texts)}))
    query.rows(table([(k, 0) for k in "abcd"]))
    number = kept(pa.schema([("n", LONG)]), lambda row, v: {})
    query.write("ckpt.migrate('u').cast('n', 'bigint')")
    query.change(number)
    query.write("ckpt.migrate('u').try_cast('n', 'bigint')")
    query.change(number)
    query.merged()
    query.change(number)
    found = {row["k"]: row["n"] for row in query.rows(table([(k, 0) for k in "abcd"]))}
    assert list(found.values()).count(None) == 2
    assert {n for n in found.values() if n is not None} == {1, 3}


def test_a_time_with_a_zone_is_no_cast_of_one_without() -> None:
    zoned, date_only = pa.schema([("t", pa.timestamp("us", "UTC"))]), pa.schema([("t", pa.date32())])
    query = Changing(kept(date_only, lambda row, v: {"t": date(2024, 1, 1)}))
    query.rows(table(ROWS[:1]))
    now = kept(zoned, lambda row, v: {})
    with pytest.raises(TopologyError, match="which may not hold its values") as refused:
        query.change(now)
    assert lines_of(refused.value) == ["ckpt.migrate('u').begin_empty('t')"]
    query.follow(now, refused.value, "begin_empty")
    assert query.rows(table(ROWS[:1])) == [{"k": "a", "t": None}]


def test_a_key_is_renamed_in_all_tables_and_refused_with_another_hash() -> None:
    client = pa.schema([("client", pa.string())])
    counted = {"n": agg.count(), "values": agg.count_distinct("v")}
    inputs = pa.schema([("v", LONG)])
    query = Changing(AggregateFunction(KEY, inputs, counted))
    query.rows(table(ROWS[:4]))
    renamed = AggregateFunction(client, inputs, counted)
    with pytest.raises(TopologyError, match="the key schema changed") as refused:
        query.change(renamed)
    query.follow(renamed, refused.value, "rename")
    query.merged()
    query.change(renamed)
    out = query.rows(table([("a", 1), ("a", 9)], client))
    assert out == [{"client": "a", "n": 4, "values": 3}]
    longs = Changing(total(key=pa.schema([("k", pa.int32())])))
    longs.rows(table([(1, 1)], longs.function.key_schema))
    wider = total(key=pa.schema([("k", LONG)]))
    with pytest.raises(TopologyError, match="cast 'k' back to int32 in front of groupBy") as refused:
        longs.change(wider)
    longs.follow(wider, refused.value, "begin_empty")
    assert longs.rows(table([(1, 5)], wider.key_schema)) == [{"k": 1, "total": 5}]


def test_a_decimal_key_becomes_wider_by_itself() -> None:
    def by(precision: int) -> pa.Schema:
        return pa.schema([("k", pa.decimal128(precision, 2))])

    query = Changing(total(key=by(5)))
    query.rows(table([(Decimal("1.25"), 1), (Decimal("-7.5"), 2)], by(5)))
    query.change(total(key=by(18)))
    query.merged()
    out = query.rows(table([(Decimal("1.25"), 10), (Decimal("-7.5"), 20)], by(18)))
    assert sorted(row["total"] for row in out) == [11, 22]
    with pytest.raises(TopologyError, match="the key schema changed"):
        query.change(total(key=by(20)))


def test_state_moves_to_another_uid_with_all_its_tables() -> None:
    inputs = pa.schema([("v", LONG)])
    counted = AggregateFunction(KEY, inputs, {"n": agg.count(), "values": agg.count_distinct("v")})
    query = Changing(counted, "aggregate-0")
    query.rows(table(ROWS[:4]))
    with pytest.raises(TopologyError, match="the checkpoint holds state of"):
        query.change(counted, "totals")
    query.write("ckpt.moved('aggregate-0', 'totals')")
    query.change(counted, "totals")
    query.merged()
    query.change(counted, "totals")
    assert query.rows(table([("a", 1), ("a", 9)])) == [{"k": "a", "n": 4, "values": 3}]


def test_an_aggregate_with_values_of_its_own_is_renamed_with_them() -> None:
    inputs = pa.schema([("v", LONG)])

    def counted(name: str) -> AggregateFunction:
        return AggregateFunction(KEY, inputs, {name: agg.count_distinct("v"), "n": agg.count()})

    query = Changing(counted("values"))
    query.rows(table(ROWS[:4]))
    query.change(counted("distinct"))
    query.merged()
    query.change(counted("distinct"))
    assert query.rows(table([("a", 1), ("a", 9)])) == [{"k": "a", "distinct": 3, "n": 4}]


def test_lines_of_messages_are_those_that_users_write() -> None:
    assert lines_of("write `ckpt.moved('a', 'b')` or `ckpt.migrate('u').begin_empty()`") == [
        "ckpt.moved('a', 'b')",
        "ckpt.migrate('u').begin_empty()",
    ]


def test_a_function_of_pandas_goes_on_with_other_fields() -> None:
    def function(fields: str) -> PandasStateFunction:
        def func(key: Any, frames: Any, state: Any) -> Any:
            before = dict(zip(fields, state.get, strict=True)) if state.exists else {}
            new = {f: sum(int(frame["v"].sum()) for frame in frames) + (before.get(f) or 0) for f in fields[:1]}
            state.update(tuple({**before, **new}.get(f) for f in fields))
            yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "all": [str(state.get)]})

        out = pa.schema([("k", pa.string()), ("n", LONG), ("all", pa.string())])
        kinds = pa.schema([(f, LONG) for f in fields])
        return PandasStateFunction(func, KEY, pa.schema([*KEY, ("v", LONG)]), out, kinds, timeout="NoTimeout")

    query = Changing(function("nx"))
    query.rows(table(ROWS[:4]))
    query.change(function("n"))
    query.change(function("yn"))
    query.merged()
    assert query.rows(table([("a", 5)])) == [{"k": "a", "n": 5, "all": "(5, 3)"}]
