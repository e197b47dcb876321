"""Iceberg's partitions: which there are, and which rows belong where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from spark_ckpt.errors import ConfigError, InvalidInputError

_OF_TIME = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}
_KNOWN: tuple[Any, ...] = (*_OF_TIME.values(), IdentityTransform, BucketTransform, TruncateTransform, VoidTransform)
_TERM = re.compile(r"\s*(?:(?P<name>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,)?\s*(?P<of>[^(),]+?)\s*\)|(?P<plain>[^(),]+))\s*")
_EXPECTED = "columns, or year(c), month(c), day(c), hour(c), bucket(n, c), truncate(n, c), comma separated"
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Term:
    """One of ``partitionBy``: a transform of a column, and the name that Spark gives its field."""

    column: str
    transform: Transform[Any, Any]
    field: str


def parse_terms(text: str | None) -> tuple[Term, ...]:
    """Option ``partitionBy``, as in Iceberg's ``PARTITIONED BY``. Raises ``ConfigError``."""
    found, rest = [], text or ""
    while rest.strip():
        match = _TERM.match(rest)
        if match is None or rest[match.end() : match.end() + 1] not in ("", ","):
            raise _malformed(text)
        found.append(_term(match, text))
        rest = rest[match.end() + 1 :]
    return tuple(found)


def _term(match: re.Match[str], text: str | None) -> Term:
    if match["plain"] is not None:
        return Term(match["plain"].strip(), IdentityTransform(), match["plain"].strip())
    name, column, width = match["name"].lower(), match["of"], match["width"]
    kind = name.removesuffix("s")  # Spark's functions are days(ts), Iceberg's names day(ts)
    if kind in _OF_TIME and width is None:
        return Term(column, _OF_TIME[kind](), f"{column}_{kind}")
    if name == "bucket" and width is not None:
        return Term(column, BucketTransform(int(width)), f"{column}_bucket")
    if name == "truncate" and width is not None:
        return Term(column, TruncateTransform(int(width)), f"{column}_trunc")
    if name == "identity" and width is None:
        return Term(column, IdentityTransform(), column)
    raise _malformed(text)


def _malformed(text: str | None) -> ConfigError:
    return ConfigError(f"sink 'iceberg': option 'partitionBy' must be {_EXPECTED}, got {text!r}")


def check_terms(terms: Sequence[Term], schema: Schema) -> None:
    """Raises ``InvalidInputError`` for a column that is not there or that the transform cannot take."""
    for term in terms:
        names = [f.name for f in schema.fields]
        if term.column not in names:
            raise InvalidInputError(f"option 'partitionBy' names {term.column}; the columns are {', '.join(names)}")
        if term.field in names and not isinstance(term.transform, IdentityTransform):
            raise InvalidInputError(
                f"partitionBy: {term.transform} of column '{term.column}' is called {term.field}, as a column of the "
                "query is, and Iceberg has one name for one of them; rename the column"
            )
        kind = schema.find_field(term.column).field_type
        if not term.transform.can_transform(kind):
            raise InvalidInputError(f"partitionBy: {term.transform} cannot take column '{term.column}' of type {kind}")


def check_spec(shown: str, spec: PartitionSpec, schema: Schema, terms: Sequence[Term]) -> None:
    """Raises ``InvalidInputError`` for a partitioning that is not the one asked for, or that cannot be written."""
    there = [f for f in spec.fields if not isinstance(f.transform, VoidTransform)]
    text = ", ".join(shown_field(f, schema) for f in there)
    columns = {column.field_id for column in schema.fields}
    for field in there:
        if not isinstance(field.transform, _KNOWN):
            raise InvalidInputError(f"{shown} is partitioned by {field.transform}, which the iceberg sink cannot write")
        if field.source_id not in columns:
            raise InvalidInputError(
                f"{shown} is partitioned by {text}, a field inside of a struct, which the iceberg sink cannot write"
            )
    asked = [(t.column, str(t.transform)) for t in terms]
    found = [(str(schema.find_column_name(f.source_id)), str(f.transform)) for f in there]
    if terms and asked != found:
        raise InvalidInputError(
            f"{shown} is partitioned by {text or 'nothing'}, and option 'partitionBy' says otherwise; leave it out, "
            "and rows go to the table's own partitions, or write to another table"
        )


def shown_field(field: PartitionField, schema: Schema) -> str:
    name = schema.find_column_name(field.source_id)
    if isinstance(field.transform, BucketTransform):
        return f"bucket({field.transform.num_buckets}, {name})"
    if isinstance(field.transform, TruncateTransform):
        return f"truncate({field.transform.width}, {name})"
    return str(name) if isinstance(field.transform, IdentityTransform) else f"{field.transform}({name})"


def split(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Record, pa.Table]]:
    """``rows``, with the table's column names, by partition. Rows without a column have null there."""
    if spec.is_unpartitioned():
        yield Record(), rows
        return
    fields = [_Values.of(rows, f, schema) for f in spec.fields]
    names = [f"p{i}" for i in range(len(fields))]
    numbered = pa.table([*(f.places for f in fields), pa.array(np.arange(len(rows)))], names=[*names, "row"])
    groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
    for batch in groups.to_batches():
        for i in range(batch.num_rows):
            values = [f.values[batch.column(n)[i].as_py()] for f, n in zip(fields, names, strict=True)]
            yield Record(*values), rows.take(batch.column("row_list")[i].values)


@dataclass(frozen=True)
class _Values:
    """The values of one partition field, and for each row the place of its own among them."""

    values: list[Any]
    places: pa.Array

    @classmethod
    def of(cls, rows: pa.Table, field: PartitionField, schema: Schema) -> _Values:
        name = str(schema.find_column_name(field.source_id))
        source = schema.find_field(field.source_id).field_type
        if name not in rows.column_names:
            return cls([None], pa.repeat(pa.scalar(0, pa.int32()), len(rows)))
        column = _physical(rows.column(name).combine_chunks(), field.transform)
        coded = pc.dictionary_encode(column, null_encoding="encode")
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        change = field.transform.transform(source)
        # Two values may give one of the partition's: they are one place.
        made = [change(v) for v in coded.dictionary.to_pylist()]
        values = list(dict.fromkeys(made))
        place = {v: i for i, v in enumerate(values)}
        to = pa.array([place[v] for v in made], pa.int32())
        return cls(values, to.take(coded.indices))


def _physical(column: pa.Array, transform: Transform[Any, Any]) -> pa.Array:
    """Dates as days and instants as microseconds, as Iceberg's transforms take them; for those of time in whole hours,
    of which there are few, and which no such transform takes apart."""
    if pt.is_date(column.type):
        return column.cast(pa.int32())
    if not pt.is_timestamp(column.type):
        return column
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if not isinstance(transform, tuple(_OF_TIME.values())):
        return micros
    numbers = np.asarray(micros.fill_null(0)) // _HOUR_US * _HOUR_US
    return pa.array(numbers, mask=np.asarray(micros.is_null()))
