"""Rows that operators keep (joins, top-N, sessions, a processor's variables) when the query changes in the middle."""

from __future__ import annotations

import ast
import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from spark_ckpt import agg
from spark_ckpt.errors import TopologyError
from spark_ckpt.state.aggregates.sessions import SessionAggregate
from spark_ckpt.state.functions.distinct_rows import DistinctRows
from spark_ckpt.state.joins.function import MAY_MATCH, RIGHT, Output, StreamJoin
from spark_ckpt.state.joins.sides import Side
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import TOP, TopN
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.state.topn.updates import TopNOfUpdates
from tests.state.changing_harness import Changing
from tests.state.processors_harness import function as processor_function
from tests.state.processors_harness import struct
from tests.state.topn_harness import fold

KEY = pa.schema([("k", pa.string())])
LONG = pa.int64()


# --- top-N -----------------------------------------------------------------------------------------------------


def first_rows(n: int, updates: bool, x: pa.DataType = LONG, **more: pa.DataType) -> TopN:
    columns = pa.schema([("k", pa.string()), ("p", LONG), ("x", x), *more.items()])
    order = [OrderBy("x", True, False)]
    changes = Changes(columns, None, "op")
    if updates:
        return TopNOfUpdates(n, order, KEY, columns, changes=changes, plain_keys=["k"], merge_keys={"p": "p"})
    return TopN(n, order, KEY, columns, changes=changes, plain_keys=["k"])


def rows_of(function: TopN, rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=function.columns)


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_smaller_n_goes_on_from_the_first_rows_that_are_kept(updates: bool, seed: int) -> None:
    rng = random.Random(seed)
    many, few = rng.choice([(3, 1), (5, 3), (4, 4), (8, 2)])
    query, table = Changing(first_rows(many, updates)), dict[Any, Any]()
    given = [[(rng.choice("abc"), 10 * i + j, rng.randrange(50)) for j in range(rng.randrange(1, 9))] for i in range(6)]
    last = [[(k, 1000 + at, x) for at, (k, x) in enumerate([("a", 60), ("b", 61), ("c", 62)])]]
    for batch in given[:3]:
        fold(table, query.rows(rows_of(query.function, batch)), ["k", "p"])
    query.change(first_rows(few, updates))
    for batch in given[3:] + last:
        fold(table, query.rows(rows_of(query.function, batch)), ["k", "p"])
        query.merged()
    every = pd.DataFrame([row for batch in given + last for row in batch], columns=["k", "p", "x"])
    every = every.sort_values("x", ascending=False, kind="stable").groupby("k").head(few)
    assert set(table.values()) == {(r.k, r.p, r.x) for r in every.itertuples()}
    assert query.kept(TOP) == len(every)


@pytest.mark.parametrize("updates", [False, True])
def test_a_larger_n_begins_empty_where_the_query_says_so_as_other_rows_were_not_kept(updates: bool) -> None:
    query = Changing(first_rows(1, updates))
    query.rows(rows_of(query.function, [("a", 1, 5), ("a", 2, 7)]))
    more = first_rows(2, updates)
    with pytest.raises(
        TopologyError, match=r"made by the first 1 by .*, and the query makes it by the first 2"
    ) as refused:
        query.change(more)
    query.follow(more, refused.value, "begin_empty")
    query.merged()
    query.change(more)
    out = query.rows(rows_of(more, [("a", 3, 1), ("a", 4, 2)]))
    assert [(row["op"], row["p"]) for row in out] == [("+I", 4), ("+I", 3)]
    assert query.kept(TOP) == 2


@pytest.mark.parametrize("updates", [False, True])
def test_rows_that_are_kept_in_front_get_other_columns(updates: bool) -> None:
    query = Changing(first_rows(2, updates, pa.int32(), old=pa.string()))
    query.rows(rows_of(query.function, [("a", 1, 5, "-")]))
    now = first_rows(2, updates, LONG, new=pa.string())
    with pytest.raises(TopologyError, match=r"old .* goes and new .* comes") as refused:
        query.change(now)
    query.follow(now, refused.value, "rename")
    out = query.rows(rows_of(now, [("a", 2, 9, "+"), ("a", 3, 8, "+")]))
    assert ("-D", 1, 5, "-") in [(row["op"], row["p"], row["x"], row["new"]) for row in out]


