"""The same values in each of Arrow's layouts."""

from __future__ import annotations

import pyarrow as pa

LONG = "longer than a view holds inline"
_TEXT = pa.array(["a", None, LONG, "a", ""])
_BYTES = pa.array([b"a", None, LONG.encode(), b"\0", b""])
_LISTS = pa.array([["a", None], None, [], [LONG], ["b"]], pa.list_(pa.string()))
_NUMBERS = pa.array([[1, None], None, [2, 3], [4, 5], [6, 7]], pa.list_(pa.int64()))


def runs(values: pa.Array) -> pa.Array:
    ends = pa.array(range(1, len(values) + 1), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


def indexed(values: pa.Array) -> pa.Array:
    there = [n for n, v in enumerate(values.to_pylist()) if v is not None]
    kept = pa.array([values.to_pylist()[n] for n in there], values.type)
    places = [there.index(n) if n in there else None for n in range(len(values))]
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), kept)


def _struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], names=["x"], mask=pa.array([False, False, False, True, False]))


LAYOUTS: dict[str, tuple[pa.Array, pa.Array]] = {
    "text": (_TEXT, _TEXT),
    "large text": (_TEXT, _TEXT.cast(pa.large_string())),
    "text view": (_TEXT, _TEXT.cast(pa.string_view())),
    "text index": (_TEXT, indexed(_TEXT)),
    "view index": (_TEXT, indexed(_TEXT.cast(pa.string_view()))),
    "text runs": (_TEXT, runs(_TEXT)),
    "view runs": (_TEXT, runs(_TEXT.cast(pa.string_view()))),
    "index runs": (_TEXT, runs(indexed(_TEXT))),
    "large bytes": (_BYTES, _BYTES.cast(pa.large_binary())),
    "byte view": (_BYTES, _BYTES.cast(pa.binary_view())),
    "large list": (_LISTS, _LISTS.cast(pa.large_list(pa.large_string()))),
    "list view": (_LISTS, pa.array(_LISTS.to_pylist(), pa.list_view(pa.string_view()))),
    "large list view": (_LISTS, pa.array(_LISTS.to_pylist(), pa.large_list_view(pa.string()))),
    "list of views": (_LISTS, _LISTS.cast(pa.list_(pa.string_view()))),
    "list of a size": (_NUMBERS, pa.array(_NUMBERS.to_pylist(), pa.list_(pa.int64(), 2))),
    "struct of views": (_struct(_TEXT), _struct(_TEXT.cast(pa.string_view()))),
    "struct of runs": (_struct(_TEXT), _struct(runs(_TEXT))),
    "map of views": (
        pa.array([[("k", "v")], None, [], [("k", None)], [("l", LONG)]], pa.map_(pa.string(), pa.string())),
        pa.array([[("k", "v")], None, [], [("k", None)], [("l", LONG)]], pa.map_(pa.string_view(), pa.string_view())),
    ),
}
"""Name -> the values as they are ordinarily, and in that layout."""

NOT_IN_PARQUET = ("view index", "text runs", "view runs", "index runs", "struct of runs")
"""Layouts that pyarrow writes no Parquet file of."""


def table(name: str, *, ordinary: bool = False) -> pa.Table:
    """Rows with an ``id`` and ``v``."""
    return pa.table({"id": pa.array(range(5), pa.int64()), "v": LAYOUTS[name][0 if ordinary else 1]})
