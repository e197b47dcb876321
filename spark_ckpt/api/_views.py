"""Temporary views of checkpointed streams, for ``ckpt.sql``. Driver only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.spark_errors import analysis_error
from spark_ckpt.plan.sql_tokens import tokens_of

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_global: dict[str, CkptDataFrame] = {}
"""Of this process: name in small letters -> stream."""
_views: WeakKeyDictionary[Any, dict[str, CkptDataFrame]] = WeakKeyDictionary()


def views_of(spark: Any) -> dict[str, CkptDataFrame]:
    """Name in small letters -> stream, of one Spark session: they are gone with it, as Spark's are."""
    return _views.setdefault(spark, {})


def global_views() -> dict[str, CkptDataFrame]:
    """Name in small letters -> stream, of all sessions of this process."""
    return _global


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
            raise _there_is(name)
        self.createOrReplaceTempView(name)

    def createOrReplaceGlobalTempView(self: Any, name: str) -> None:
        """As PySpark's: ``ckpt.sql`` may call this stream ``global_temp.name``, in all sessions of this process.

        ``ckpt.dropGlobalTempView(name)`` forgets it. Raises as :meth:`createOrReplaceTempView`.
        """
        _global[_key(name)] = self

    def createGlobalTempView(self: Any, name: str) -> None:
        """As :meth:`createOrReplaceGlobalTempView`. Raises ``AnalysisException`` if there is one, as Spark does."""
        if _key(name) in _global:
            raise _there_is(name)
        _global[_key(name)] = self


def _there_is(name: str) -> AnalysisException:
    return analysis_error(
        "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS",
        f"Cannot create the temporary view `{name}` because it already exists. Choose a different name, drop "
        "or replace the existing view.",
        relationName=f"`{name}`",
    )


def with_global_views(spark: Any, text: str, tables: dict[str, Any]) -> tuple[str, Any]:
    """``text`` of a query with the bare names of global views of streams, which are put into ``tables``, and the
    session that reads it: that in which the first of them was made.

    Raises ``InvalidInputError`` if a bare name stands for a view of the session in the same text.
    """
    if not _global:
        return text, spark
    found, tokens, written, session = "", tokens_of(text), 0, None
    database = (spark.conf.get("spark.sql.globalTempDatabase", None) or "global_temp").lower()
    for one, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        key = name.name.lower()
        if not one.is_name or one.name.lower() != database or dot.text != "." or key not in _global:
            continue
        if tables.get(key, _global[key]) is not _global[key]:
            raise InvalidInputError(
                f"{database}.{name.text}: there is a view {name.text} of this session, too; read one by another "
                "name, createOrReplaceTempView(...) of the same stream"
            )
        tables[key] = _global[key]
        session = session or _global[key]._session.spark
        found += text[written : one.start]
        written = name.start
    return found + text[written:], session or spark


def _key(name: str) -> str:
    if isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)+", name):
        only = "CREATE TEMPORARY VIEW or the corresponding Dataset APIs only accept single-part view names, but got: "
        raise analysis_error("TEMP_VIEW_NAME_TOO_MANY_NAME_PARTS", f"{only}{name}.", actualName=name)
    if not isinstance(name, str) or not re.fullmatch(r"\w+|`[^`]+`", name, re.ASCII):
        raise analysis_error("_LEGACY_ERROR_TEMP_1321", f"Invalid view name: {name}.", viewName=str(name))
    return name.strip("`").lower()
