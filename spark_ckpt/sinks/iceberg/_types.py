"""What Iceberg stores of Arrow's types, and whether a query's rows fit a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pt
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from spark_ckpt.arrow_types import delta_type, plain_type
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks._options import misfit

_WIDER = {pa.int32(): (pa.int64(),), pa.float32(): (pa.float64(),)}
"""Iceberg's own promotions of types, which lose nothing."""


def iceberg_arrow(schema: pa.Schema) -> pa.Schema:
    """``schema`` as a new Iceberg table stores it; every column is optional.

    Raises ``InvalidInputError`` naming a column whose type Iceberg does not have.
    """
    return pa.schema([pa.field(f.name, _stored(f.name, f.type)) for f in schema])


def check_names(shown: str, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns that Iceberg has one name for: it calls the field of a struct by the
    struct's name, a dot and its own."""
    names = Counter(name for field in schema for name in _full_names(field.name, field.type))
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"{shown}: expected columns that Iceberg has a name for each of, found two for {', '.join(twice)}: a "
            "column with a dot in its name beside a field of a struct, a list or a map. Rename one, such as with "
            "withColumnRenamed"
        )


def _full_names(name: str, kind: pa.DataType) -> Iterator[str]:
    yield name
    if pt.is_struct(kind):
        for field in kind:
            yield from _full_names(f"{name}.{field.name}", field.type)
    elif pt.is_list(kind):
        yield from _full_names(f"{name}.element", kind.value_type)
    elif pt.is_map(kind):
        yield from _full_names(f"{name}.key", kind.key_type)
        yield from _full_names(f"{name}.value", kind.item_type)


def _stored(column: str, kind: pa.DataType) -> pa.DataType:
    plain = plain_type(kind)
    if pt.is_time(plain):
        return plain
    try:
        return _without_small(delta_type(column, kind))
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("Delta", "Iceberg")) from None


def _without_small(kind: pa.DataType) -> pa.DataType:
    """Iceberg's smallest integer has 32 bits, also inside of nested types."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pt.is_list(kind):
        return pa.list_(pa.field("element", _without_small(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(_without_small(kind.key_type), _without_small(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_small(f.type)) for f in kind])
    return kind


def file_schema(table: Schema, names: Sequence[str]) -> tuple[Schema, pa.Schema]:
    """The part of a table's schema that a file with the columns ``names`` has, and the same in Arrow, with ids."""
    chosen = table.select(*names)
    return chosen, schema_to_pyarrow(chosen, include_field_ids=True)


def check_columns(shown: str, table: Schema, rows: pa.Schema) -> None:
    """Raises ``InvalidInputError`` if ``rows``, a query's, cannot go into ``table``."""
    problems = column_problems(table, rows)
    if problems:
        raise misfit(shown, problems)


def column_problems(table: Schema, rows: pa.Schema) -> list[str]:
    found = schema_to_pyarrow(table, include_field_ids=False)
    problems: list[str] = []
    for field in rows:
        if field.name not in found.names:
            problems.append(f"the table has no column '{field.name}' ({field.type})")
            continue
        there = found.field(field.name)
        if not _fits(_stored(field.name, field.type), plain_type(there.type)) or _is_finer(there.type):
            kind = table.find_field(field.name).field_type
            problems.append(f"column '{field.name}' is {kind} in the table and {field.type} in the query")
        if not there.nullable and field.nullable:
            problems.append(f"column '{field.name}' is required in the table and may be null in the query")
    absent = [f.name for f in table.fields if f.name not in rows.names and f.required]
    return [*problems, *(f"column '{n}' is required in the table and the query does not have it" for n in absent)]


def _is_finer(kind: pa.DataType) -> bool:
    """Nanoseconds and extension types, such as UUID, which nothing here writes."""
    return isinstance(kind, pa.BaseExtensionType) or (pt.is_timestamp(kind) and kind.unit == "ns")


def _fits(kind: pa.DataType, there: pa.DataType) -> bool:
    there = _named(there)
    if _named(kind) == there or there in _WIDER.get(kind, ()):
        return True
    if pt.is_decimal(kind) and pt.is_decimal(there):
        return kind.scale == there.scale and kind.precision <= there.precision
    return False


def _named(kind: pa.DataType) -> pa.DataType:
    """Nested types compared by what they hold, not by what Arrow calls an element or whether it may be null."""
    if pt.is_list(kind):
        return pa.list_(pa.field("element", _named(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(_named(kind.key_type), _named(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, _named(f.type)) for f in kind])
    return kind
