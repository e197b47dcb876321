"""What the handlers of nodes get: the walk that they are part of. Driver; classic Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from typing import Any

from spark_ckpt.plan._java_classes import attribute_id
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import Rows, control_attributes
from spark_ckpt.plan.lineage import WatermarkNode

JavaObject = Any


class Translation(ABC):
    """One walk over one plan."""

    def __init__(self, session: Any) -> None:
        self.session, self.spark = session, session.spark
        self.control = ControlColumns(*control_attributes())
        self.uses_of_uids: Counter[tuple[str, str]] = Counter()
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

    @abstractmethod
    def rows(self, node: JavaObject) -> Rows:
        """What ``node`` puts out."""
