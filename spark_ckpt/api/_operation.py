"""What the classes that give a DataFrame its methods build on. Driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

if TYPE_CHECKING:
    from spark_ckpt.api._ahead import Computed
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.plan.lineage import Lineage

SparkDF = Any


class HasOperation:
    """:class:`spark_ckpt.api.dataframe.CkptDataFrame` has the real ones."""

    _preview: SparkDF
    _lineage: Lineage

    def _operation(
        self,
        what: str,
        operation: Callable[[SparkDF], SparkDF],
        check: bool = False,
        tried: Callable[[SparkDF], SparkDF] | None = None,
        stays: str = "",
        computed: Computed | None = None,
    ) -> CkptDataFrame:
        raise NotImplementedError

    def _filtered(self, what: str, condition: Column) -> CkptDataFrame:
        """Without the data rows for which ``condition`` is not true."""
        raise NotImplementedError
