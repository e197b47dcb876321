"""Change rows: one column says of a row whether it is now there (``+I``, ``+U``) or was (``-U``, ``-D``), as Flink's
``RowKind``. A sink that merges by key writes the former and removes the latter.

``-U`` removes, too, as in Flink's JDBC sink: the ``+U`` behind it writes the key again in the same checkpoint, and
where the two have different keys, or a filter let only the first pass, the old row must go.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_ckpt.arrow_types import plain_type
from spark_ckpt.change_rows import KINDS, check_kinds
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions

OPTION = "changeColumn"

CHANGE_OPTION = SinkOption(
    OPTION,
    "a string column",
    "With `mergeKeys`: `+I`, `-U`, `+U` or `-D`. `-U` and `-D` remove the row of the key. Not written itself.",
)


def change_column(sink: str, parsed: SinkOptions, keys: Sequence[str]) -> str | None:
    """Option ``changeColumn``. Raises ``ConfigError`` where rows are appended, and for a column that is a key."""
    name = parsed.text(OPTION)
    if name is not None and not keys:
        raise ConfigError(
            f"sink '{sink}': option '{OPTION}' needs 'mergeKeys', the columns that tell which row a change is made to; "
            "to append the changes themselves, leave it out"
        )
    if name in keys:
        raise ConfigError(f"sink '{sink}': '{name}' cannot be option '{OPTION}' and among the 'mergeKeys'")
    return name


def check_column(name: str | None, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` unless ``name`` is a string column."""
    if name is None:
        return
    staging.require_columns(OPTION, [name], schema)
    kind = schema.field(name).type
    if plain_type(kind) != pa.string():
        raise InvalidInputError(
            f"option '{OPTION}' names {name}, whose type is {kind}; it is a string, one of {', '.join(KINDS)}"
        )


def check_rows(name: str | None, batch: pa.RecordBatch) -> None:
    """Executor. Raises ``BadRowError`` for a value that is no kind of change."""
    if name is not None:
        check_kinds(name, batch.column(name))


def without(name: str | None, schema: pa.Schema) -> pa.Schema:
    """The columns that are written."""
    return schema if name is None else schema.remove(schema.get_field_index(name))
