"""Spark's analysed plan as text: its nodes, and what their conditions say about control rows. Pure.

Classic Spark and Spark Connect both give this text; only classic Spark gives the objects behind it. A line that is not
understood is never taken for harmless: :mod:`spark_ckpt.plan.plan_check` asks for a proof or tries the step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_ckpt.types import CTL, TAG

_LINE = re.compile(r"^((?:   |:  )*)(?:\+- |:- )")
_ID = re.compile(r"#\d+L?")
_IS_CONTROL = re.compile(rf"isnotnull\({CTL}(#\d+)?\)")
_IS_DATA = re.compile(rf"isnull\({CTL}(#\d+)?\)")
_PYTHON_UDF = re.compile(r"\)#\d+")
_DATA_ROWS_ONLY = re.compile(rf"[^\s(]\(isnotnull\({CTL}#\d+\)[,)]")
_OF_EXPRESSIONS = ("Project", "Filter", "Generate")
_DROPNA = "atleastnnonnulls("
_READ = re.compile(rf"(?<!AS ){TAG}#\d+L?\b(?! AS {TAG}#)")
_COMPUTED = re.compile(r"(\S+) AS (__ckpt_tag|__ckpt_ctl)#")


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


def without_right_sides(nodes: list[Node]) -> list[Node]:
    """The nodes without what joins have on their right."""
    hidden: set[int] = set()
    for at, node in enumerate(nodes):
        if node.name == "Join":
            end = next((i for i in range(at + 1, len(nodes)) if nodes[i].depth <= node.depth), len(nodes))
            sides = [i for i in range(at + 1, end) if nodes[i].depth == node.depth + 1]
            hidden.update(range(sides[-1], end))
    return [node for i, node in enumerate(nodes) if i not in hidden]


def keeps_control_rows(condition: str) -> bool:
    """Whether a filter's condition holds for every control row, whatever else it says."""
    if _IS_CONTROL.fullmatch(_bare(condition)):
        return True
    either = _split(condition, " OR ")
    if len(either) > 1:
        return any(map(keeps_control_rows, either))
    both = _split(condition, " AND ")
    return len(both) > 1 and all(map(keeps_control_rows, both))


def joins_data_rows_only(condition: str) -> bool:
    """Whether a join's condition holds for no control row."""
    if _IS_DATA.fullmatch(_bare(condition)):
        return True
    both = _split(condition, " AND ")
    return len(both) > 1 and any(map(joins_data_rows_only, both))


def reads_control_column(node: Node) -> bool:
    """Whether the epochs go into an expression: a projection that only passes them on names them once."""
    if node.name not in _OF_EXPRESSIONS or _DROPNA in node.text:  # that one has a way of its own
        return False
    return len(_READ.findall(node.text)) > (node.name == "Project")


def computed_control_column(node: Node) -> str | None:
    """A control column that the node does not hand on as it is."""
    for value, name in _COMPUTED.findall(node.text):
        if not re.fullmatch(rf"\[*{name}#\d+L?", value):
            return str(name)
    return None


def calls_python(node: Node) -> bool:
    """Whether an expression calls a Python function for control rows, too: Spark writes those with an id behind the
    arguments, and one that is told of control rows (:mod:`spark_ckpt.plan.udf_plan`) hears of them first.
    """
    return len(_PYTHON_UDF.findall(node.text)) > len(_DATA_ROWS_ONLY.findall(node.text))


def _bare(text: str) -> str:
    text = text.strip()
    while text.startswith("(") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return i
    return -1


def _split(text: str, word: str) -> list[str]:
    """The operands of ``word`` at the top of an expression."""
    text, parts, depth, start, i = _bare(text), [], 0, 0, 0
    while i < len(text):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0 and text.startswith(word, i):
            parts.append(text[start:i])
            i = start = i + len(word)
            continue
        i += 1
    return [*parts, text[start:]]
