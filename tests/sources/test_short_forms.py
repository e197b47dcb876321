"""Spark's names of file options, as source ``files`` understands them."""

from __future__ import annotations

from inspect import signature

import pytest
from pyspark.sql.streaming import DataStreamReader

from spark_ckpt.config_values import set_option
from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.spark_file_options import FILE_FORMATS, OnlySparkReadsError, files_options


def test_options_that_spark_calls_otherwise_become_the_sources_own() -> None:
    given = {"recursiveFileLookup": "true", "Delimiter": ";", "mode": "DropMalformed", "header": "true", "path": "/in"}
    assert files_options("csv", given) == {
        "fileFormat": "csv",
        "recursive": "true",
        "sep": ";",
        "mode": "DropMalformed",
        "header": "true",
        "enforceSchema": "true",
        "path": "/in",
    }


def test_options_that_say_what_the_source_does_anyhow_are_left_out_and_others_refused() -> None:
    same = {"inferSchema": "False", "encoding": "UTF-8", "lineSep": "\n", "mergeSchema": "false", "path": "/in"}
    for file_format in FILE_FORMATS:
        assert files_options(file_format, same) == {"fileFormat": file_format, "path": "/in"}
    for file_format, key, value, instead in (
        ("csv", "encoding", "latin1", "files are UTF-8"),
        ("parquet", "mergeSchema", "true", "give .schema(...)"),
        ("json", "latestFirst", "true", "expected 'false', which is how files are read here, found 'true'"),
        ("json", "cleanSource", "delete", "once a completed checkpoint covers them"),
        ("orc", "modifiedAfter", "2020-01-01T00:00:00", "not there, .*Spark's streams do not allow it, either"),
        ("csv", "escape", "\\", "with badRecords a quote within quotes is written twice"),
        ("json", "multiLine", "true", "one JSON object a line"),
        ("json", "allowComments", "true", r"readStream.spark\(spark.readStream...\)"),
    ):
        with pytest.raises(ConfigError, match=f"reader option {key} of {file_format}: .*{instead}"):
            files_options(file_format, {"path": "/in", key: value})
    options = files_options("csv", {"path": "/in", "comment": "#", "badRecords": "skip"})
    with pytest.raises(ConfigError, match=r"expected mode \(and comment\) or badRecords, found both"):
        open_source("files", options, None, "")
    with pytest.raises(OnlySparkReadsError, match="a record is read whole"):
        files_options("csv", {"mode": "dropMalformed", "columnPruning": "false"})
    assert files_options("csv", {"columnPruning": "true"}, mode="PERMISSIVE") == {
        "fileFormat": "csv",
        "mode": "PERMISSIVE",
    }
    assert files_options("json", {"mode": "Permissive"}) == {"fileFormat": "json", "mode": "Permissive"}
    with pytest.raises(ConfigError, match=r"expected FAILFAST or DROPMALFORMED .*, found 'permissive'.*badRecords"):
        files_options("parquet", {"mode": "permissive"})
    assert files_options("parquet", {"mergeSchema": "true"}, has_schema=True) == {"fileFormat": "parquet"}


def test_the_last_of_a_name_in_any_case_counts_and_none_is_no_option() -> None:
    options = {"SEP": ";", "quote": "'", "Header": "true"}
    for name, value in (("sep", None), ("header", False), ("maxFilesPerTrigger", 3), ("Quote", "x"), ("qUOTE", "y")):
        set_option(options, name, value)
    assert options == {"header": "false", "maxFilesPerTrigger": "3", "qUOTE": "y"}


STREAM_OPTIONS = [
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "maxFileAge", "cleanSource",
    "sourceArchiveDir", "recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter", "mergeSchema",
    "maxCachedFiles", "discardCachedInputRatio", "ignoreMissingFiles", "ignoreCorruptFiles", "basePath",
]  # fmt: skip
"""What Spark's documentation has of options of its streams of files."""


def test_every_option_of_sparks_readers_of_files_is_there_or_refused_by_name_with_what_to_do() -> None:
    for file_format in FILE_FORMATS:
        sparks = list(signature(getattr(DataStreamReader, file_format)).parameters)[1:]
        for name in {*sparks, *STREAM_OPTIONS} - {"path", "schema"}:
            try:
                open_source("files", files_options(file_format, {"path": "/in", name: "nonsense"}), None, "")
            except ConfigError as error:
                said = str(error)
                known = f"reader option {name} of {file_format}: " in said or f"option '{name}' of source" in said
                assert known or name in NAMED_ONLY or name in ("recursiveFileLookup", "delimiter"), said


NAMED_ONLY = ("comment", "charToEscapeQuoteEscaping", "enforceSchema")
"""Refused by name, and Spark has nothing that could be said instead."""