# --- joins and de-duplication ----------------------------------------------------------------------------------


def join(how: str, left: pa.Schema, right: pa.Schema) -> StreamJoin:
    sides = tuple(
        Side(kept, tuple(f"_{n}" for n in kept.names), how in outer)
        for kept, outer in ((left, ("left", "full")), (right, ("right", "full")))
    )
    output = tuple(Output(pa.field(f"{s}_{f.name}", f.type), *([f.name] if s == "l" else [None, f.name]))
                   for s, side in (("l", left), ("r", right)) for f in side)  # fmt: skip
    return StreamJoin(how, KEY, sides, output, made_by=how)  # type: ignore[arg-type]


def arrive(function: StreamJoin, right: bool, *rows: tuple[Any, ...]) -> pa.Table:
    names = {f"_{f.name}": f.type for side in function.sides for f in side.columns}
    mine = [f"_{n}" for n in function.sides[right].columns.names]
    flags = [pa.array([right] * len(rows)), pa.array([True] * len(rows))]
    values = {n: [dict(zip(mine, row[1:], strict=True)).get(n) for row in rows] for n in names}
    columns = [pa.array(v, names[n]) for n, v in values.items()]
    return pa.table([pa.array([row[0] for row in rows]), *flags, *columns], ["k", RIGHT, MAY_MATCH, *names])


def test_rows_that_wait_for_a_join_have_the_columns_that_the_query_asks_for_now() -> None:
    ids = pa.schema([("id", pa.int32()), ("gone", LONG)])
    query = Changing(join("inner", ids, pa.schema([("n", LONG)])))
    query.rows(arrive(query.function, False, ("a", 1, 0), ("b", 2, 0)))
    now = join("inner", pa.schema([("note", pa.string()), ("id", LONG)]), pa.schema([("n", LONG)]))
    query.change(now)
    query.merged()
    assert query.rows(arrive(now, True, ("a", 7), ("b", 8))) == [
        {"l_note": None, "l_id": 1, "r_n": 7},
        {"l_note": None, "l_id": 2, "r_n": 8},
    ]
    renamed = join("inner", pa.schema([("note", pa.string()), ("number", LONG)]), pa.schema([("n", LONG)]))
    with pytest.raises(TopologyError, match=r"'u.left': id .* goes and number .* comes") as refused:
        query.change(renamed)
    query.follow(renamed, refused.value, "rename")
    assert [row["l_number"] for row in query.rows(arrive(renamed, True, ("b", 9)))] == [2]
    outer = join("left", pa.schema([("note", pa.string()), ("number", LONG)]), pa.schema([("n", LONG)]))
    with pytest.raises(TopologyError, match="made by inner") as refused:
        query.change(outer)
    query.follow(outer, refused.value, "begin_empty")
    assert query.rows(arrive(outer, True, ("b", 9))) == []


def test_keys_that_were_seen_are_found_under_another_name() -> None:
    def once(key: str) -> DistinctRows:
        return DistinctRows("dropDuplicates", pa.schema([(key, LONG)]), pa.schema([(key, LONG)]))

    query = Changing(once("id"))
    assert len(query.rows(pa.table({"id": [1, 2, 2]}))) == 2
    with pytest.raises(TopologyError, match="the key schema changed") as refused:
        query.change(once("number"))
    query.follow(once("number"), refused.value, "rename")
    query.merged()
    assert query.rows(pa.table({"number": [1, 2, 3]})) == [{"number": 3}]


# --- sessions --------------------------------------------------------------------------------------------------


def sessions(**aggregates: Any) -> SessionAggregate:
    made = SessionAggregate(KEY, pa.schema([("v", LONG)]), aggregates, start="s", end="e")
    return made.in_mode("complete")


def at(minute: int, v: int, k: str = "a") -> tuple[Any, ...]:
    return k, minute * 60_000_000, (minute + 10) * 60_000_000, v


def session_rows(*rows: tuple[Any, ...]) -> pa.Table:
    time = pa.timestamp("us", "UTC")
    names = ["k", "s", "e", "v"]
    kinds = [pa.string(), time, time, LONG]
    return pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), kinds, strict=True)], names)


def open_sessions(query: Changing) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for found in (task["sessions"].everything() for task in query.tasks):
        names = [n for n in found.state.column_names if n != "e"]
        rows |= zip(found.keys["k"].to_pylist(), found.state.select(names).to_pylist(), strict=True)
    return rows


