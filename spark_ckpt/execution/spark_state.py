"""The state of a plain Spark query, read by Spark's own ``statestore`` reader, as rows of our state tables. Driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution._spark_aggregates import buffers_of, by_place, columns_of
from spark_ckpt.execution._spark_joins import SparkJoin
from spark_ckpt.execution._spark_location import files_at
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.lineage import OperatorNode
from spark_ckpt.execution.semi_columns import SemiColumns
from spark_ckpt.execution.state_writing import columns_of as table_columns
from spark_ckpt.jobs.spark_checkpoint import SparkCheckpoint
from spark_ckpt.jobs.spark_folder import one_spelling
from spark_ckpt.names import family_table
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.sessions import SESSIONS, SessionAggregate
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.functions.distinct_rows import SEEN, DistinctRows
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from spark_ckpt.state.functions.pandas_input import DEFINED
from spark_ckpt.state.joins.function import COUNTS, StreamJoin
from spark_ckpt.state.joins.matching import SEMI
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.state.processors.declared import EXPIRY, INDEX, LIST, LIST_NAME, LISTS, MAP, NEXT, TIMERS, Variable
from spark_ckpt.state.processors.function import ProcessorFunction
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.object_options import scheme_of
from spark_ckpt.types import TIMEOUT_MS

_LONG_AGO = NO_TIMEOUT - 1
_AGGREGATION, _DEDUPE, _WITHIN = "stateStoreSave", "dedupe", "dedupeWithinWatermark"
_WITH_STATE = ("applyInPandasWithState", "flatMapGroupsWithState", "flatMapGroupsInPandasWithState")


@dataclass(frozen=True)
class SparkOperator:
    """An operator with state in Spark's checkpoint, as its metadata tell."""

    number: int
    name: str


def spark_checkpoint(spark: Any, config: JobConfig, location: str) -> SparkCheckpoint:
    """The checkpoint at ``location``, read as Spark reads it. Raises as :class:`SparkCheckpoint`."""
    own = scheme_of(one_spelling(location)) == scheme_of(one_spelling(config.dir))
    files = files_at(spark, location) or Folder(one_spelling(location), config.storage_options() if own else {})
    return SparkCheckpoint(location, files)


def spark_operators(spark: Any, location: str) -> list[SparkOperator]:
    rows = spark.read.format("state-metadata").load(location).select("operatorId", "operatorName").distinct().collect()
    return sorted((SparkOperator(r.operatorId, r.operatorName) for r in rows), key=lambda o: o.number)


