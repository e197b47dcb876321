"""Values of any layout of Arrow's come to be in one, wherever rows of other makers come in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.arrow_layouts import ordinary, ordinary_rows, ordinary_type
from spark_ckpt.arrow_types import exact_cast, plain_type
from spark_ckpt.runtime.sink.writer import sink_rows
from spark_ckpt.state.ipc import conform
from tests.arrow_layouts import LAYOUTS, indexed, runs, table
from tests.how_many import some

_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, st.text(max_size=20)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.int32(), st.integers(-5, 5)),
    (pa.timestamp("ms", "UTC"), st.integers(0, 10**12)),
]


def _arrays(rows: int, depth: int = 0) -> st.SearchStrategy[pa.Array]:
    leaves = st.one_of([_of(kind, values, rows) for kind, values in _LEAVES])
    if depth == 2:
        return leaves
    return st.one_of(leaves, _nested(rows, depth), _encoded(rows, depth))


def _of(kind: pa.DataType, values: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[pa.Array]:
    return st.lists(st.none() | values, min_size=rows, max_size=rows).map(lambda found: pa.array(found, kind))


@st.composite
def _encoded(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    if draw(st.booleans()):
        values = draw(_arrays(3, depth + 1))
        places = st.lists(st.none() | st.integers(0, 2), min_size=rows, max_size=rows)
        return pa.DictionaryArray.from_arrays(pa.array(draw(places), pa.int16()), values)
    ends = sorted({rows, *draw(st.lists(st.integers(1, rows), max_size=3))})
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), draw(_arrays(len(ends), depth + 1)))


@st.composite
def _nested(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    gone = pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    kind = draw(st.sampled_from(["struct", "list", "large list", "list view", "large list view", "sized"]))
    if kind == "struct":
        parts = [draw(_arrays(rows, depth + 1)) for _ in range(2)]
        return pa.StructArray.from_arrays(parts, names=["a", "a.b"], mask=gone)
    if kind == "sized":
        return pa.FixedSizeListArray.from_arrays(draw(_arrays(2 * rows, depth + 1)), 2)
    lengths = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    values = draw(_arrays(3 + sum(lengths), depth + 1))
    offsets = [3 + sum(lengths[:n]) for n in range(rows + 1)]  # not from the beginning on
    if "view" not in kind:
        make, whole = (pa.LargeListArray, pa.int64()) if "large" in kind else (pa.ListArray, pa.int32())
        return make.from_arrays(pa.array(offsets, whole), values, mask=gone)
    make, whole = (pa.LargeListViewArray, pa.int64()) if "large" in kind else (pa.ListViewArray, pa.int32())
    backwards = [offsets[-1] - offsets[n + 1] for n in range(rows)]  # views may lie in any order
    return make.from_arrays(pa.array(backwards, whole), pa.array(lengths, whole), values, mask=gone)


@settings(max_examples=some(30), deadline=None)
@given(values=_arrays(5), start=st.integers(0, 5), count=st.integers(0, 5))
def test_values_of_any_layout_are_the_same_in_the_ordinary_one(values: pa.Array, start: int, count: int) -> None:
    part = values.slice(start, count)
    found = ordinary(part)
    found.validate(full=True)
    assert found.type == ordinary_type(values.type)
    assert ordinary_type(found.type) == found.type
    assert found.to_pylist() == part.to_pylist()
    assert ordinary(found) is found
    picked = found.take(pa.array(range(len(found)), pa.int64())[::-1])
    assert picked.to_pylist() == part.to_pylist()[::-1]
    chunks = ordinary(pa.chunked_array([part, values]))
    assert chunks.to_pylist() == part.to_pylist() + values.to_pylist()


@settings(max_examples=some(15), deadline=None)
@given(values=_arrays(5))
def test_values_of_any_layout_fit_the_plain_type(values: pa.Array) -> None:
    plain = plain_type(values.type)
    assert plain_type(plain) == plain
    assert exact_cast(values, plain).to_pylist() == values.to_pylist()
    assert conform(pa.table({"v": values}), pa.schema([("v", plain)]))["v"].to_pylist() == values.to_pylist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_a_layout_are_the_ordinary_rows(name: str) -> None:
    expected, batch = table(name, ordinary=True), table(name).to_batches()[0]
    assert ordinary_rows(table(name)).equals(expected)
    assert ordinary_rows(batch).equals(expected.to_batches()[0])
    assert ordinary_rows(expected) is expected
    assert sink_rows(batch, expected.schema).equals(expected.to_batches()[0])


def test_runs_and_indices_of_each_other_are_undone() -> None:
    values = pa.array(["a", None, "b"], pa.string_view())
    assert ordinary(runs(indexed(values))).to_pylist() == ["a", None, "b"]