def test_aggregates_of_open_sessions_come_go_and_are_asked_about() -> None:
    query = Changing(sessions(n=agg.count(), total=agg.sum("v")))
    query.rows(session_rows(at(0, 1), at(5, 2), at(0, 9, "b")))
    query.change(sessions(most=agg.max("v"), n=agg.count()))
    query.rows(session_rows(at(7, 5)))
    query.merged()
    assert open_sessions(query) == {"a": {"most": 5, "n": 3}, "b": {"most": None, "n": 1}}
    other = sessions(most=agg.min("v"), n=agg.count())
    with pytest.raises(TopologyError, match=r"max\(v\) .* goes and min\(v\) .* comes") as refused:
        query.change(other)
    query.follow(other, refused.value, "begin_empty")
    query.rows(session_rows(at(8, 7)))
    assert open_sessions(query)["a"] == {"most": 7, "n": 4}


# --- variables of a processor ----------------------------------------------------------------------------------


class Processor:
    """Keeps a value, a list and a map under these names, each with the fields of ``kind``, and shows all of them."""

    def __init__(self, kind: dict[str, T.DataType], names: str = "vlm", key: str = "word") -> None:
        self.kind, self.names, self.key = kind, names, key

    def init(self, handle: Any) -> None:
        schema, by = struct(self.kind), struct({self.key: T.StringType()})
        make = {
            "v": lambda: handle.getValueState("value" if self.key == "word" else "number", schema),
            "l": lambda: handle.getListState("list", schema),
            "m": lambda: handle.getMapState("map", by, schema),
        }
        self.kept = {name: make[name]() for name in self.names}

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        new = tuple(9 if isinstance(k, T.LongType | T.IntegerType) else None for k in self.kind.values())
        seen: dict[str, Any] = {}
        if "v" in self.kept:
            seen["v"] = self.kept["v"].get()
            self.kept["v"].update(new)
        if "l" in self.kept:
            seen["l"] = list(self.kept["l"].get())
            self.kept["l"].appendValue(new)
        if "m" in self.kept:
            seen["m"] = [(k, v) for k, v in self.kept["m"].iterator()]
            self.kept["m"].updateValue((f"w{len(seen['m'])}",), new)
        yield pd.DataFrame({"out": [repr(seen)]})

    def close(self) -> None: ...


def variables(kind: dict[str, T.DataType], names: str = "vlm", key: str = "word") -> Any:
    return processor_function(
        Processor(kind, names, key), struct({"out": T.StringType()}), key=pa.schema([("k", LONG)])
    )


def shown(query: Changing) -> Any:
    return ast.literal_eval(query.rows(pa.table({"k": [1], "v": [0]}))[0]["out"])


def test_variables_of_a_processor_change_each_by_itself() -> None:
    query = Changing(variables({"n": T.IntegerType(), "old": T.StringType()}))
    assert shown(query) == {"v": None, "l": [], "m": []}
    query.change(variables({"more": T.DoubleType(), "n": T.LongType()}))
    query.merged()
    assert shown(query) == {"v": (None, 9), "l": [(None, 9)], "m": [(("w0",), (None, 9))]}
    fewer = variables({"n": T.LongType(), "more": T.DoubleType()}, "lm")
    with pytest.raises(TopologyError, match=r"holds state of \['u.value'\].*allowNonRestoredState"):
        query.change(fewer)
    query.change(fewer, allow=True)
    assert shown(query) == {"l": [(9, None)] * 2, "m": [(("w0",), (9, None)), (("w1",), (9, None))]}
    query.change(variables({"n": T.LongType(), "more": T.DoubleType()}))
    assert shown(query)["v"] is None


def test_a_variable_or_the_keys_of_a_map_under_another_name_are_a_question() -> None:
    kind: dict[str, T.DataType] = {"n": T.LongType()}
    for which, value in (("moved", (9,)), ("begin_empty", None)):
        query = Changing(variables(kind, "v"))
        shown(query)
        renamed = variables(kind, "v", "other")
        with pytest.raises(TopologyError, match=r"'u.value' goes and 'u.number' comes") as refused:
            query.change(renamed)
        query.follow(renamed, refused.value, which)
        query.merged()
        query.change(renamed)
        assert shown(query) == {"v": value}
