"""Temporary views of checkpointed streams, for ``ckpt.sql``. Driver only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from spark_ckpt.plan.spark_errors import analysis_error

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_views: WeakKeyDictionary[Any, dict[str, CkptDataFrame]] = WeakKeyDictionary()


def views_of(spark: Any) -> dict[str, CkptDataFrame]:
    """Name in small letters -> stream, of one Spark session: they are gone with it, as Spark's are."""
    return _views.setdefault(spark, {})


class TempViews:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def createOrReplaceTempView(self: Any, name: str) -> None:
        """As PySpark's: ``ckpt.sql`` may call this stream ``name``, in this session.

        Spark's own ``spark.sql`` does not know it: a stream's barriers would not come through.
        ``ckpt.dropTempView(name)`` forgets it::

            orders.createOrReplaceTempView("orders")
            totals = ckpt.sql("SELECT customer, sum(amount) AS total FROM orders GROUP BY customer")
        """
        views_of(self._session.spark)[_key(name)] = self

    registerTempTable = createOrReplaceTempView

    def createTempView(self: Any, name: str) -> None:
        """As :meth:`createOrReplaceTempView`. Raises ``AnalysisException`` if there is such a view, as Spark does."""
        if _key(name) in views_of(self._session.spark):
            raise analysis_error(
                "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS",
                f"Cannot create the temporary view `{name}` because it already exists. Choose a different name, drop "
                "or replace the existing view.",
                relationName=f"`{name}`",
            )
        self.createOrReplaceTempView(name)


def _key(name: str) -> str:
    if isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)+", name):
        only = "CREATE TEMPORARY VIEW or the corresponding Dataset APIs only accept single-part view names, but got: "
        raise analysis_error("TEMP_VIEW_NAME_TOO_MANY_NAME_PARTS", f"{only}{name}.", actualName=name)
    if not isinstance(name, str) or not re.fullmatch(r"\w+|`[^`]+`", name, re.ASCII):
        raise analysis_error("_LEGACY_ERROR_TEMP_1321", f"Invalid view name: {name}.", viewName=str(name))
    return name.strip("`").lower()
