"""What ``groupBy`` and ``withWatermark`` are given, as Spark resolves it: case, backticks, ordinals, fields. Driver.

A key also needs a name in the state table. It is the column's or the expression's own unless that means something else
there: another input column, a field of the state, or a name that Delta does not take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.event_time import DELAY_KEY
from spark_ckpt.execution.refused_types import has_repeated_fields, refuse_unkept
from spark_ckpt.operators._carried_keys import carried, carried_type, is_carried
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.types import CONTROL_COLUMNS

_FIELD = re.compile(r"\.(\w+) AS \1(?!\w)")
_NOT_IN_DELTA = re.compile(r"[ ,;{}()\n\t=]")
KEY_TYPES = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


@dataclass(frozen=True)
class Keys:
    """The grouping keys: name in the state -> expression over the parent's columns, and their types.

    ``columns`` are those that are a column of the parent, as it is; ``plain``: every key is. ``delays_ms``: of each key
    that is an event time, how far the watermark is behind it. ``notes``: the metadata of each. ``texts``: what each is
    computed by, as Spark writes it; none of one of which it is not known.
    """

    expressions: dict[str, Column]
    schema: T.StructType
    columns: frozenset[str]
    delays_ms: tuple[int | None, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_columns(cls, fields: Sequence[T.StructField]) -> Keys:
        """Keys that are these columns, as they are."""
        names = [f.name for f in fields]
        kept = T.StructType([T.StructField(f.name, f.dataType, True) for f in fields])
        return cls({name: F.col(quoted(name)) for name in names}, kept, frozenset(names))

    def noting(self, fields: Sequence[T.StructField]) -> Keys:
        """These, with the metadata of ``fields``, one for each, and which of them are event times."""
        delays = [f.metadata.get(DELAY_KEY) for f in fields]
        delays_ms = tuple(None if delay is None else int(delay) for delay in delays)
        return replace(self, delays_ms=delays_ms, notes=tuple(dict(f.metadata) for f in fields))

    @property
    def event_time(self) -> str | None:
        """The name in the state of the first one that is an event time."""
        times = (f.name for f, delay in zip(self.schema.fields, self.delays_ms) if delay is not None)
        return next(times, None)

    def noted(self, out: T.StructType) -> T.StructType:
        """``out``, what an operator makes of the keys, with their metadata, and which are event times."""
        found = {f.name: dict(note) for f, note in zip(self.schema.fields, self.notes)}
        for f, delay in zip(self.schema.fields, self.delays_ms):
            if delay is not None:
                found[f.name] = {**found.get(f.name, {}), DELAY_KEY: delay}
        fields = [T.StructField(f.name, f.dataType, f.nullable, found.get(f.name, f.metadata)) for f in out.fields]
        return T.StructType(fields)

    @property
    def plain(self) -> bool:
        return self.columns.issuperset(self.expressions)

    def named_for(self, inputs: Sequence[str], state: Iterable[str]) -> Keys:
        """As the operator has them, with other names where a function gets ``inputs`` beside the keys, or its state has
        fields named so.

        As in Spark, an expression that has a column's name does not take the column's place.
        """
        if any(is_carried(f.dataType) for f in self.schema.fields):
            return self._carried().named_for(inputs, state)
        taken, seen = {n.lower() for n in state}, {n.lower() for n in inputs}
        names: list[str] = []
        for name in self.expressions:
            own = stored_name(name)
            alone = seen - {own.lower()} if own == name and name in self.columns else seen
            while own.lower() in taken or own.lower() in alone:
                own += "_key"
            taken.add(own.lower())
            names.append(own)
        fields = [T.StructField(n, f.dataType, True) for n, f in zip(names, self.schema.fields, strict=True)]
        expressions = dict(zip(names, self.expressions.values(), strict=True))
        kept = frozenset(n for n, old in zip(names, self.expressions, strict=True) if n == old and n in self.columns)
        texts = {n: self.texts[old] for n, old in zip(names, self.expressions, strict=True) if old in self.texts}
        return replace(self, expressions=expressions, schema=T.StructType(fields), columns=kept, texts=texts)

    def _carried(self) -> Keys:
        kinds = {f.name: f.dataType for f in self.schema.fields if is_carried(f.dataType)}
        expressions = {n: carried(c, kinds[n]) if n in kinds else c for n, c in self.expressions.items()}
        fields = [T.StructField(f.name, carried_type(f.dataType), True) for f in self.schema.fields]
        columns = self.columns - kinds.keys()
        return replace(self, expressions=expressions, schema=T.StructType(fields), columns=columns)


def stored_name(name: str) -> str:
    """``name`` as a column of the state table: without the aliases of fields, ``(st.x AS x + 1)``, which states of
    before have not."""
    return _NOT_IN_DELTA.sub("_", _FIELD.sub(r".\1", name))


def key_text(text: str) -> str:
    """What a key is computed by, as records have it. ``text`` is Spark's."""
    return _FIELD.sub(r".\1", text)


