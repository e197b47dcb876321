"""Hooks of mkdocs: pages that live outside docs/ join the site, and links to them lead there.

On a plain checkout `../../benchmarks/RESULTS.md` is right in docs/design/; in the site docs/ is the root.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
JOINED = ["benchmarks/RESULTS.md", *sorted(f"benchmarks/plots/{p.name}" for p in ROOT.glob("benchmarks/plots/*.svg"))]


def on_files(files: Any, config: Any) -> Any:
    for path in JOINED:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    at = page.file.src_uri
    up = "../" * at.count("/")
    if at in JOINED:
        return markdown.replace("](../docs/", f"]({up}")
    return markdown.replace(f"](../{up}benchmarks/", f"]({up}benchmarks/")
