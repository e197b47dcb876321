"""``toTable`` and ``table``: a table of the session's catalog, by its name, as what stands where it is. Driver."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import ConfigError, InvalidInputError

_FILES = ("parquet", "json")
_DELTA_PATH = re.compile(r"delta\s*\.\s*`((?:[^`]|``)+)`", re.IGNORECASE)
_DEFAULT = "parquet"


def table_sink(spark: Any, name: str, wanted: str | None, schema: StructType) -> tuple[str, str]:
    """The format and path of table ``name``, which is made if there is none, with ``schema`` and format ``wanted``.

    Raises ``ConfigError`` for a table that no sink writes, ``InvalidInputError`` if its columns are others.
    """
    if not spark.catalog.tableExists(name):
        _create(spark, name, (wanted or _DEFAULT).lower(), schema)
    facts = _facts(spark, name)
    provider, location = facts.get("Provider", "").lower(), facts.get("Location", "")
    if facts.get("Type") == "VIEW" or provider not in (*_FILES, "delta") or not location:
        raise ConfigError(
            f"toTable({name!r}): expected a table of format parquet, json or delta, found "
            f"{'a view' if facts.get('Type') == 'VIEW' else provider or 'no format'}; write to a path or a database "
            "by format(...).start()"
        )
    if wanted is not None and wanted.lower() != provider:
        raise ConfigError(
            f"toTable({name!r}): the table's format is {provider}, and {wanted!r} was given; leave it out"
        )
    if provider in _FILES:
        _check(spark, name, facts, schema)
    return provider, _path(location)


def table_source(spark: Any, name: str) -> tuple[str, str, StructType | None]:
    """The format, path and columns of table ``name``; no columns where the source knows them itself.

    Raises ``ConfigError`` for one that no source reads, Spark's ``AnalysisException`` if there is none.
    """
    if by_path := _DELTA_PATH.fullmatch(name.strip()):
        return "delta", by_path[1].replace("``", "`"), None  # no table of the catalog, so nobody needs Delta's jars
    facts = _facts(spark, name)
    provider, location = facts.get("Provider", "").lower(), facts.get("Location", "")
    if provider == "delta" and location:
        return provider, _path(location), None
    schema = _columns(spark, name)
    if facts.get("Type") == "VIEW" or provider not in _FILES or not location or "partitioned" in facts:
        kind = "a view" if facts.get("Type") == "VIEW" else provider or "no format"
        raise ConfigError(
            f"readStream.table({name!r}): expected a Delta table, or one of parquet or json files without partitions, "
            f"found {f'{kind}, partitioned' if 'partitioned' in facts else kind}; read a folder of files, or write a "
            "Python streaming DataSource"
        )
    return provider, _path(location), schema


def _columns(spark: Any, name: str) -> StructType:
    schema: StructType = spark.table(name).schema
    # Spark remembers which files there were when it was asked: who reads the table first is to see those of by then.
    spark.catalog.refreshTable(name)
    return schema


def _path(location: str) -> str:
    return f"file://{location[5:]}" if location.startswith("file:/") and "://" not in location else location


def _create(spark: Any, name: str, wanted: str, schema: StructType) -> None:
    if wanted not in (*_FILES, "delta"):
        raise ConfigError(f"toTable({name!r}): a new table is one of parquet, json or delta, found {wanted!r}")
    try:
        spark.catalog.createTable(name, source=wanted, schema=schema)
    except Exception as error:
        if wanted != "delta" or "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise ConfigError(
            f"toTable({name!r}): this session cannot make Delta tables, which needs Delta's jars; "
            "format('delta').start(path) makes one by its path"
        ) from None


def _facts(spark: Any, name: str) -> dict[str, str]:
    """What Spark says of the table besides its columns."""
    rows = [(row[0], row[1]) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    at = next((i for i, (key, _) in enumerate(rows) if key.startswith("# Detailed Table Information")), len(rows))
    partitioned = any(key == "# Partition Information" for key, _ in rows[:at])
    return {**dict(rows[at:]), **({"partitioned": "yes"} if partitioned else {})}


def _check(spark: Any, name: str, facts: dict[str, str], schema: StructType) -> None:
    """What the sink that writes the files does not see."""
    if "partitioned" in facts:
        raise ConfigError(
            f"toTable({name!r}): a partitioned table of files knows its partitions by its catalog, which no sink "
            "tells; "
            "use a Delta table, or format(...).partitionBy(...).start(path)"
        )
    there = [(f.name, f.dataType.simpleString()) for f in _columns(spark, name)]
    ours = [(f.name, f.dataType.simpleString()) for f in schema]
    others = [column for column in ours if column not in there]
    if others:  # files go by names: in another order they are the same, and a column that is missing is null
        raise InvalidInputError(
            f"toTable({name!r}): the table's columns are {there}, and the query has others: {others}; cast, rename or "
            "leave out"
        )
