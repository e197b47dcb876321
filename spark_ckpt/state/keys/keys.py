"""Keys by their 64-bit hash *and* exact equality of their columns.

The JVM hashes the key columns with Spark's ``xxhash64`` (seed 42). Everything here is vectorised over hashes; key
columns are compared only where hashes meet. Keys that share a hash are right, though slower.

Equality is that of Spark's ``groupBy``: nulls equal each other, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.ipc import Rows, as_integers, plain_array
from spark_ckpt.state.lsm.search import search

NULL_HASH = 42
"""What ``xxhash64`` gives a key whose only column is null: its seed."""

_FIXED_WIDTH = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_VARIABLE_WIDTH = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_decimal128,
)
_EIGHT_BYTES = (pa.types.is_int64, pa.types.is_int32, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_float64)
LONG_DECIMAL_DIGITS = 18
"""Spark hashes decimals of at most so many digits as one long."""

Hashes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def check_key_schema(schema: pa.Schema, nested: bool = True) -> None:
    """Raises ``InvalidInputError`` naming the first key column that is not of a type with a key hash, or, unless
    ``nested``, not of a flat one."""
    if not len(schema):
        raise InvalidInputError("expected at least one key column, found none")
    for field in schema:
        if not (_has_hash(field.type) if nested else is_flat(field.type)):
            more = ", or structs and arrays of those" if nested else ""
            raise InvalidInputError(
                f"key column {field.name!r}: expected a boolean, number, string, binary, date or timestamp{more}, "
                f"found {field.type}: group by its parts or by a string made of it"
            )


def is_flat(kind: pa.DataType) -> bool:
    """Whether it is a type of keys without others in it."""
    return any(test(kind) for test in _FIXED_WIDTH + _VARIABLE_WIDTH)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _has_hash(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_has_hash(field.type) for field in kind)
    return _has_hash(kind.value_type) if is_list(kind) else is_flat(kind)


def injective(key_schema: pa.Schema) -> bool:
    """Whether two different keys can share a hash only by being null and the one value that hashes to the seed.

    ``xxhash64`` of one value of at most 8 bytes is a chain of bijections of 64-bit integers.
    """
    if len(key_schema) != 1:
        return False
    kind = key_schema.field(0).type
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= LONG_DECIMAL_DIGITS)
    return is_fixed_width(kind)


def is_fixed_width(kind: pa.DataType) -> bool:
    """Whether a value takes at most 8 bytes, so that it is hashed in one step."""
    return any(test(kind) for test in _FIXED_WIDTH)


def is_one_value(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column of more than one row, of values of at most 8 bytes, has the very same in each."""
    kind = column.type
    if len(column) < 2 or column.null_count or not any(test(kind) for test in _EIGHT_BYTES):
        return False
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    pieces = [as_integers(chunk) for chunk in chunks if len(chunk)]
    one = pieces[0][0]
    return all(p[-1] == one for p in pieces) and all(bool((p == one).all()) for p in pieces)


def key_group_of(hashes: Hashes, groups: int) -> npt.NDArray[np.int32]:
    """The key group of each hash: monotone in the signed hash, so sorting by hash sorts by key group."""
    return ((((hashes >> 32) + 2**31) * groups) >> 32).astype(np.int32)


def match(
    hashes: Hashes,
    keys: pa.Table | pa.RecordBatch,
    sorted_hashes: Hashes,
    sorted_keys: pa.Table | pa.RecordBatch,
    *,
    rows: Rows | None = None,
    injective: bool = False,
) -> Rows:
    """The position of each key among ``sorted_keys`` (distinct, in the order of ``sorted_hashes``), -1 if missing.

    ``rows`` are the rows of ``keys`` that ``hashes`` belong to (all of them, in order, if None).
    """
    found = np.full(len(hashes), -1, np.int64)
    if not len(sorted_hashes) or not len(hashes):
        return found
    if rows is None and _same(hashes, keys, sorted_hashes, sorted_keys, injective):
        return np.arange(len(hashes))
    position = search(sorted_hashes, hashes)
    position[position == len(sorted_hashes)] = 0
    open_rows = np.flatnonzero(sorted_hashes[position] == hashes)
    if injective:
        certain = open_rows[hashes[open_rows] != NULL_HASH]
        found[certain] = position[certain]
        open_rows = open_rows[hashes[open_rows] == NULL_HASH]
    at = position[open_rows]
    while len(open_rows):  # more than one round only for keys that share a hash
        same = equal_rows(keys, open_rows if rows is None else rows[open_rows], sorted_keys, at)
        found[open_rows[same]] = at[same]
        open_rows, at = open_rows[~same], at[~same] + 1
        inside = at < len(sorted_hashes)
        open_rows, at = open_rows[inside], at[inside]
        again = sorted_hashes[at] == hashes[open_rows]
        open_rows, at = open_rows[again], at[again]
    return found


