"""Settings that Spark reads when it analyses a DataFrame, and so holds from then on. Driver.

A start builds the plan anew, when the session may say something else. Spark Connect analyses a stream when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from spark_ckpt.plan.chain import InSpark, Recipe
from spark_ckpt.plan.session_confs import CHANGING

_READ = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.timestampType",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.parser.quotedRegexColumnNames",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "spark.sql.legacy.negativeIndexInArrayInsert",
)
_made: WeakKeyDictionary[Recipe, Mapping[str, str]] = WeakKeyDictionary()


def remember(recipe: Recipe, spark: Any) -> None:
    """That ``recipe`` is made now, if it was not before."""
    if hasattr(spark, "_jsparkSession") and recipe not in _made:
        _made[recipe] = _now(spark)


@contextmanager
def as_when_made(recipe: Recipe, spark: Any) -> Iterator[None]:
    """With the session's settings of then, those of now behind it."""
    wanted = _made.get(recipe, {})
    if not _changed(wanted, spark):
        yield
        return
    with CHANGING:  # no query starts with these, and no thread takes them for the session's
        before = _changed(wanted, spark)
        try:
            for key in before:
                spark.conf.set(key, wanted[key])
            yield
        finally:
            for key, value in before.items():
                spark.conf.set(key, value)


def _changed(wanted: Mapping[str, str], spark: Any) -> dict[str, str]:
    """What the session says now of the settings that are not as ``wanted``."""
    now = _now(spark) if wanted else {}
    return {key: now[key] for key in wanted if wanted[key] != now[key]}


def step_as_when_made(recipe: Recipe, spark: Any, step: InSpark) -> InSpark:
    """``step`` of ``recipe``, which is done only when somebody goes on in Spark."""

    def done(rows: Any) -> Any:
        with as_when_made(recipe, spark):
            return step(rows)

    return done


def _now(spark: Any) -> dict[str, str]:
    get: Callable[[str], str] = spark.conf.get
    return {key: get(key) for key in _READ}
