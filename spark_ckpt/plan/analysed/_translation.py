"""What the handlers of nodes get: the walk that they are part of. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import StructType

from spark_ckpt.execution.chain import StreamRows
from spark_ckpt.execution.java_classes import attribute_id
from spark_ckpt.execution.lineage import WatermarkNode
from spark_ckpt.operators.walks import Walked
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    control_attributes,
    kind_of,
    new_attributes,
    output_of,
    rows_of,
    schema_of,
)

JavaObject = Any


class Translation(Walked[Rows]):
    """One walk over one plan."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.control = ControlColumns(*control_attributes())
        self.first_rows: dict[int, int] = {}
        """Numbers of rows, by their ids: how many a filter lets through."""
        self.numbers: dict[int, str] = {}
        """Those that have to come out, and what they are called."""
        self.output_times: set[int] = set()
        """Columns that a processor puts out, by their ids, which are event times."""
        self.watermarks: dict[str, WatermarkNode] = {}
        """By the ids that Spark gives calls of ``withWatermark``."""

    @cached_property
    def control_ids(self) -> list[int]:
        return [attribute_id(a) for a in self.control.both]

    def child(self, node: JavaObject) -> JavaObject:
        return node.child()

    def kind(self, node: JavaObject) -> str:
        return kind_of(node)

    def schema(self, node: JavaObject) -> StructType:
        return schema_of(node)

    def reads_stream(self, node: JavaObject) -> bool:
        return bool(node.isStreaming())

    def put_out(self, node: JavaObject, made: StreamRows) -> Rows:
        return rows_of(made, output_of(node))

    def handed_on(self, node: JavaObject, rows: Rows, made: StreamRows) -> Rows:
        return rows_of(made, output_of(node))  # under the same ids

    def of_operator(self, made: StreamRows) -> Rows:
        return rows_of(made, new_attributes(made.schema))

    def column(self, rows: Rows, name: str) -> Column:
        return column_of(rows.attributes[rows.schema.names.index(name)])

    def renamed_frame(self, frame: Any, names: Sequence[str]) -> Any:
        return frame.toDF(*names)
