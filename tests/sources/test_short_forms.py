"""Spark's names of file options, as source ``files`` understands them."""

from __future__ import annotations

import pytest

from spark_ckpt.api._readers import files_options
from spark_ckpt.config_values import set_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.base import open_source


def test_options_that_spark_calls_otherwise_become_the_sources_own() -> None:
    given = {"recursiveFileLookup": "true", "Delimiter": ";", "mode": "DropMalformed", "header": "true", "path": "/in"}
    assert files_options("csv", given) == {
        "fileFormat": "csv",
        "recursive": "true",
        "sep": ";",
        "badRecords": "skip",
        "header": "true",
        "path": "/in",
    }


def test_options_that_say_what_the_source_does_anyhow_are_left_out_and_others_refused() -> None:
    same = {"inferSchema": "False", "encoding": "UTF-8", "lineSep": "\n", "mergeSchema": "false", "path": "/in"}
    assert files_options("parquet", same) == {"fileFormat": "parquet", "path": "/in"}
    for key, value in (("encoding", "latin1"), ("mergeSchema", "true"), ("comment", "#")):
        options = files_options("csv", {"path": "/in", key: value})
        with pytest.raises(ConfigError, match=f"(?i)has no option '{key}'; valid options: badRecords"):
            open_source("files", options, None, "")
    assert files_options("json", {"mode": "Permissive"}) == {"fileFormat": "json", "mode": "Permissive"}
    with pytest.raises(ConfigError, match=r"expected FAILFAST or DROPMALFORMED .*, found 'permissive'.*badRecords"):
        files_options("parquet", {"mode": "permissive"})


def test_the_last_of_a_name_in_any_case_counts_and_none_is_no_option() -> None:
    options = {"SEP": ";", "quote": "'", "Header": "true"}
    for name, value in (("sep", None), ("header", False), ("maxFilesPerTrigger", 3), ("Quote", "x"), ("qUOTE", "y")):
        set_option(options, name, value)
    assert options == {"header": "false", "maxFilesPerTrigger": "3", "qUOTE": "y"}
