"""Workers cannot import the tests: what chains give to them is pickled with its code."""

from __future__ import annotations

from pyspark import cloudpickle

from tests.generated import functions, keyed_operations, operations, query_functions, refused


def register() -> None:
    for module in (functions, keyed_operations, refused, operations, query_functions):
        cloudpickle.register_pickle_by_value(module)
