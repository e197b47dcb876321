"""Whether a Delta table can take the rows of a query: its features and rules, its partitions, its columns. Driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from deltalake import DeltaTable, Schema

from spark_ckpt.arrow_types import delta_schema
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import altered, misfit

WRITER_FEATURES = frozenset(
    ("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
     "invariants", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview")
)  # fmt: skip
"""What a table may ask of who writes it, as far as delta-rs goes. What they are used for is looked at besides."""

_IDENTITY_VERSION = 6
"""The protocol of writers, before there were names of features, that includes identity columns."""

_OF_DELTA_RS = "__delta_rs_"
_OF_THE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
_COLUMN_RULES = ("delta.generationExpression", "delta.invariants", "delta.identity.start", "CURRENT_DEFAULT")


def check_keys(keys: Sequence[str], wanted: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns that delta-rs cannot merge by."""
    staging.require_columns("mergeKeys", keys, wanted)
    nested = [k for k in keys if pa.types.is_nested(wanted.field(k).type)]
    if nested:
        raise InvalidInputError(f"option 'mergeKeys' names {', '.join(nested)}, which are nested; keys are flat")
    if keys and any("`" in name for name in wanted.names):
        raise InvalidInputError("delta-rs cannot merge columns whose names have a backtick; rename them")


def check_rules(path: str, table: DeltaTable, rewrites: str | None) -> None:
    """A staged file is added as it is, so a table that computes, checks or renames columns cannot take it.

    ``rewrites``: what the query does besides appending, or None. Raises ``InvalidInputError`` naming each rule.
    """
    metadata, protocol = table.metadata(), table.protocol()
    unknown = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
    if protocol.min_writer_version == _IDENTITY_VERSION:
        unknown = [f"writer version {_IDENTITY_VERSION}, identityColumns among what it asks for"]
    rules = [k for k in metadata.configuration if k.startswith("delta.constraints.")]
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        rules.append("delta.columnMapping.mode")
    rules += [f"{k} of column {f.name}" for f in table.schema().fields for k in f.metadata if k in _COLUMN_RULES]
    if unknown or rules:
        raise InvalidInputError(
            f"Delta table {path} has {', '.join([*unknown, *rules])}, which the delta sink does not support: files are "
            "added as the query's tasks wrote them, and nobody would keep the rule. Drop it (ALTER TABLE ... DROP "
            "FEATURE or CONSTRAINT), write to a table without it, or use foreachBatch and Spark's own writer"
        )
    if rewrites is not None and metadata.configuration.get("delta.appendOnly", "false").lower() == "true":
        raise InvalidInputError(
            f"[DELTA_CANNOT_MODIFY_APPEND_ONLY] Delta table {path} has delta.appendOnly=true, and {rewrites} removes "
            "rows; append, or write to another table"
        )


def check_partitions(path: str, table: DeltaTable, wanted: Sequence[str]) -> None:
    there = list(table.metadata().partition_columns)
    if there != list(wanted):
        way = f"partitionBy({', '.join(map(repr, there))})" if there else "no partitionBy"
        raise InvalidInputError(
            f"Delta table {path} is partitioned by {there or 'nothing'}, the query asks for "
            f"{list(wanted) or 'nothing'}; write with {way}, or to another table"
        )


def check_merged_partitions(path: str, partitions: Sequence[str], columns: pa.Schema) -> None:
    """delta-rs, which writes merged rows, spells -1.5 as ``-1.-5`` in the log, and the table cannot be opened any more.

    Raises ``InvalidInputError`` naming the column.
    """
    for name in partitions:
        kind = columns.field(name).type
        if pt.is_decimal(kind) and kind.scale > 0:
            raise InvalidInputError(
                f"Delta table {path}: partition column '{name}' is {kind}, and the query merges (mergeKeys). delta-rs "
                "writes the merged rows, and spells negative numbers with digits behind the point wrong: the table "
                "could not be opened any more. Merge into a table that is partitioned by another type, for example "
                f"F.col('{name}').cast('string'), or not at all; or append"
            )