def texts_in(df: Any, by: Sequence[Column]) -> list[str]:
    """What Spark calls each expression over ``df``, whatever name it is given."""
    if not by:
        return []
    told = df.select(*by, *[F.coalesce(column) for column in by]).columns
    names, inside = told[: len(by)], [text[len("coalesce(") : -1] for text in told[len(by) :]]
    endings = [(f" AS {name}", f" AS {quoted(name)}") for name in names]
    return [key_text(text.removesuffix(a).removesuffix(b)) for text, (a, b) in zip(inside, endings, strict=True)]


def stored(struct: T.StructType) -> T.StructType:
    """The columns of a function's state, under names that a table can have."""
    return T.StructType([T.StructField(stored_name(f.name), f.dataType, f.nullable) for f in struct.fields])


def written(col: Any) -> str:
    """A column as the user wrote it."""
    return str(col)[len("Column<'") : -len("'>")] if isinstance(col, Column) else str(col)


def column_named(columns: Sequence[str], text: str, sensitive: bool) -> str | None:
    """The column that ``text`` names, as Spark finds it; None if it is something else, such as a field of a struct."""
    name = text
    if len(text) > 1 and text[0] == text[-1] == "`":
        name = text[1:-1].replace("``", "`")
    if name in columns:
        return name
    found = [] if sensitive else [c for c in columns if c.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def is_key(kind: T.DataType) -> bool:
    """Whether it is a flat type by which state is found."""
    collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
    return isinstance(kind, KEY_TYPES) and not collated


def arrow_columns(schema: T.StructType, columns: list[str]) -> pa.Schema:
    """Raises ``InvalidInputError`` for a type that no keyed operator can keep."""
    by_name = {f.name: f for f in schema.fields if f.name not in CONTROL_COLUMNS}
    refuse_unkept(by_name[c] for c in columns)
    return arrow_schema(T.StructType([T.StructField(c, by_name[c].dataType, True) for c in columns]))


def check_key(key: T.StructField) -> None:
    """Raises ``InvalidInputError`` for a type that rows cannot be grouped by."""
    if has_repeated_fields(key.dataType):
        refuse_unkept([key])
    if not _has_hash(carried_type(key.dataType)):
        known = ", ".join(t().simpleString() if t is not T.DecimalType else "decimal" for t in KEY_TYPES)
        raise InvalidInputError(
            f"key {key.name!r} has type {key.dataType.simpleString()}, which cannot be a key here; expected one of "
            f"{known}, intervals of days or months, or structs, arrays and maps of those. Cast it in front"
        )


def check_key_of_function(key: T.StructField) -> None:
    """Also for one that a function would get as something else than it is."""
    check_key(key)
    if is_carried(key.dataType):
        raise InvalidInputError(
            f"key {key.name!r} has type {key.dataType.simpleString()}, which is a key of agg(...), its short "
            "forms and topN alone: for functions, cast it, or make one of it in front, such as "
            'withColumn("entries", F.array_sort(F.map_entries("m")))'
        )


def _has_hash(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_has_hash(field.dataType) for field in kind.fields)
    return _has_hash(kind.elementType) if isinstance(kind, T.ArrayType) else is_key(kind)
