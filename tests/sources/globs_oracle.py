"""Writes ``globs_of_hadoop.json``: what Hadoop makes of generated globs. ``python -m tests.sources.globs_oracle``."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark

RECORDED = Path(__file__).with_name("globs_of_hadoop.json")
NAMES = [
    *("\U0001d4b3", "a", "b", "ab", "abc", "ba", "c", "0", "part-0.json", "part-1.json", "part-*.json", "a.csv"),
    *("a.tsv", "A", "x y", "[a]", "a]", "-", "^a", "!a", "{a,b}", "a,b", "(a)", "?", ".", "_a", ".a", "a|b", "a$"),
    *("a+", ":", "ä", "a\nb"),
]  # fmt: skip
TREE = [
    *("a/x.json", "a/y.csv", "a/b/z.json", "b/x.json", "b/c/x.json", "ab/x.json", "{a,b}/x.json", "[a]/x.json"),
    *("a*/x.json", "day=1/x.json", "_h/x.json", ".h/x.json", "x.json", "part-*.json", "part-1.json", "c d/x.json"),
]  # fmt: skip
_TOKENS = [
    *("a", "b", "c", "x", "-", "^", "!", ",", ".", "*", "*", "?", "[", "]", "{", "}", "[a", "b]", "[^a]", "[!a-b]"),
    *("{a,", "b}", "{a,b}", "[a-c]", "[]a]", "\\*", "\\[", "\\{", "\\,", "\\-", "\\", "part-", ".json", "|", "("),
    *("$", "+", "ä", "[^]"),
]  # fmt: skip
_PATH_TOKENS = [
    *("a", "b", "x", "*", "*", "?", "{a,b}", "{a/b,b/c}", "{a/x,{b,ab}/x}", "[ab]", "[^a]", "\\*", "\\{a,b\\}"),
    *("\\[a]", "*.json", "x.json", "{x,y}.{json,csv}", "{a,b}/{x.json,c/*}", "/", "{", "}", "[", "]", "{a,/b}"),
]  # fmt: skip


def made(tokens: list[str], chosen: random.Random, between: str = "") -> str:
    return between.join(chosen.choice(tokens) for _ in range(chosen.randint(1, chosen.randint(1, 3 if between else 6))))


def globs(seed: int, names: int, paths: int) -> tuple[list[str], list[str]]:
    """Globs for names, and for paths below a root."""
    chosen = random.Random(seed)
    wanted = sorted({made(_TOKENS, chosen) for _ in range(names)})
    below = {made(_PATH_TOKENS, chosen, chosen.choice(["", "/", "/"])).strip("/") or "*" for _ in range(paths)}
    return wanted, sorted(below)


def make_tree(root: Path) -> None:
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")


def answers_of(program: str, questions: Iterable[dict[str, Any]]) -> list[Any]:
    """A line of JSON for each question, by a program in Java of this folder, with Spark's jars."""
    jars = Path(pyspark.__file__).parent / "jars"
    command = ["java", "-cp", f"{jars}/*", str(RECORDED.with_name(program))]
    text = "".join(f"{json.dumps(q)}\n" for q in questions)
    answers = subprocess.run(command, input=text, capture_output=True, check=True, encoding="utf-8").stdout
    return [json.loads(line) for line in answers.splitlines()]


def main() -> None:
    of_names, of_paths = globs(7, 3200, 1400)
    with tempfile.TemporaryDirectory() as folder:
        make_tree(Path(folder))
        asked: list[dict[str, Any]] = [{"glob": g, "names": NAMES} for g in of_names]
        asked += [{"glob": g, "root": folder} for g in of_paths]
        answers = answers_of("GlobsOfHadoop.java", asked)
    lines = [json.dumps([g, a]) for g, a in zip([*of_names, *of_paths], answers, strict=True)]
    names, paths = lines[: len(of_names)], lines[len(of_names) :]
    body = ",\n".join((*names, *paths))
    RECORDED.write_text(f'{{"names": {len(names)}, "globs": [\n{body}\n]}}\n')


if __name__ == "__main__":
    main()
