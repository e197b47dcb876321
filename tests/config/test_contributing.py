"""The walks of CONTRIBUTING.md lead over files and names that are there."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.testing.sink_conformance import SinkConformance, SinkTarget

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
WALKS = ("Add a sink", "Add an aggregate", "Where does a barrier go")
RECORDS = ("triggers/K",)
"""In a job's folder."""


def _steps(title: str) -> list[str]:
    section = re.search(rf"^## {title}\n(.*?)(?=^## )", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert section is not None
    return re.split(r"^\d\. ", section[1], flags=re.MULTILINE)[1:]


def _quoted(step: str) -> set[str]:
    """What stands in backticks, but for blocks of code."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", step, flags=re.DOTALL))) - set(RECORDS)


def _is_path(text: str) -> bool:
    return " " not in text and bool(re.search(r"^[\w./]*(/|\.py|\.md|\.toml)[\w./]*$", text))


@pytest.mark.parametrize("title", WALKS)
def test_every_file_of_a_walk_is_there(title: str) -> None:
    paths = {text for step in _steps(title) for text in _quoted(step) if _is_path(text)}
    assert len(paths) > 5
    assert {path for path in paths if not (ROOT / path).is_file()} == set()


@pytest.mark.parametrize("title", WALKS)
def test_every_name_of_a_walk_is_in_a_file_that_its_step_names(title: str) -> None:
    """Or, in the first steps of a sink's walk, in the interfaces and the example that step 1 sends to."""
    steps = _steps(title)
    first = {p for p in _quoted(steps[0]) if _is_path(p)}
    for number, step in enumerate(steps, 1):
        found = _quoted(step)
        text = "".join((ROOT / p).read_text() for p in first | {p for p in found if _is_path(p)})
        names = {n for code in found if not _is_path(code) for n in re.findall(r"[A-Za-z_]\w{3,}", code)}
        missing = {n for n in names if not re.search(rf"\b{n}\b", text)}
        assert missing <= set(
            re.findall(r"\w+", "pip install spark ckpt testing grep help MySink mine path rows moved")
        ), number


def test_the_test_of_a_sink_that_is_shown_is_one() -> None:
    shown = re.search(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    assert shown is not None
    found: dict[str, Any] = {}
    exec(textwrap.dedent("   " + shown[1].lstrip()), found)
    assert issubclass(found["TestMySink"], SinkConformance)
    assert inspect.isabstract(SinkTarget)
    assert not inspect.isabstract(found["MyTarget"]), "what a target must say is all shown"
