"""A state table of the rows of a DataFrame: checked, hashed and sorted by Spark, written by its tasks. Driver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution._job_descriptions import described
from spark_ckpt.execution.columns import normalised, quoted
from spark_ckpt.protocol.events import GroupManifest, groups_from_json
from spark_ckpt.runtime.state_writing import REPORT, ROUTE, HashRows, WriteRuns, WrittenTable
from spark_ckpt.runtime.stateless import nullable
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.types import KEY_HASH

_UPPER = -(1 << 32)
"""Of a hash, as a signed number: what a family's row has of the hash of its operator's key."""


@dataclass(frozen=True)
class Written:
    """What was written: the files of a state table, and the runs and keys of all key groups."""

    content: dict[str, FileEntry]
    groups: dict[int, GroupManifest]

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.content.values())


def write_state_table(rows: Any, table: WrittenTable) -> Written:
    """Write ``rows``, a batch DataFrame, as all rows of ``table``. Driver; the work is that of Spark's executors.

    ``rows`` has the columns that ``ckpt.state(uid).df()`` shows, in any order. Only state files are written: what names
    them (Delta log, manifest) is the caller's. Again with the same rows: the same files. Raises ``InvalidInputError``
    for other columns or types, ahead of everything, and if two rows have one key.
    """
    check_columns(table.uid, rows.schema, table.form)
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    subtasks = Subtasks(table.form.key_groups, partitions)
    sorted_rows = _in_hash_order(rows, table.form, subtasks)
    with described(rows.sparkSession, f"{table.uid}: state of checkpoint {table.epoch} is written"):
        reports = sorted_rows.mapInArrow(WriteRuns(table), REPORT).collect()
    return written_table(table, reports)


def written_table(table: WrittenTable, reports: list[Any]) -> Written:
    """What the tasks reported of ``table``. Raises ``InvalidInputError`` if two rows have one key."""
    mine = [report for report in reports if report.state == table.uid]
    repeated = sum(report.repeated for report in mine)
    if repeated:
        raise _repeated(table.uid, table.form.keys, repeated)
    return _written(table.form.key_groups, mine)


def columns_of(form: WrittenRows) -> T.StructType:
    """The columns of a state table, as Spark has them."""
    return T.StructType.fromJson(json.loads(to_delta_schema(form.given)))


def check_columns(uid: str, found: T.StructType, form: WrittenRows) -> None:
    """Raises ``InvalidInputError`` unless ``found`` has the columns of the state table ``uid``, by name and type."""
    expected = columns_of(form)
    shown = f"state of {uid!r}"
    names = found.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    missing = [name for name in expected.fieldNames() if name not in names]
    extra = [name for name in names if name not in expected.fieldNames()]
    if missing or extra or twice:
        wrong = (("missing", missing), ("not of it", extra), ("there twice", twice))
        told = "; ".join(f"{what}: {', '.join(which)}" for what, which in wrong if which)
        raise InvalidInputError(f"{shown}: expected the columns {_ddl(expected)}; {told}. Select these, by these names")
    for field in nullable(expected):
        kind = found[field.name].dataType
        if _nullable_type(kind) != _nullable_type(field.dataType):
            raise InvalidInputError(
                f"{shown}, column {field.name!r}: expected {field.dataType.simpleString()}, found "
                f"{kind.simpleString()}; cast it: F.col({field.name!r}).cast({field.dataType.simpleString()!r})"
            )


def _in_hash_order(rows: Any, form: WrittenRows, subtasks: Subtasks) -> Any:
    """By place from here on: names may be such as Spark cannot tell apart from ours."""
    names = form.given.names
    named = rows.select(*[F.col(quoted(name)).alias(f"c{at}") for at, name in enumerate(names)])
    keys = [f"c{names.index(key)}" for key in form.keys]
    hashed = hashed_rows(named, keys, form, subtasks)
    return hashed.repartition(subtasks.partitions, ROUTE).sortWithinPartitions(KEY_HASH, *keys)


def hashed_rows(named: Any, keys: list[str], form: WrittenRows, subtasks: Subtasks) -> Any:
    """``named``, whose columns are those of the table by place, with keys as they are compared, their hash and the
    subtask's route. ``keys``: the names of the key columns. By Spark's own expressions, but for nested keys: a way
    into Python and back costs as much as to write the rows."""
    kinds = {field.name: field.dataType for field in named.schema}
    if any(isinstance(kinds[key], T.StructType | T.ArrayType) for key in keys):
        fields = [*nullable(named.schema), T.StructField(KEY_HASH, T.LongType()), T.StructField(ROUTE, T.IntegerType())]
        return named.mapInArrow(HashRows(form, subtasks), T.StructType(fields))
    compared = [normalised(F.col(name), kind).alias(name) if name in keys else name for name, kind in kinds.items()]
    rows, own = named.select(*compared), form.owner_keys
    owner = F.xxhash64(*keys[:own])
    of_row = owner if own is None else owner.bitwiseAND(_UPPER) + F.xxhash64(owner, *keys[own:]).bitwiseAND(~_UPPER)
    return rows.select("*", of_row.alias(KEY_HASH)).select("*", _route(subtasks).alias(ROUTE))


def _route(subtasks: Subtasks) -> Any:
    """As ``Subtasks.subtask_of`` and ``key_group_of`` have it."""
    groups, count = subtasks.key_groups, subtasks.count
    group = f"shiftright((shiftright({KEY_HASH}, 32) + {2**31}L) * {groups}L, 32)"
    return F.element_at(
        F.array(*map(F.lit, subtasks.routes)), F.expr(f"CAST({group} * {count}L DIV {groups}L AS INT) + 1")
    )


def _written(key_groups: int, reports: list[Any]) -> Written:
    content = {report.file: FileEntry(report.rows, report.size_bytes) for report in reports}
    groups = {group: GroupManifest() for group in range(key_groups)}
    for report in sorted(reports, key=lambda r: str(r.file)):
        for number, part in groups_from_json(json.loads(report.groups)).items():
            known = groups[number]
            groups[number] = GroupManifest((*known.runs, *part.runs), known.keys + part.keys)
    return Written(content, groups)


def _repeated(uid: str, keys: list[str], repeated: int) -> InvalidInputError:
    listed = ", ".join(map(repr, keys))
    return InvalidInputError(
        f"state of {uid!r}: expected one row for each key ({', '.join(keys)}), found {repeated} more rows for keys "
        f"that have one. `rows.groupBy({listed}).count().where('count > 1')` shows the keys; nothing was made of it"
    )


def _nullable_type(kind: T.DataType) -> Any:
    """Without what is said of nulls, and of the lengths of texts."""
    if isinstance(kind, T.ArrayType):
        return ("array", _nullable_type(kind.elementType))
    if isinstance(kind, T.MapType):
        return ("map", _nullable_type(kind.keyType), _nullable_type(kind.valueType))
    if isinstance(kind, T.StructType):
        return ("struct", *((f.name, _nullable_type(f.dataType)) for f in kind))
    return kind.simpleString()


def _ddl(schema: T.StructType) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema)
