"""Whatever key, option or command a page names, there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from spark_ckpt.cli import app
from spark_ckpt.config import config_keys
from spark_ckpt.sinks.registry import sink_class
from spark_ckpt.sources import files, rate, rate_micro_batch
from spark_ckpt.sources.delta import options as delta
from spark_ckpt.sources.iceberg import source as iceberg
from spark_ckpt.sources.kafka import source as kafka
from spark_ckpt.sources.sql import source as sql

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
KEYS = {key.lower() for key in config_keys()}
SINKS = {o for s in ("delta", "files", "iceberg", "kafka", "sql", "memory") for o in sink_class(s).OPTIONS}
SOURCES = {o for s in (delta, files, iceberg, kafka, rate, rate_micro_batch, sql) for o in s.OPTIONS}
OF_THE_PLUGIN = {"source", "sink", "sinks", "columns", "where", "job"}
OPTIONS = {o.lower() for o in SINKS | SOURCES | {"uid", "lanes"}} | KEYS
OF_OTHERS = {
    "checkpointLocation", "ignoreNullFields", "pipeline.auto-generate-uids", "isolation.level",
    "delta.enableChangeDataFeed",
}  # fmt: skip
"""Spark's, Flink's, Kafka's and Delta's own, which pages name as such."""
NO_OPTIONS = {
    "emit", "once", "column", "day", "n", "database", "foreachBatch", "of", "offsets", "files", "orderBy", "every",
}  # fmt: skip
"""Arguments of methods, columns of examples, folders, and the option of a source that a page makes."""


def settings_that_are_none(text: str) -> list[str]:
    named = re.findall(r"spark\.ckpt\.([A-Za-z][A-Za-z.]*[A-Za-z])", text)
    return [name for name in named if name.lower() not in KEYS and not name.startswith("storage")]


def options_that_are_none(text: str) -> list[str]:
    named = [
        *re.findall(r"\.option\(\s*[\"']([^\"']+)[\"']", text),
        *re.findall(r"`([A-Za-z][A-Za-z.-]*)=[^`\n]*`", text),
        *re.findall(r"\boptions? `([A-Za-z][A-Za-z.*-]+)", text),
    ]
    return [name for name in named if not _is_option(name)]


def _is_option(name: str) -> bool:
    if name.startswith("spark."):
        return not settings_that_are_none(name)
    if name in OF_OTHERS | NO_OPTIONS | OF_THE_PLUGIN or name.startswith(("kafka.", "catalog.", "storage")):
        return True
    return any(part.lower() in OPTIONS | OF_THE_PLUGIN for part in (name, name.rpartition(".")[2]))


def commands_that_are_none(text: str) -> list[str]:
    commands = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    found = []
    for name, rest in re.findall(r"(?:`|^)spark-ckpt ([a-z][a-z-]*)([^`\n]*)", text, re.MULTILINE):
        flags = {flag for p in commands[name].params for flag in p.opts} if name in commands else set()
        found += [name] if name not in commands else sorted(set(re.findall(r"(?<!\w)--[a-z-]+", rest)) - flags)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_key_option_and_command_that_a_page_names_is_one(page: Path) -> None:
    text = page.read_text()
    assert settings_that_are_none(text) == []
    assert options_that_are_none(text) == []
    assert commands_that_are_none(text) == []


def test_what_is_none_is_noticed_and_pages_name_many() -> None:
    assert settings_that_are_none("set `spark.ckpt.idleTimeout` to 1s, or `spark.ckpt.interval`") == ["idleTimeout"]
    named = '.option("noSuch", "1") and `noneOf=them`, option `otherOne`, .option("path", "x")'
    assert options_that_are_none(named) == ["noSuch", "noneOf", "otherOne"]
    named = "`spark-ckpt frobnicate DIR`, `spark-ckpt list DIR --nope`"
    assert commands_that_are_none(named) == ["frobnicate", "--nope"]
    everything = "".join(page.read_text() for page in PAGES)
    assert len(re.findall(r"spark\.ckpt\.[a-z]", everything)) > 100
