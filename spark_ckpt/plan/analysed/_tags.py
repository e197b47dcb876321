"""Marks on nodes of Spark's plans, which Spark carries along when it copies a node. Driver; classic Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import tree_node_tag

JavaObject = Any

OWN = "spark_ckpt.method"
"""The tag of a node that stands for a method of ours."""


def tag(node: JavaObject, name: str, value: str) -> JavaObject:
    """``node``, marked: the node itself is changed."""
    node.setTagValue(tree_node_tag(name), value)
    return node


def tag_of(node: JavaObject, name: str) -> str | None:
    found = node.getTagValue(tree_node_tag(name))
    return str(found.get()) if found.isDefined() else None
