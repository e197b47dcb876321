"""Patterns and globs mean what they mean to Java and Hadoop in this session; more of both: ``tests/sources``."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from spark_ckpt.expressions.java_regex import UnsureError, searcher
from spark_ckpt.sources._globs import GlobError, NameGlob
from spark_ckpt.sources.files import FilesSource
from tests.sources.globs_oracle import NAMES, globs, make_tree
from tests.sources.regexes_oracle import TEXTS, patterns


def test_globs_of_names_match_as_in_this_hadoop(spark: SparkSession) -> None:
    of_hadoop: Any = spark._jvm.org.apache.hadoop.fs.GlobPattern  # type: ignore[union-attr]

    def here(glob: str) -> list[bool] | None:
        try:
            return [NameGlob(glob).matches(name) for name in names]
        except GlobError:
            return None

    def there(glob: str) -> list[bool] | None:
        try:
            pattern = of_hadoop(glob)
            return [bool(pattern.matches(name)) for name in names]
        except Exception:  # noqa: BLE001 - several of Java's, wrapped
            return None

    names = NAMES[:20]
    read = {glob: found for glob in globs(11, 60, 0)[0] if (found := here(glob)) is not None}
    assert [(glob, found) for glob, found in read.items() if found != there(glob)] == []
    assert len(read) > 30


def test_patterns_find_what_this_java_finds(spark: SparkSession) -> None:
    of_java: Any = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    wrong, read = [], 0
    for pattern in patterns(11, 60):
        try:
            here = searcher(pattern, True)
        except UnsureError:
            continue
        read += 1
        there = of_java.compile(pattern)  # what is read here, Java does not refuse
        wrong += [(pattern, t) for t in TEXTS[::2] if here.finds(t) != there.matcher(t).find()]
    assert (wrong, read > 15) == ([], True)


def test_spark_finds_patterns_of_topics_in_names_and_not_as_whole_names(spark: SparkSession) -> None:
    """By this setting its Kafka source asks the brokers itself, and looks with ``findFirstIn`` (see docs/kafka.md)."""
    assert spark.conf.get("spark.sql.streaming.kafka.useDeprecatedOffsetFetching") == "false"


def test_a_stream_of_files_reads_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    make_tree(tmp_path)
    paths = (
        "*.json",
        "{a,b}/*",
        "{a/b,b/c}/x.json",
        "[^a]/*",
        "part-\\*.json",
        "a/[!x].{json,csv}",
        "\\{a,b\\}/*",
        "a\\*/*",
    )
    given = [{"path": path} for path in paths]
    given += [{"path": "*", "pathGlobFilter": glob} for glob in ("*.{csv,tsv}", "[^x]*", "part-\\*.json", "?.json")]
    for one in given:
        options = {**one, "path": f"{tmp_path}/{one['path']}"}
        table = spark.read.format("text").options(**{k: v for k, v in options.items() if k != "path"})
        expected = {f.removeprefix("file://") for f in table.load(options["path"]).inputFiles()}
        found = {e.path for e in FilesSource({**options, "fileFormat": "text"}).folder().files()}
        assert found == {unquote(name) for name in expected}, one
        assert found, one
