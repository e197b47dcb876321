"""The first rows of each key where rows replace each other, against all rows kept and sorted."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import TOP
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.state.topn.updates import REST, TopNOfUpdates
from tests.how_many import some
from tests.state.topn_harness import OWN, Row, Tasks, fold, shown

COLUMNS = pa.schema([("k", pa.string()), ("p", pa.float64()), ("x", pa.int64()), ("note", pa.string())])
INPUT = COLUMNS.append(pa.field("op", pa.string()))
KEY = pa.schema([("k", pa.string())])


def _function(n: int, rank: str | None, removed_by: str | None = None) -> TopNOfUpdates:
    changes = Changes(COLUMNS, rank, "op")
    order = [OrderBy("x", True, False)]
    how = {"changes": changes, "plain_keys": ["k"], "merge_keys": {"p": "p"}, "removed_by": removed_by}
    return TopNOfUpdates(n, order, KEY, COLUMNS, **how)


class Model:
    """The rows that are there, in the order in which they first came."""

    def __init__(self, n: int, rank: str | None) -> None:
        self.n, self.rank, self.rows = n, rank, dict[Row, dict[str, Any]]()

    def add(self, rows: list[dict[str, Any]], removals: bool) -> None:
        for row in rows:
            identity = (row["k"], "NaN" if row["p"] != row["p"] else row["p"])
            op = row.pop("op")
            if removals and op in ("-U", "-D"):
                self.rows.pop(identity, None)
            else:
                self.rows[identity] = row  # a dict keeps the place of a key that is there

    def first(self) -> set[Row]:
        found = set()
        for key in {k for k, _ in self.rows}:
            mine = [row for (k, _), row in self.rows.items() if k == key]
            mine.sort(key=lambda row: (row["x"] is None, -(row["x"] or 0)))
            for i, row in enumerate(mine[: self.n]):
                found.add((*map(shown, row.values()), *([i + 1] if self.rank else [])))
        return found


def _some(rng: random.Random, identities: int, count: int) -> list[Row]:
    identity = [None, float("nan"), 0.0, -0.0, *map(float, range(1, identities))]
    return [
        (
            rng.choice("ab"),
            rng.choice(identity),
            rng.choice([None, 1, 2, 3, rng.randrange(100)]),
            rng.choice(["n", "m"]),
            rng.choice(["+I", "+U", "+U", "-U", "-D"]),
        )
        for _ in range(count)
    ]


def _table(rows: list[Row]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=INPUT)


@settings(max_examples=some(20), deadline=None)
@given(st.integers(0, 2**32))
def test_the_changes_make_the_first_rows_of_each_key_whatever_is_updated(seed: int) -> None:
    """Within a batch the last row of an identity counts; one that is removed and comes back in it keeps its place."""
    rng = random.Random(seed)
    n, rank, removals = rng.choice([1, 2, 3, 8]), rng.choice([None, "place"]), rng.random() < 0.6
    tasks = Tasks(_function(n, rank, "op" if removals else None), rng.choice([1, 2, 4]))
    model, table, identities = Model(n, rank), dict[Row, Row](), rng.choice([2, 8, 30])
    for _ in range(rng.randrange(1, 12)):
        rows = _some(rng, identities, rng.choice([1, 2, 6, 40]))
        last = {(row[0], "NaN" if row[1] != row[1] else row[1]): row for row in rows}
        fold(table, tasks.rows(_table(rows)), ["k", "place"] if rank else ["k", "p"])
        model.add([dict(zip(INPUT.names, row)) for row in last.values()], removals)
        assert set(table.values()) == model.first()
        if rng.random() < 0.3:
            tasks.rescale(rng.choice([1, 2, 4]))
    assert tasks.kept(TOP) + tasks.kept(REST) == len(model.rows)
    assert tasks.kept(TOP) == len(table)
    assert tasks.kept(OWN) == len({k for k, _ in model.rows})


def _changes(tasks: Tasks, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    full = [("a", float(p), x, "n", op) for p, x, op in rows]
    return [(c["op"], c["p"], c["x"], *([c["place"]] if "place" in c else [])) for c in tasks.rows(_table(full))]


def test_a_row_that_stays_in_front_is_updated_and_one_that_falls_back_makes_room() -> None:
    tasks = Tasks(_function(2, None, "op"))
    assert _changes(tasks, (1, 10, "+I"), (2, 20, "+I"), (3, 5, "+I")) == [("+I", 2, 20), ("+I", 1, 10)]
    assert _changes(tasks, (1, 11, "+U")) == [("-U", 1, 10), ("+U", 1, 11)]
    assert _changes(tasks, (1, 11, "+U"), (3, 6, "+U"), (9, 0, "-D")) == []
    assert _changes(tasks, (1, 1, "+U")) == [("-D", 1, 11), ("+I", 3, 6)]
    assert _changes(tasks, (2, 20, "-D")) == [("-D", 2, 20), ("+I", 1, 1)]
    assert _changes(tasks, (2, 0, "-U"), (2, 30, "+U")) == [("-D", 1, 1), ("+I", 2, 30)]
    assert _changes(tasks, (1, 1, "-D"), (2, 30, "-D"), (3, 6, "-D")) == [("-D", 2, 30), ("-D", 3, 6)]
    assert [tasks.kept(state) for state in (OWN, TOP, REST)] == [0, 0, 0]


def test_ranks_that_are_given_up_are_removed() -> None:
    tasks = Tasks(_function(3, "place", "op"))
    _changes(tasks, (1, 10, "+I"), (2, 20, "+I"), (3, 30, "+I"))
    assert _changes(tasks, (3, 30, "-D")) == [
        ("-U", 3, 30, 1), ("-U", 2, 20, 2), ("-D", 1, 10, 3), ("+U", 2, 20, 1), ("+U", 1, 10, 2)
    ]  # fmt: skip


def test_equal_rows_keep_the_place_of_their_first_arrival() -> None:
    tasks = Tasks(_function(2, None))
    assert [c[1] for c in _changes(tasks, (1, 7, "+I"), (2, 7, "+I"), (3, 7, "+I"))] == [1, 2]
    tasks.rescale(2)
    assert _changes(tasks, (3, 6, "+U"), (4, 7, "+I")) == []
    assert _changes(tasks, (3, 7, "+U"), (1, 7, "+U")) == []
    assert _changes(tasks, (1, 0, "+U")) == [("-D", 1, 7), ("+I", 3, 7)]


def test_the_rest_of_a_key_is_read_only_when_rows_fall_back() -> None:
    """What grows, as sums do, costs what it touches."""
    tasks = Tasks(_function(2, None))
    _changes(tasks, *((p, p, "+I") for p in range(1000)))
    tasks.rescale(1)
    scans = list[int]()
    rest = tasks.tasks[0][REST]
    plain = rest.scan

    def counted(hashes: Any, keys: Any) -> Any:
        found = plain(hashes, keys)
        scans.append(len(found[0]))
        return found

    rest.scan = counted  # type: ignore[method-assign]
    assert _changes(tasks, (5, 2000, "+U"), (7, 500, "+U")) == [("-D", 998, 998), ("+I", 5, 2000)]
    assert _changes(tasks, (999, 1500, "+U")) == [("-U", 999, 999), ("+U", 999, 1500)]
    assert scans == []
    assert _changes(tasks, (999, 3, "+U")) == [("-D", 999, 1500), ("+I", 998, 998)]
    assert scans == [998]


def test_a_value_that_is_no_change_ends_the_query() -> None:
    for value in ("insert", None):
        with pytest.raises(InvalidInputError, match=r"'op' \(changeColumn\).*expected one of \+I, -U, \+U, -D"):
            _changes(Tasks(_function(2, None, "op")), (1, 1, value))
