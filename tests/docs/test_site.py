"""The site builds, every link and anchor of it leads somewhere, and its generated parts are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts.site_docs import pages, rendered
from spark_ckpt.spark_versions import spark_version

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: broken links, anchors and pages that the menu lacks are errors."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


class Page(HTMLParser):
    """What a page asks for, and what of it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.bare: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given["id"]} if "id" in given else set()
        if tag in ("script", "img", "iframe") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loads.append(given["href"])
        if tag == "img" and not given.get("alt"):
            self.bare.append(given["src"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


def test_every_link_leads_to_a_file_and_an_anchor_that_is_there(site: Path) -> None:
    found = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(found) > 20
    broken = []
    for path, page in found.items():
        for link in page.links + page.loads:
            if re.match(r"https?:|mailto:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.is_file() or (
                anchor and target in found and anchor not in found[target].anchors | {"__skip"}
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_works_from_the_file_system_and_asks_nobody_else(site: Path) -> None:
    for path in site.rglob("*.html"):
        page = Page(path)
        if path.name != "404.html":
            assert [load for load in page.loads if re.match("(https?:)?/", load)] == [], path
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")


def test_every_picture_has_a_text(site: Path) -> None:
    assert [(path.name, src) for path in site.rglob("*.html") for src in Page(path).bare] == []
    assert [p.name for p in (ROOT / "docs" / "img").glob("*.svg") if "<title>" not in p.read_text()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_generated_parts_of_a_page_are_what_the_code_says(page: Path) -> None:
    text = page.read_text()
    if page.name == "expressions.md" and spark_version() != (4, 2):
        pytest.skip("it lists the functions of PySpark 4.2")
    assert text == rendered(text), "run `make docs`"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_links_work_on_a_plain_checkout_too(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
