"""What a job's function gets in place of Spark's DataFrames: methods whose work runs in Python, under PySpark's names.

Each makes what the translation of a Spark plan makes of the same method, so a start wires it as in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import types as T

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.event_time import DELAY_KEY, simple_ms
from spark_ckpt.execution.lineage import SourceNode, WatermarkNode
from spark_ckpt.operators import functions_with_state
from spark_ckpt.operators.key_columns import Keys, arrow_columns, check_key_of_function, stored
from spark_ckpt.operators.keyed_operator import keyed_rows
from spark_ckpt.runtime.stateless import MapArrow, MapPandas, MarkStream, Project, arrow_schema, with_control
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.arrow_function import ArrowStateFunction
from spark_ckpt.state.functions.base import StateFunction
from spark_ckpt.state.functions.pandas_function import PandasStateFunction
from spark_ckpt.state.processors.function import ProcessorFunction
from spark_ckpt.testing.simulation.short_ways import replaced
from spark_ckpt.types import CONTROL_COLUMNS

_UTC = "UTC"


class _OnlyWithSpark:
    """Says which methods there are, where another is called."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        known = sorted(n for n in vars(type(self)) if not n.startswith("_"))
        raise AttributeError(
            f"{name} is not there without Spark: expected one of {', '.join(known)}. Put what it does into a function "
            "of mapInArrow or mapInPandas, which is tested with the rest, or test the functions behind it alone"
        )


class Frame(_OnlyWithSpark):
    """Rows of a stream. A job's function takes one for each source, and returns the one that the sink gets."""

    def __init__(self, rows: StreamRows) -> None:
        self._rows = rows

    @property
    def columns(self) -> list[str]:
        return list(self._rows.schema.names)

    @property
    def schema(self) -> T.StructType:
        return self._rows.schema

    def uid(self, uid: str) -> Frame:
        """Names the state of the operator that these rows come from."""
        operators = self._rows.recipe.operators
        if not operators:
            raise InvalidInputError(f"uid({uid!r}): expected it right behind an operator that keeps state")
        operators[-1].named(uid)
        return self

    def withWatermark(self, eventTime: str, delayThreshold: str) -> Frame:
        delay_ms = simple_ms(delayThreshold)
        if delay_ms is None or eventTime not in self.columns:
            raise InvalidInputError(
                f"withWatermark: expected one of the columns {self.columns} and a delay such as '10 seconds', found "
                f"{eventTime!r} and {delayThreshold!r}"
            )
        rows, known = self._rows, WatermarkNode(eventTime, delay_ms * 1000, self._rows.lineage.sources)
        fields = [_timed(f, delay_ms) if f.name == eventTime else f for f in rows.schema.fields]
        full = with_control(T.StructType(fields))

        def make(ctx: Any) -> Chain:
            number = ctx.stream_number(known)
            marked = MarkStream(number, ctx.stream_name(known), known.column, known.delay_us)
            made: Chain = ctx.chain(rows.recipe).then(marked, full)
            return made

        lineage = rows.lineage.with_watermark(known)
        return Frame(StreamRows(Recipe(make, (rows.recipe,)), lineage, T.StructType(fields)))

    def select(self, *cols: str) -> Frame:
        """Columns by their names."""
        unknown = [c for c in cols if c not in self.columns]
        if unknown:
            raise InvalidInputError(f"select: expected names of the columns {self.columns}, found {unknown}")
        schema = T.StructType([self.schema[c] for c in cols])
        return self._then(Project([*cols, *CONTROL_COLUMNS]), schema)

    def mapInArrow(self, func: Callable[..., Any], schema: T.StructType | str) -> Frame:
        made = _struct(schema)
        return self._then(MapArrow(func, with_control(made)), made)

    def mapInPandas(self, func: Callable[..., Any], schema: T.StructType | str) -> Frame:
        made = _struct(schema)
        return self._then(MapPandas(func, with_control(made), _UTC, {}), made)

    def union(self, other: Frame) -> Frame:
        """Rows of both, whose columns have the same names and types in the same order."""
        if arrow_schema(self.schema) != arrow_schema(other.schema):
            raise InvalidInputError(f"union: expected the columns {self.schema}, found {other.schema}")
        recipes, schema = (self._rows.recipe, other._rows.recipe), self.schema

        def make(ctx: Any) -> Chain:
            return Chain(ctx.frame(recipes[0]).union(ctx.frame(recipes[1])), with_control(schema))

        return Frame(StreamRows(Recipe(make, recipes), self._rows.lineage.union(other._rows.lineage), schema))

    def groupBy(self, *cols: str) -> Grouped:
        unknown = [c for c in cols if c not in self.columns]
        if unknown or not cols:
            raise InvalidInputError(f"groupBy: expected names of the columns {self.columns}, found {list(cols)}")
        return Grouped(self._rows, list(cols))

    def _then(self, operation: Any, schema: T.StructType) -> Frame:
        rows, full = self._rows, with_control(schema)
        recipe = Recipe(lambda ctx: ctx.chain(rows.recipe).then(operation, full), (rows.recipe,))
        return Frame(StreamRows(recipe, rows.lineage, schema))


