"""Spark's analysed plan as text: its nodes. Driver; classic and Connect.

Classic Spark and Spark Connect both give this text; only classic Spark gives the objects behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.spark_versions.tree_strings import tree_string

SparkDF = Any

OF_FILES = re.compile(r"\binput_file_(?:name|block_start|block_length)\(\)")
"""What Spark knows of the file that it reads a row from."""
_LINE = re.compile(r"^((?:   |:  )*)(?:\+- |:- )")
_ID = re.compile(r"#\d+L?")


def plan_nodes(df: SparkDF) -> list[Node]:
    """The nodes of the analysed plan of ``df``."""
    if not type(df).__module__.startswith("pyspark.sql.classic"):
        # Behind the headline stands the schema: in one line only if no name in it has a line break.
        text = df.select(F.lit(0))._explain_string(mode="extended")
        start = text.index("== Analyzed Logical Plan ==\n")
        body = text[start : text.index("\n== Optimized Logical Plan ==", start)].split("\n", 2)[2]
        return [Node(node.text, node.depth - 1) for node in parse(body)[1:]]
    analyzed = df._jdf.queryExecution().analyzed()
    return parse(tree_string(analyzed))


@dataclass(frozen=True)
class Node:
    """One node of a plan. ``text`` is Spark's, ``depth`` its distance from the root."""

    text: str
    depth: int

    @property
    def name(self) -> str:
        return re.split(r"[^A-Za-z0-9]", self.text, maxsplit=1)[0]

    @property
    def same(self) -> str:
        """The text without expression ids, which differ between two analyses of one plan."""
        return _ID.sub("", self.text)

    @property
    def detail(self) -> str:
        return self.text[len(self.name) :].strip()


def parse(text: str) -> list[Node]:
    """The nodes in Spark's order, without the plans of subqueries in expressions."""
    nodes: list[Node] = []
    inner: int | None = None
    for line in text.rstrip("\n").split("\n"):
        found = _LINE.match(line)
        depth = len(found.group(1)) // 3 + 1 if found else 0
        if nodes and not found:
            # A literal with a line break in it.
            nodes[-1] = Node(f"{nodes[-1].text}\n{line}", nodes[-1].depth)
            continue
        if inner is not None and depth >= inner:
            continue
        # Children stand one step further in, the plan of a subquery in an expression stands two.
        inner = depth if nodes and depth > nodes[-1].depth + 1 else None
        if inner is None:
            nodes.append(Node(line[found.end() :] if found else line, depth))
    return nodes