def check_own_names(shown: str, table: DeltaTable, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns that a merge by delta-rs has names of its own for: each commit would
    fail. ``schema``: the table's, with what the query would add."""
    feed = table.metadata().configuration.get("delta.enableChangeDataFeed", "false").lower() == "true"
    taken = [n for n in schema.names if n.startswith(_OF_DELTA_RS) or (feed and n.lower() in _OF_THE_FEED)]
    if taken:
        raise InvalidInputError(
            f"{shown}: column(s) {', '.join(taken)} have names that a merge (mergeKeys) needs for itself: those that "
            f"begin with {_OF_DELTA_RS}, and in a table with a change data feed {', '.join(_OF_THE_FEED)}; rename "
            "them, or append"
        )


def check_cases(shown: str, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` for columns, or fields of a struct, that Delta takes for one: whoever reads the
    table finds neither. ``schema``: the table's, with what the query would add."""
    for path, one, other in _case_pairs("", list(schema)):
        raise InvalidInputError(
            f"{shown}: '{path}{one}' and '{path}{other}' differ in upper and lower case alone, and are one name to "
            "Delta; rename one in the query, or write it as the table has it"
        )


def _case_pairs(path: str, fields: Sequence[pa.Field]) -> Iterator[tuple[str, str, str]]:
    known: dict[str, str] = {}
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name:
            yield path, other, field.name
        kind = field.type
        yield from _case_pairs(f"{path}{field.name}.", [kind.field(i) for i in range(kind.num_fields)])


def check_columns(path: str, found: pa.Schema, wanted: pa.Schema, declared: pa.Schema) -> None:
    problems = []
    for field in wanted:
        if field.name not in found.names:
            problems.append(
                f"the table has no column '{field.name}' ({field.type}); option mergeSchema=true would add it"
            )
            continue
        there = found.field(field.name)
        kind = delta_schema(pa.schema([there])).field(0).type
        if kind != field.type:
            problems.append(f"column '{field.name}' is {kind} in the table and {field.type} in the query")
        if not there.nullable and declared.field(field.name).nullable:
            problems.append(f"column '{field.name}' must not be null in the table and may be null in the query")
    absent = [f.name for f in found if f.name not in wanted.names and not f.nullable]
    problems += [f"column '{name}' must not be null in the table and the query does not have it" for name in absent]
    if problems:
        raise misfit(f"Delta table {path}", problems)


def shape(kind: pa.DataType) -> Any:
    """A type of Delta's for a committable: its name, or what each part of it is."""
    if pt.is_struct(kind):
        return {f.name: shape(f.type) for f in kind}
    if pt.is_list(kind):
        return ["list", shape(kind.value_type)]
    if pt.is_map(kind):
        return ["map", shape(kind.key_type), shape(kind.item_type)]
    return str(kind)


def check_staged(path: str, table: DeltaTable, staged: Sequence[Mapping[str, Any]], checkpoint: int | None) -> None:
    """Nobody looks into files that are added: ones that do not fit would spoil the table for all its readers.
    ``checkpoint`` None: they are only tried.

    Raises ``InvalidInputError`` if the table's columns or partitions became others since its start.
    """
    schema, partitions = pa.schema(table.schema()), set(table.metadata().partition_columns)
    there = {f.name: shape(delta_schema(pa.schema([f])).field(0).type) for f in schema}
    required = [f.name for f in schema if not f.nullable]
    problems = [p for one in staged for p in _problems(one, there, required, partitions)]
    if problems:
        raise altered(f"Delta table {path}", checkpoint, list(dict.fromkeys(problems)))


def _problems(
    staged: Mapping[str, Any], there: Mapping[str, Any], required: Sequence[str], partitions: set[str]
) -> Iterator[str]:
    columns = staged.get("columns")
    if columns is None:
        return  # staged by a release that did not say
    for name, ours in columns.items():
        if name not in there:
            yield f"it has no column '{name}' ({_said(ours)}) any more"
        elif not _holds(there[name], ours):
            yield f"column '{name}' is {_said(there[name])} and the rows have {_said(ours)}"
    place = staged.get("partition", {})
    absent = {name for name in required if name not in columns and place.get(name) is None}
    nulls = _with_nulls(staged) | absent if staged["stats"]["numRecords"] else set()
    yield from (f"column '{n}' must not be null, and is in some row" for n in required if n in nulls)
    if not staged["keys"] and set(place) != partitions:  # delta-rs lays merged rows out itself
        yield f"it is partitioned by {_listed(partitions)} and the rows by {_listed(set(place))}"


def _with_nulls(staged: Mapping[str, Any]) -> set[str]:
    """Columns that are null in some row; of files that an earlier release staged, as far as its statistics tell."""
    told = staged["stats"]["nullCount"]
    return set(staged.get("nulls", (name for name, count in told.items() if count)))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _holds(there: Any, ours: Any) -> bool:
    """A struct may have got more fields."""
    if isinstance(there, dict) and isinstance(ours, dict):
        return all(name in there and _holds(there[name], kind) for name, kind in ours.items())
    if isinstance(there, list) and isinstance(ours, list):
        return len(there) == len(ours) and all(map(_holds, there, ours))
    return bool(there == ours)


def _said(kind: Any) -> str:
    return kind if isinstance(kind, str) else "another struct, list or map"


def with_columns(found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """``found`` with columns, and fields of structs, that only ``wanted`` has; ``found`` itself if it has all."""
    merged = [_merged(f, wanted.field(f.name)) if f.name in wanted.names else f for f in found]
    merged += [f.with_nullable(True) for f in wanted if f.name not in found.names]
    schema = pa.schema(merged)
    return found if schema.equals(found) else schema


def added(before: pa.Schema, after: pa.Schema) -> Schema:
    """The columns that are new in ``after``, or have new fields."""
    return Schema.from_arrow(pa.schema([f for f in after if f.name not in before.names or before.field(f.name) != f]))


def _merged(there: pa.Field, wanted: pa.Field) -> pa.Field:
    plain = delta_schema(pa.schema([there])).field(0).type
    kind = _union(plain, wanted.type)
    return there if kind.equals(plain) else pa.field(there.name, kind, there.nullable)


def _union(there: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pt.is_struct(there) and pt.is_struct(wanted):
        ours = {f.name: f for f in wanted}
        known = [pa.field(f.name, _union(f.type, ours[f.name].type)) if f.name in ours else f for f in there]
        return pa.struct([*known, *(f for f in wanted if f.name not in {k.name for k in known})])
    if pt.is_list(there) and pt.is_list(wanted):
        return pa.list_(pa.field(there.value_field.name, _union(there.value_type, wanted.value_type)))
    if pt.is_map(there) and pt.is_map(wanted):
        return pa.map_(_union(there.key_type, wanted.key_type), _union(there.item_type, wanted.item_type))
    return there
