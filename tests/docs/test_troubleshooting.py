"""Messages that the page of troubles quotes are the code's own."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt import errors

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
CELL = re.compile(r"^\| (`.*?`) \|", re.MULTILINE)


@functools.cache
def texts() -> str:
    """Every string of the package, with \\0 where an f-string fills something in."""
    found = []
    for path in Path(spark_ckpt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


QUOTED = [m for cell in CELL.findall(PAGE) for m in re.findall("`(.*?)`", cell) if not hasattr(errors, m)]


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_of_the_codes(message: str) -> None:
    missing = [part for part in message.split("…") if part.strip() not in texts()]
    assert missing == []


def test_the_page_quotes_many_and_names_every_class_of_errors() -> None:
    assert len(QUOTED) > 60
    ours = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.CkptError)}
    assert {n for n in ours - {"CkptError"} if f"`{n}`" not in PAGE} == set()