class Grouped(_OnlyWithSpark):
    """Rows by their keys."""

    def __init__(self, rows: StreamRows, by: list[str]) -> None:
        self._rows, self._by = rows, by

    def applyInPandasWithState(
        self,
        func: Callable[..., Any],
        outputStructType: T.StructType | str,
        stateStructType: T.StructType | str,
        outputMode: str,
        timeoutConf: str,
    ) -> Frame:
        output, state = _struct(outputStructType), stored(_struct(stateStructType))
        keys = self._keys(state.names)
        function = PandasStateFunction(
            func,
            arrow_schema(keys.schema),
            self._inputs(),
            arrow_schema(output),
            arrow_schema(state),
            output_struct=output.json(),
            state_struct=state.json(),
            timeout=timeoutConf,
            has_watermark=bool(self._rows.lineage.watermarks),
        )
        return self._through(function, keys, self._rows.schema.names, outputMode)

    def applyInArrowWithState(
        self,
        func: Callable[..., Any],
        outputStructType: T.StructType | str,
        stateStructType: T.StructType | str,
        timeoutConf: str = "NoTimeout",
    ) -> Frame:
        state = stored(_struct(stateStructType))
        keys, output = self._keys(state.names), arrow_schema(_struct(outputStructType))
        made = ArrowStateFunction(
            func, arrow_schema(keys.schema), self._inputs(), output, arrow_schema(state), timeout=timeoutConf
        )
        return self._through(made, keys, self._rows.schema.names, None)

    def transformWithStateInPandas(
        self, statefulProcessor: Any, outputStructType: T.StructType | str, outputMode: str, timeMode: str
    ) -> Frame:
        return self._processor(statefulProcessor, outputStructType, outputMode, timeMode, True)

    def transformWithState(
        self, statefulProcessor: Any, outputStructType: T.StructType | str, outputMode: str, timeMode: str
    ) -> Frame:
        return self._processor(statefulProcessor, outputStructType, outputMode, timeMode, False)

    def aggregate(self, *, emit: str = "update", orderBy: str | None = None, **aggregates: AggSpec) -> Frame:
        needed = {s.column for s in aggregates.values() if s.column is not None} | ({orderBy} if orderBy else set())
        columns = self._rows.schema.names if emit == "rows" else sorted(needed)
        keys = self._keys([])
        inputs = arrow_columns(self._rows.schema, columns)
        made = AggregateFunction(arrow_schema(keys.schema), inputs, aggregates, emit=emit, order_by=orderBy)
        return self._through(made, keys, columns, "update" if emit == "update" else None)

    def _processor(self, user: Any, output: T.StructType | str, mode: str, time_mode: str, pandas: bool) -> Frame:
        made, keys = _struct(output), self._keys([])
        with _no_jvm():
            variables = functions_with_state.variables_of(user, time_mode, keys.schema.names)
        function = ProcessorFunction(
            user,
            variables,
            arrow_schema(keys.schema),
            self._inputs(),
            arrow_schema(made),
            output_struct=made.json(),
            time_mode=time_mode,
            pandas=pandas,
        )
        return self._through(function, keys, self._rows.schema.names, mode)

    def _keys(self, state: Sequence[str]) -> Keys:
        fields = [self._rows.schema[c] for c in self._by]
        for f in fields:
            check_key_of_function(f)
        kept = T.StructType([T.StructField(f.name, f.dataType, True) for f in fields])
        # The columns as they are: what would be Spark's expressions of them is not looked at.
        expressions: Mapping[str, Any] = dict.fromkeys(self._by)
        return Keys(dict(expressions), kept, frozenset(self._by)).named_for(self._rows.schema.names, state)

    def _inputs(self) -> pa.Schema:
        return arrow_columns(self._rows.schema, self._rows.schema.names)

    def _through(self, function: StateFunction, keys: Keys, columns: list[str], mode: str | None) -> Frame:
        if not keys.plain:
            raise InvalidInputError(
                f"groupBy: the state has a field with the name of a key among {self._by}; rename it for a test without "
                "Spark"
            )
        return Frame(keyed_rows(self._rows, None, function, columns, keys, mode))


def source_frame(node: SourceNode) -> Frame:
    from spark_ckpt.execution.lineage import Lineage

    full = with_control(node.schema)
    recipe = Recipe(lambda _ctx: Chain(node, full))
    return Frame(StreamRows(recipe, Lineage(1, (node,)), node.schema))


def _timed(field: T.StructField, delay_ms: int) -> T.StructField:
    made = T.StructField(field.name, field.dataType, field.nullable)
    made.metadata = {**(field.metadata or {}), DELAY_KEY: delay_ms}
    return made


def _struct(schema: T.StructType | str) -> T.StructType:
    return schema if isinstance(schema, T.StructType) else parse_ddl(schema)


@contextmanager
def _no_jvm() -> Iterator[None]:
    """Within, texts of schemas are read without Spark's parser."""

    def as_struct(schema: Any) -> T.StructType:
        made = parse_ddl(schema) if isinstance(schema, str) else schema
        if not isinstance(made, T.StructType):
            raise InvalidInputError(f"expected a StructType or a text such as 'n long, name string', found {schema!r}")
        return made

    with replaced(functions_with_state, "as_struct", as_struct):
        yield


__all__ = ["Frame", "Grouped", "source_frame"]
