"""docs/running.md says truly what versions of Spark do not have."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.connect.group import GroupedData as GroupedByClient

from spark_ckpt.errors import ConfigError
from spark_ckpt.plain.plugin import PlainDataSource
from spark_ckpt.spark_versions import spark_version

pytestmark = pytest.mark.smoke
PAGE = (Path(__file__).parents[2] / "docs/running.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (\d)\.(\d) \|", PAGE.partition("## Versions of Spark")[2], re.MULTILINE)


def _parses_qualify() -> bool:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as classes:
        return any("QualifyClauseContext" in name for name in classes.namelist())


def _is_a_plugin() -> bool:
    try:
        return PlainDataSource({}).options == {}
    except ConfigError as refused:
        return "needs Spark 4.2" not in str(refused)


HERE: dict[str, Callable[[], bool]] = {
    '`format("ckpt")` without `enable`': _is_a_plugin,
    "`QUALIFY`": _parses_qualify,
    "`transformWithState` with rows": lambda: hasattr(GroupedData, "transformWithState"),
    "`transformWithStateInPandas` over Spark Connect": lambda: hasattr(GroupedByClient, "transformWithStateInPandas"),
    "`DataFrame.zip`": lambda: hasattr(DataFrame, "zip"),
}


def test_what_the_table_has_is_there_since_the_version_that_it_says() -> None:
    assert {what: spark_version() >= (int(major), int(minor)) for what, major, minor in ROWS} == {
        what: is_here() for what, is_here in HERE.items()
    }
