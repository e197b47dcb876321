"""Temporary views of checkpointed streams, for ``ckpt.sql``. Driver only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

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
            raise AnalysisException(
                f"[TEMP_TABLE_OR_VIEW_ALREADY_EXISTS] Cannot create the temporary view `{name}` because it already "
                "exists: choose another name, or use createOrReplaceTempView"
            )
        self.createOrReplaceTempView(name)


def _key(name: str) -> str:
    if not isinstance(name, str) or not name or "." in name:
        raise AnalysisException(f"[INVALID_VIEW_NAME] expected the name of a temporary view, found {name!r}")
    return name.strip("`").lower()
