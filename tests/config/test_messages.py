"""Whatever setting, option or command a message of the package names, there is."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.config import config_keys
from spark_ckpt.plain import _options as _plain_options
from spark_ckpt.sinks.registry import sink_class
from spark_ckpt.sources import files, rate
from spark_ckpt.sources.delta import options as delta
from spark_ckpt.sources.iceberg import source as iceberg
from spark_ckpt.sources.kafka import source as kafka
from spark_ckpt.sources.sql import source as sql

PACKAGE = Path(spark_ckpt.__file__).parent
GROUP = typer.main.get_command(app)
COMMANDS = dict(GROUP.commands)  # type: ignore[attr-defined]
SPARKS_OWN = {"checkpointLocation", "endingOffsets"}
ANY = "\0"
"""In place of what an f-string fills in."""


def _literals() -> Iterator[tuple[str, str]]:
    """(place, text) of every string in the package; those that are written one behind the other are one."""
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE.parent)
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.JoinedStr | ast.Constant)]
        inside = {id(v) for n in nodes if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(v.value) if isinstance(v, ast.Constant) else ANY for v in node.values)
                yield f"{file}:{node.lineno}", text
            elif isinstance(node.value, str) and id(node) not in inside:
                yield f"{file}:{node.lineno}", node.value


@functools.cache
def literals() -> list[tuple[str, str]]:
    """Read by the first test that asks: every process of a run imports this module."""
    return list(_literals())


def test_every_setting_that_a_text_names_is_one() -> None:
    known = {k.lower() for k in config_keys()}
    named = [(p, m) for p, t in literals() for m in re.findall(r"spark\.ckpt\.([A-Za-z][A-Za-z.]*[A-Za-z])", t)]
    assert len(named) > 20
    assert [n for n in named if n[1].lower() not in known and not n[1].startswith("storage")] == []


def test_every_command_and_flag_that_a_text_names_is_one() -> None:
    found = 0
    for place, text in literals():
        for match in re.finditer(r"spark-ckpt ([a-z][a-z-]*)([^`'.;]*)", text):
            name, rest = match[1], match[2]
            if name not in COMMANDS and not re.search(r"[`']spark-ckpt ", text[max(0, match.start() - 1) :]):
                continue  # prose: "spark-ckpt heartbeat"
            found += 1
            assert name in COMMANDS, f"{place}: {match[0]}"
            flags = {flag for p in COMMANDS[name].params for flag in p.opts}
            assert set(re.findall(r"--[a-z-]+", rest)) <= flags, f"{place}: {match[0]}"
    assert found > 5
    flags = {flag for c in (GROUP, *COMMANDS.values()) for p in c.params for flag in p.opts}
    submit = {f for f in _plain_options.FLAGS if f.startswith("--")} | {"--conf", "--properties-file"}  # Spark's own
    protoc = {"--include", "--descriptor"}  # which go on behind an underscore
    simulate = {"--seed", "--seeds", "--sabotage", "--first"}
    named = {(p, f) for p, t in literals() if "/testing/" not in p for f in re.findall(r"(?<![\w-])--[a-z][a-z-]+", t)}
    assert [n for n in named if n[1] not in flags | protoc | simulate | submit] == []


def test_every_option_that_a_text_names_is_one() -> None:
    sinks = {o for s in ("delta", "files", "iceberg", "kafka", "sql", "memory") for o in sink_class(s).OPTIONS}
    sources = {o for s in (delta, files, iceberg, kafka, rate, sql) for o in s.OPTIONS}
    own = {"uid", "lanes", "columns", "source", "sink", "job", "dir", "path", *config_keys()}
    known = {o.lower() for o in sinks | sources | own | SPARKS_OWN}
    named = [(p, m) for p, t in literals() for m in re.findall(r"\boptions? '([A-Za-z.]+)'", t)]
    assert len(named) > 5
    assert [n for n in named if n[1].lower() not in known and not n[1].startswith("storage")] == []


@pytest.mark.parametrize("word", ["spark.ckpt.noSuch", "`spark-ckpt frobnicate`", "option 'noSuch'"])
def test_a_name_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    checks = (
        test_every_setting_that_a_text_names_is_one,
        test_every_command_and_flag_that_a_text_names_is_one,
        test_every_option_that_a_text_names_is_one,
    )
    with_one_more = [*literals(), ("here", f"set {word} to that")]
    monkeypatch.setattr(f"{__name__}.literals", lambda: with_one_more)
    failed = 0
    for check in checks:
        try:
            check()
        except AssertionError:
            failed += 1
    assert failed == 1