@dataclass(frozen=True)
class SparkState:
    """The state at ``batch`` of ``operator`` at ``location``, for our operator ``uid`` with the state ``tables``."""

    spark: Any
    location: str
    batch: int
    operator: SparkOperator
    uid: str
    node: OperatorNode
    tables: Mapping[str, WrittenRows]
    semi: Callable[[], SemiColumns | None]
    """What Spark keeps of a semi join's left side; asked where there is one."""

    def rows(self) -> dict[str, Any]:
        """A DataFrame for each state table. Raises ``InvalidInputError`` for what cannot be understood."""
        makers: list[tuple[type, tuple[str, ...], Callable[[], dict[str, Any]]]] = [
            (SessionAggregate, ("sessionWindow",), self._sessions),
            (AggregateFunction, (_AGGREGATION,), self._aggregation),
            (DistinctRows, (_DEDUPE, _WITHIN), self._distinct),
            (PandasStateFunction, _WITH_STATE, self._with_state),
            (ProcessorFunction, ("transformWithState",), self._processor),
            (StreamJoin, ("symmetricHashJoin",), self._join),
        ]
        for kind, names, maker in makers:
            if isinstance(self.node.function, kind):
                if not self.operator.name.startswith(names):
                    break
                return maker()
        raise InvalidInputError(
            f"operator {self.uid!r} ({self.node.kind}) is operator {self.operator.number} of Spark's checkpoint, "
            f"{self.operator.name}: expected the same kind, of an aggregation, dropDuplicates, applyInPandasWithState "
            "or transformWithState. The state of others cannot be imported: begin them anew, by bootstrap or empty"
        )

    # -- kinds ---------------------------------------------------------------------------------------------------

    def _aggregation(self) -> dict[str, Any]:
        function = self.node.function
        read = self._read()
        keys = self._keys(read)
        values, collected = columns_of(function, self.uid, buffers_of(F.col("value"), read.schema["value"].dataType))
        if isinstance(function, WindowedAggregate):
            kind = self._field(self.uid, function.window)
            end = _micros(keys[function.window], kind) + function.size_us
            values[TIMEOUT_MS] = F.coalesce(F.ceil(end / 1000).cast("bigint") - 1, F.lit(NO_TIMEOUT))
        made = {self.uid: self._table(self.uid, read, {**keys, **values})}
        tables = {name: family_table(self.uid, name) for name in collected}
        return made | {t: self._collected(t, read, keys, collected[name]) for name, t in tables.items()}

    def _collected(self, table: str, read: Any, keys: Mapping[str, Column], values: Column) -> Any:
        """A row for each value, by its place where the table has one."""
        exploded = read.select(*[column.alias(name) for name, column in keys.items()], F.posexplode(values))
        *places, value = [f.name for f in table_columns(self.tables[table]) if f.name not in keys]
        columns = {**{name: F.col(quoted(name)) for name in keys}, value: F.col("col")}
        return self._table(table, exploded, columns | {name: F.col("pos") for name in places})

    def _sessions(self) -> dict[str, Any]:
        """Spark keeps a row a session, with all keys and the session in front of the buffers."""
        function: SessionAggregate = self.node.function
        self._refuse_families([family for family in function.families if family != SESSIONS])
        read, table = self._read(), family_table(self.uid, SESSIONS)
        kind = read.schema["value"].dataType
        grouped = len(function.key_schema) + 1
        times = [f.name for f in kind.fields[:grouped] if _is_session(f.dataType)]
        if len(times) != 1:
            raise self._other_keys(kind)
        session = F.col(f"value.{quoted(times[0])}")
        end = session["end"]
        columns = {**self._keys(read, and_start=True), function.start: session["start"], function.end: end}
        columns |= columns_of(function, self.uid, buffers_of(F.col("value"), kind)[grouped:])[0]
        columns[TIMEOUT_MS] = F.ceil(_micros(end, kind[times[0]].dataType["end"].dataType) / 1000).cast("bigint") - 1
        none = self.spark.createDataFrame([], table_columns(self.tables[self.uid]))
        return {self.uid: none, table: self._table(table, read, columns)}

    def _refuse_families(self, names: list[str]) -> None:
        if names:
            raise InvalidInputError(
                f"operator {self.uid!r}: what Spark keeps of {', '.join(names)} is not understood here, so "
                f"the operator cannot be imported; {self._anew()}"
            )

    def _distinct(self) -> dict[str, Any]:
        function, read = self.node.function, self._read()
        keys, values = self._keys(read), {SEEN: F.lit(True)}
        if self.operator.name == _WITHIN:
            values[TIMEOUT_MS] = _before(F.col("value.expiresAtMicros"))
        elif function.expiry is not None:
            name = function.expiry.column
            values[TIMEOUT_MS] = _before(_micros(keys[name], self._field(self.uid, name)))
        elif function.timeout != "NoTimeout":
            values[TIMEOUT_MS] = F.lit(NO_TIMEOUT)
        return {self.uid: self._table(self.uid, read, {**keys, **values})}

    def _with_state(self) -> dict[str, Any]:
        read = self._read()
        value = read.schema["value"].dataType
        names = value.fieldNames()
        inner = "groupState" if "groupState" in names else None
        state = F.col("value.groupState") if inner else F.col("value")
        kind = value[inner].dataType if inner else value
        names_here = [f.name for f in self.tables[self.uid].layout.value_schema]
        columns = dict(zip(names_here, by_place(state, kind), strict=False))
        if self.tables[self.uid].layout.with_timeout:
            columns[DEFINED] = state.isNotNull()
            columns[TIMEOUT_MS] = F.coalesce(F.col("value.timeoutTimestamp"), F.lit(NO_TIMEOUT))
        return {self.uid: self._table(self.uid, read, {**self._keys(read), **columns})}

    def _processor(self) -> dict[str, Any]:
        function: ProcessorFunction = self.node.function
        found: dict[str, Any] = {}
        for variable in function.variables:
            found[family_table(self.uid, variable.name)] = self._variable(variable)
        lists = [v for v in function.variables if v.kind == LIST]
        if lists:
            found[family_table(self.uid, LISTS)] = self._next_indexes(lists, found)
        if TIMERS in function.families:
            found[family_table(self.uid, TIMERS)] = self._timers()
        return found

    def _variable(self, variable: Variable) -> Any:
        read, value = self._values(variable)
        kind, column, columns = read.schema[value].dataType, F.col(value), self._keys(read)
        if variable.ttl_ms:
            columns[TIMEOUT_MS] = _expires(F.col(f"{value}.ttlExpirationMs"))
            column, kind = F.col(f"{value}.value"), kind["value"].dataType
        columns.update(zip(variable.value.stored.names, by_place(column, kind), strict=True))
        if variable.kind == MAP and variable.user_key is not None:
            parts = by_place(F.col("user_map_key"), read.schema["user_map_key"].dataType)
            columns.update(zip(variable.user_key.stored.names, parts, strict=True))
        if variable.kind == LIST:
            columns[INDEX] = F.col(INDEX)
        return self._table(family_table(self.uid, variable.name), read, columns)

    def _values(self, variable: Variable) -> tuple[Any, str]:
        """What Spark keeps of a variable, a row an element, and the column that has the value."""
        if variable.kind != LIST:
            return self._read(stateVarName=variable.name), "user_map_value" if variable.kind == MAP else "value"
        lists = self._read(stateVarName=variable.name, flattenCollectionTypes="false")
        return lists.select("key", F.posexplode("list_value").alias(INDEX, "list_element")), "list_element"

    def _next_indexes(self, lists: list[Variable], found: Mapping[str, Any]) -> Any:
        """Of each list the index behind its last element, and when the last of them expires."""
        table = family_table(self.uid, LISTS)
        keys = self.tables[self.uid].layout.key_schema.names
        made = []
        for variable in lists:
            rows = found[family_table(self.uid, variable.name)]
            last = [(F.max(INDEX) + 1).alias(NEXT)] + ([F.max(TIMEOUT_MS).alias(TIMEOUT_MS)] if variable.ttl_ms else [])
            grouped = rows.groupBy(*map(quoted, keys)).agg(*last)
            columns = {name: F.col(quoted(name)) for name in [*keys, NEXT]}
            columns[LIST_NAME] = F.lit(variable.name)
            columns[TIMEOUT_MS] = F.col(TIMEOUT_MS) if variable.ttl_ms else F.lit(NO_TIMEOUT)
            made.append(self._table(table, grouped, columns))
        return reduce(lambda one, other: one.unionByName(other), made)

    def _timers(self) -> Any:
        read = self._read(readRegisteredTimers="true")
        at = F.col("expiration_timestamp_ms")
        return self._table(
            family_table(self.uid, TIMERS), read, {**self._keys(read), EXPIRY: at, TIMEOUT_MS: _expires(at)}
        )

    def _join(self) -> dict[str, Any]:
        function: StreamJoin = self.node.function
        join = SparkJoin(self.uid, function, self._read, self.semi() if function.how == SEMI else None)
        sides = join.sides()
        tables = {family_table(self.uid, name): side for name, side in zip(COUNTS, sides, strict=True)}
        tables[self.uid] = join.counts(sides)
        return {table: self._table(table, rows, _by_name(rows)) for table, rows in tables.items()}

    # -- columns ---------------------------------------------------------------------------------------------------

    def _read(self, **options: str) -> Any:
        # Spark's HDFS store asks its coordinator, which is there only since the session looked at its streams.
        self.spark.streams.active  # noqa: B018 - for what it starts
        reader = self.spark.read.format("statestore").option("batchId", self.batch)
        try:
            return reader.option("operatorId", self.operator.number).options(**options).load(self.location)
        except (Py4JJavaError, PySparkException) as error:
            raise InvalidInputError(
                f"operator {self.uid!r}: expected state that Spark's own reader can read, found {_first_line(error)}. "
                "Of transformWithState, Spark's checkpoint holds absolute paths: read it where the query wrote it. "
                f"Else: {self._anew()}"
            ) from error

    def _anew(self) -> str:
        return f"compute its state of the rows: `ckpt.savepoint_writer(...).bootstrap({self.uid!r}, rows)`"

    def _keys(self, read: Any, and_start: bool = False) -> dict[str, Column]:
        """By name; by place, where names are those of expressions. ``and_start``: behind them is a session's start."""
        kind, form = read.schema["key"].dataType, self.tables[self.uid]
        if and_start:
            kind = T.StructType(kind.fields[:-1])
        names = form.layout.key_schema.names
        there = by_place(F.col("key"), read.schema["key"].dataType)[: len(kind)]
        at = {f.name: place for place, f in enumerate(kind)}
        if len(there) != len(names):
            raise self._other_keys(kind)
        places = [at[name] for name in names] if set(names) == set(at) else range(len(names))
        return {
            name: self._key(name, there[place], kind[place].dataType, kind)
            for name, place in zip(names, places, strict=True)
        }

    def _key(self, name: str, column: Column, found: T.DataType, all_keys: T.StructType) -> Column:
        """A window is known by its start."""
        expected = self._field(self.uid, name)
        if isinstance(found, T.StructType) and not isinstance(expected, T.StructType) and "start" in found.names:
            column, found = column["start"], found["start"].dataType
        if found.simpleString() != expected.simpleString():
            raise self._other_keys(all_keys)
        return column

    def _other_keys(self, found: T.StructType) -> InvalidInputError:
        keys = self.tables[self.uid].layout.key_schema
        return InvalidInputError(
            f"operator {self.uid!r}: expected keys {', '.join(f'{f.name} {f.type}' for f in keys)} in Spark's "
            f"checkpoint, found {found.simpleString()}: the query is another one"
        )

    def _field(self, table: str, name: str) -> T.DataType:
        return table_columns(self.tables[table])[name].dataType

    def _table(self, table: str, read: Any, columns: Mapping[str, Column]) -> Any:
        """``read`` with the columns of ``table``, in their types."""
        fields = table_columns(self.tables[table])
        return read.select(*[columns[f.name].cast(f.dataType).alias(f.name) for f in fields])


def _first_line(error: Exception) -> str:
    """What Spark says, without the trace of its Java."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).splitlines()[0]


def _is_session(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and kind.names == ["start", "end"]


def _by_name(rows: Any) -> dict[str, Column]:
    return {name: F.col(quoted(name)) for name in rows.columns}


def _micros(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.TimestampNTZType):
        epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return F.timestamp_diff("MICROSECOND", epoch, column)
    return F.unix_micros(column)


def _expires(expiry_ms: Column) -> Column:
    """The time-out of what is gone at a millisecond."""
    return F.when(expiry_ms > 0, expiry_ms - 1).otherwise(F.lit(_LONG_AGO))


def _before(micros: Column) -> Column:
    """The time-out of a key that is forgotten at a microsecond: time-outs fire strictly behind their millisecond."""
    millis = F.floor((micros - 1) / 1000).cast("bigint")
    return F.when(micros.isNull(), F.lit(NO_TIMEOUT)).when(millis < 0, F.lit(_LONG_AGO)).otherwise(millis)
