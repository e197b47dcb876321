"""What a join with a static side makes of a batch with control rows in it: without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkFiles

from spark_ckpt.errors import RetryableError
from spark_ckpt.expressions.tree import Call, Input, Literal, Tree
from spark_ckpt.runtime import static_sides
from spark_ckpt.runtime.operations import EncloseMarked
from spark_ckpt.runtime.static_join import ANTI, INNER, LEFT, SEMI, JoinCarried, JoinColumns, JoinStatic
from spark_ckpt.runtime.static_sides import StaticFile, StaticSide, static_side
from spark_ckpt.state.joins import _pairs
from spark_ckpt.types import CTL, TAG

ROWS = pa.schema([("id", pa.int64()), ("k", pa.string()), (TAG, pa.int64()), (CTL, pa.binary())])
STATIC = pa.schema([("c0", pa.string()), ("c1", pa.int64())])
STREAM = [(0, "a", b""), (1, "b", None), (2, None, None), (3, "b", b"barrier"), (4, "c", None), (5, "a", None)]
"""The first and the fourth are control rows, whose keys would find something."""
WORDS = pa.table([["b", "a", None, "b", "z"], [10, 20, 30, 40, 50]], schema=STATIC)


def batch() -> pa.RecordBatch:
    ids, keys, control = zip(*STREAM, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array(keys), pa.array([1] * 6), pa.array(control)], schema=ROWS
    )


def columns(kind: str, condition: Tree | None = None) -> JoinColumns:
    both = (("value", 5),) if kind in (INNER, LEFT) else ()
    out = (("id", 0), *both, (TAG, 2), (CTL, 3))
    return JoinColumns(kind, (Input(1, pa.string()),), (Input(0, pa.string()),), condition, out, 4)


def side(keys: tuple[Tree, ...]) -> StaticSide:
    return static_side("words", keys, lambda: WORDS)


def shown(batches: Any) -> list[tuple[Any, ...]]:
    return [tuple(v for k, v in row.items() if k not in (TAG, CTL)) for b in batches for row in b.to_pylist()]


EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    INNER: [(0, None), (1, 10), (1, 40), (3, None), (5, 20)],
    LEFT: [(0, None), (1, 10), (1, 40), (2, None), (3, None), (4, None), (5, 20)],
    SEMI: [(0,), (1,), (3,), (5,)],
    ANTI: [(0,), (2,), (3,), (4,)],
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_control_rows_match_nothing_and_come_out_once_in_their_place(kind: str) -> None:
    assert shown(JoinStatic(columns(kind), side)(iter([batch()]))) == EXPECTED[kind]


@pytest.mark.parametrize("kind", EXPECTED)
def test_in_pieces_no_row_is_lost_or_doubled(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pairs, "PIECE", 1)
    found = shown(JoinStatic(columns(kind), side)(iter([batch(), batch().slice(0, 0), batch()])))
    assert sorted(found, key=str) == sorted(EXPECTED[kind] * 2, key=str)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (INNER, [(0, None), (1, 10), (3, None)]),
        (LEFT, [(0, None), (1, 10), (2, None), (3, None), (4, None), (5, None)]),
        (SEMI, [(0,), (1,), (3,)]),
        (ANTI, [(0,), (2,), (3,), (4,), (5,)]),
    ],
)
def test_a_condition_is_of_pairs_and_a_row_without_one_that_holds_is_unmatched(
    kind: str, expected: list[tuple[Any, ...]]
) -> None:
    small = Call("LessThan", (Input(5, pa.int64()), Literal(20, pa.int64())), pa.bool_())
    assert shown(JoinStatic(columns(kind, small), side)(iter([batch()]))) == expected


def carried(words: pa.Table) -> list[pa.RecordBatch]:
    """As Spark sends it: the static side along with the first binary row."""
    out = []
    for body, first in (b.columns for b in EncloseMarked()(iter([batch(), batch()]))):
        rows = pa.array([words.to_pylist() if first[0].as_py() else None], pa.list_(pa.struct(STATIC)))
        out.append(pa.RecordBatch.from_arrays([body, rows], ["body", "static"]))
    return out


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_task_gets_what_is_carried_once_and_the_next_batch_may_carry_another(kind: str) -> None:
    operation = JoinCarried(columns(kind), ROWS, STATIC)
    assert shown(operation(iter(carried(WORDS)))) == EXPECTED[kind] * 2
    none = WORDS.slice(0, 0)
    unmatched = {INNER: [0, 3], LEFT: range(6), SEMI: [0, 3], ANTI: range(6)}[kind]
    assert [row[0] for row in shown(operation(iter(carried(none))))] == [*unmatched, *unmatched]


def test_a_static_side_is_made_once_as_long_as_its_contents_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_sides, "_ready", type(static_sides._ready)())
    operation = JoinCarried(columns(INNER), ROWS, STATIC)
    for words in (WORDS, WORDS, WORDS.slice(1)):
        list(operation(iter(carried(words))))
    assert len(static_sides._ready) == 2
    for i in range(20):
        static_side(str(i), columns(INNER).static_keys, lambda: WORDS)
    assert len(static_sides._ready) == static_sides._KEPT


def test_a_file_of_a_static_side_is_read_and_a_missing_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(tmp_path / name))
    file, keys = StaticFile("words.arrow", "the digest of words"), (Input(0, pa.string()),)
    with pytest.raises(RetryableError, match="expected a static side"):
        file(keys)
    with pa.ipc.new_file(pa.OSFile(str(tmp_path / file.name), "w"), STATIC) as writer:
        writer.write_table(WORDS)
    assert [c.to_pylist() for c in file(keys).columns] == [c.to_pylist() for c in WORDS.columns]