def _same(
    hashes: Hashes,
    keys: pa.Table | pa.RecordBatch,
    sorted_hashes: Hashes,
    sorted_keys: pa.Table | pa.RecordBatch,
    injective: bool,
) -> bool:
    """Whether both are the same keys in the same order, as when every batch touches all keys."""
    if len(hashes) != len(sorted_hashes) or hashes[0] != sorted_hashes[0] or not np.array_equal(hashes, sorted_hashes):
        return False
    if injective and not (hashes == NULL_HASH).any():
        return True
    return bool(equal_keys(keys, sorted_keys).all())


def equal_rows(a: pa.Table | pa.RecordBatch, rows_a: Rows, b: pa.Table | pa.RecordBatch, rows_b: Rows) -> Mask:
    """Whether row ``rows_a[i]`` of ``a`` and row ``rows_b[i]`` of ``b`` are the same key. Columns go by position."""
    if not len(rows_a):
        return np.ones(0, bool)
    return equal_keys(a.take(pa.array(rows_a)), b.take(pa.array(rows_b)))


def equal_keys(a: pa.Table | pa.RecordBatch, b: pa.Table | pa.RecordBatch) -> Mask:
    """Whether row *i* of ``a`` and row *i* of ``b`` are the same key, for each *i*. Columns go by position."""
    same = np.ones(a.num_rows, bool)
    for x, y in zip(a.columns, b.columns, strict=True):
        same &= _equal(x, y)
    return same


def _equal(x: pa.Array | pa.ChunkedArray, y: pa.Array | pa.ChunkedArray) -> Mask:
    if pa.types.is_struct(x.type) or is_list(x.type):
        x, y = plain_array(x), plain_array(y)
        return _equal_structs(x, y) if pa.types.is_struct(x.type) else _equal_lists(x, y)
    equal = pc.equal(x, y)
    if pa.types.is_floating(x.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(x), pc.is_nan(y)))
    if x.null_count or y.null_count:
        equal = pc.or_(pc.fill_null(equal, False), pc.and_(pc.is_null(x), pc.is_null(y)))
    return np.asarray(equal.to_numpy() if isinstance(equal, pa.ChunkedArray) else equal.to_numpy(zero_copy_only=False))


def _equal_structs(x: pa.StructArray, y: pa.StructArray) -> Mask:
    """Field by field; what stands in the fields of a null counts for nothing."""
    here = x.is_valid().to_numpy(zero_copy_only=False)
    same = np.ones(len(x), bool)
    for at in range(x.type.num_fields):
        same &= _equal(x.field(at), y.field(at))
    return (same | ~here) & (here == y.is_valid().to_numpy(zero_copy_only=False))


def _equal_lists(x: pa.ListArray, y: pa.ListArray) -> Mask:
    """Of the same length, element by element."""
    here = x.is_valid().to_numpy(zero_copy_only=False)
    starts, lengths = places(x)
    other, others = places(y)
    same = (here == y.is_valid().to_numpy(zero_copy_only=False)) & (lengths == others)
    rows = np.flatnonzero(same & (lengths > 0))
    if not len(rows):
        return same
    ends = np.cumsum(lengths[rows])
    first = ends - lengths[rows]
    within = np.arange(ends[-1]) - np.repeat(first, lengths[rows])
    taken = (np.repeat(at[rows], lengths[rows]) + within for at in (starts, other))
    pairs = [values.take(pa.array(at)) for values, at in zip((x.values, y.values), taken)]
    same[rows] = np.logical_and.reduceat(_equal(*pairs), first)
    return same


def places(lists: pa.ListArray) -> tuple[Rows, Rows]:
    """Where each list begins in ``lists.values``, and its length; that of a null is 0."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    return offsets[:-1], np.where(lists.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
