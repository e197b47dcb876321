"""Classes and packages of Spark's JVM by their full names. Driver; classic Spark.

py4j asks the JVM at each dot of ``jvm.org.apache.spark...``, and a query is built of hundreds of such names. Here
nothing is asked until something is called.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage

CATALYST = "org.apache.spark.sql.catalyst"
COLUMN = "org.apache.spark.sql.Column"
EXPRESSION_UTILS = "org.apache.spark.sql.classic.ExpressionUtils"
OPTION = "scala.Option"


def java_class(name: str) -> Any:
    return JavaClass(name, _gateway()._gateway_client)


def java_package(name: str) -> Any:
    return JavaPackage(name, _gateway()._gateway_client, _gateway().jvm._id)


def to_seq(items: Iterable[Any]) -> Any:
    """A Scala ``Seq``."""
    return java_class("org.apache.spark.api.python.PythonUtils").toSeq(list(items))


def frame_of(plan: Any, spark: Any) -> Any:
    """The DataFrame that ``plan``, a plan of the JVM's, is."""
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(java_class("org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def is_a(value: Any, name: str) -> bool:
    """Whether ``value`` is an object of the class ``name``, or of one below it; not if py4j has made it Python's."""
    return hasattr(value, "_target_id") and bool(_is_instance_of(_gateway()._gateway_client)(name, value))


@functools.lru_cache(maxsize=1)
def _is_instance_of(client: Any) -> Any:
    return JavaClass("py4j.reflection.TypeUtil", client).isInstanceOf


def _gateway() -> Any:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None, "Spark runs in this process"
    return gateway
