"""Settings that Spark's analysis reads. Driver, classic Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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


Confs = Mapping[str, str]


def settings(spark: Any) -> Any:
    """The session's own map of what is set in it."""
    return spark._jsparkSession.sessionState().conf().settings()


def confs_now(spark: Any) -> Confs:
    """Those that count."""
    return {key: spark.conf.get(key) for key in _READ}


@contextmanager
def with_confs(spark: Any, wanted: Confs, now: Confs) -> Iterator[None]:
    """With the settings ``wanted``, and those of ``now`` behind it."""
    changed = {key: value for key, value in now.items() if wanted[key] != value}
    try:
        for key in changed:
            spark.conf.set(key, wanted[key])
        yield
    finally:
        for key, value in changed.items():
            spark.conf.set(key, value)
