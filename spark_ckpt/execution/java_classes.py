"""Classes and packages of Spark's JVM by their full names. Driver; classic Spark.

py4j asks the JVM at each dot of ``jvm.org.apache.spark...``, and a query is built of hundreds of such names. Here
nothing is asked until something is called.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage

CATALYST = "org.apache.spark.sql.catalyst"
COLUMN = "org.apache.spark.sql.Column"
EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
OPTION = "scala.Option"
_ID = re.compile(r"#(\d+)L?(?:-T\d+ms)?$")
_SHORT = 3


def java_class(name: str) -> Any:
    return _known_class(_gateway()._gateway_client, name)


@functools.lru_cache(maxsize=256)
def _known_class(client: Any, name: str) -> Any:
    return _Class(name, client)


class _Class(JavaClass):  # type: ignore[misc]
    """Asks once what each of its static methods and fields is: py4j asks each time."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if not name.startswith("__"):
            self.__dict__[name] = found
        return found


def java_package(name: str) -> Any:
    return JavaPackage(name, _gateway()._gateway_client, _gateway().jvm._id)


def class_name(value: Any) -> str:
    """The name of its class, without its package. Asked once for each reference to it."""
    return str(once(value, "class", lambda: java_class("org.apache.spark.util.Utils").getFormattedClassName(value)))


def attribute_id(attribute: Any) -> int:
    """The number in its ``exprId``, which its text ends with: that is one call, and no object to forget."""
    return int(once(attribute, "id", lambda: _ID.search(attribute.toString())[1]))  # type: ignore[index]


def once(found: Any, what: str, ask: Callable[[], Any]) -> Any:
    """What the JVM says of an object that never changes, asked once for each reference to it."""
    known = found.__dict__
    name = f"_ckpt_{what}"
    if name not in known:
        known[name] = ask()
    return known[name]


def to_seq(items: Iterable[Any]) -> Any:
    """A Scala ``Seq``. A short one is a list from its end, which takes fewer calls."""
    found = list(items)
    if len(found) > _SHORT:
        return java_class("org.apache.spark.api.python.PythonUtils").toSeq(found)
    made = getattr(java_class("scala.collection.immutable.Nil$"), "MODULE$")
    for item in reversed(found):
        made = getattr(made, "$colon$colon")(item)
    return made


def seq_items(found: Any) -> list[Any]:
    """The elements of a Scala ``Seq``."""
    return [found.apply(place) for place in range(found.size())]


def items_of(found: Any) -> list[Any]:
    """The elements of a Scala collection or iterator."""
    return seq_items(found.toSeq())


@functools.lru_cache(maxsize=16)
def _tree_node_tag(client: Any, name: str) -> Any:
    return JavaClass(f"{CATALYST}.trees.TreeNodeTag", client)(name)


def tree_node_tag(name: str) -> Any:
    """Spark's key of a mark on a node."""
    return _tree_node_tag(_gateway()._gateway_client, name)


def frame_of(plan: Any, spark: Any) -> Any:
    """The DataFrame that ``plan``, a plan of the JVM's, is."""
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(java_class("org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def is_a(value: Any, name: str) -> bool:
    """Whether ``value`` is an object of the class ``name``, or of one below it; not if py4j has made it Python's."""
    return hasattr(value, "_target_id") and bool(java_class("py4j.reflection.TypeUtil").isInstanceOf(name, value))


def _gateway() -> Any:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None, "Spark runs in this process"
    return gateway
