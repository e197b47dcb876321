"""What the state of one operator looks like: key columns, value columns and bookkeeping columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.ipc import fingerprint, int64_view, nullable_schema, schema_to_text
from spark_ckpt.state.keys.keys import Hashes, check_key_schema, injective
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS

_JOINED_ROWS = 1 << 19
_JOINED_BYTES = 1 << 27


@dataclass(frozen=True)
class StateLayout:
    """Typed columns of an operator's state. ``key_schema`` and ``value_schema`` hold no bookkeeping columns.

    Every field is stored nullable. Raises ``InvalidInputError`` for key types without a key hash and for names
    used twice.
    """

    key_schema: pa.Schema
    value_schema: pa.Schema
    with_timeout: bool = False

    def __post_init__(self) -> None:
        check_key_schema(self.key_schema)
        object.__setattr__(self, "key_schema", nullable_schema(self.key_schema))
        object.__setattr__(self, "value_schema", nullable_schema(self.value_schema))
        names = self.table_schema.names
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InvalidInputError(
                f"expected distinct key and state columns other than {KEY_GROUP}, {KEY_HASH}, {TIMEOUT_MS}; "
                f"found {twice} twice: rename them"
            )

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The state table: keys, values, ``TIMEOUT_MS`` (with time-outs), ``KEY_GROUP``, ``KEY_HASH``."""
        *columns, key_hash = self.stored_schema
        return pa.schema([*columns, pa.field(KEY_GROUP, pa.int32()), key_hash])

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The memtable: as the state table, without the key group, which follows from the key hash."""
        timeout = [pa.field(TIMEOUT_MS, pa.int64())] if self.with_timeout else []
        return pa.schema([*self.key_schema, *self.value_schema, *timeout, pa.field(KEY_HASH, pa.int64())])

    def identity(self, rows: pa.RecordBatch) -> tuple[Hashes, pa.RecordBatch]:
        """What tells the keys of stored rows apart: hash and key columns."""
        return int64_view(rows.column(KEY_HASH)), rows.select(self.key_schema.names)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.stored_schema)

    @cached_property
    def sealed_schema(self) -> str:
        """``stored_schema``, for a query with other columns that finds rows of this one."""
        return schema_to_text(self.stored_schema)

    @cached_property
    def joined_rows(self) -> int:
        """Most rows of a run that is joined from several. Long ones are faster to search than many; but a run is
        decoded in memory, as one Arrow batch, whose strings end at 2 GB, and nobody knows how long strings are."""
        try:
            row_bits = sum(f.type.bit_width for f in self.table_schema)
        except ValueError:  # not all columns have a width
            return _JOINED_ROWS
        return max(_JOINED_ROWS, 8 * _JOINED_BYTES // row_bits)

    @cached_property
    def injective(self) -> bool:
        return injective(self.key_schema)


@dataclass(frozen=True)
class FamilyLayout:
    """Typed columns of a family. ``value_schema`` may be empty: a set of sub-keys; or ``sub_schema``: a row a key.
    ``with_timeout``: rows can expire. ``nested``: sub-keys may be structs and arrays, which :meth:`Found.ordered` does
    not order.

    Raises as :class:`StateLayout`, for key and sub-key columns alike.
    """

    key_schema: pa.Schema
    sub_schema: pa.Schema
    value_schema: pa.Schema
    with_timeout: bool = False
    nested: bool = False

    def __post_init__(self) -> None:
        if len(self.sub_schema):
            check_key_schema(self.sub_schema, nested=self.nested)
        object.__setattr__(self, "sub_schema", nullable_schema(self.sub_schema))
        _ = self.stored

    @cached_property
    def stored(self) -> StateLayout:
        """How its rows are kept: their keys are key and sub-key."""
        return StateLayout(pa.schema([*self.key_schema, *self.sub_schema]), self.value_schema, self.with_timeout)
