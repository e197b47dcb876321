"""What the README and its neighbours name is there. Their code runs in tests/docs/test_pages_code.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/configuration.md"])
def test_links_lead_to_files_that_are_there(document: str) -> None:
    path = ROOT / document
    broken = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert broken == []


def test_every_make_target_named_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(
        re.findall(r"^make ([a-z]+)|`make ([a-z]+)", README + (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    )
    assert {a or b for a, b in named} <= targets


def test_continuous_integration_runs_the_readmes_command() -> None:
    assert "make test" in README
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
