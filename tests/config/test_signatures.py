"""A call that is right in PySpark is right here: parameters, their order, names and defaults. Needs no Spark."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.connect.streaming import query as connect_query
from pyspark.sql.connect.streaming import readwriter as connect_streams
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery, StreamingQueryManager

import spark_ckpt
from spark_ckpt.api._streams import CkptStreams
from tests.docs.test_methods_page import methods

Spark = Callable[..., Any]
OURS: list[tuple[type, tuple[type, ...], tuple[str, ...]]] = [
    (spark_ckpt.CkptDataStreamReader, (DataStreamReader, connect_streams.DataStreamReader), ()),
    (spark_ckpt.CkptDataStreamWriter, (DataStreamWriter, connect_streams.DataStreamWriter), ()),
    (spark_ckpt.CkptQuery, (StreamingQuery, connect_query.StreamingQuery), ()),
    (CkptStreams, (StreamingQueryManager, connect_query.StreamingQueryManager), ()),
    (spark_ckpt.CkptSession, (SparkSession, ConnectSession), ("readStream", "streams")),
]
"""Ours, PySpark's classic and Connect's, and the methods, if not all."""


def _methods() -> Iterator[Any]:
    for ours, sparks, names in OURS:
        for name in names or sorted(methods(sparks[0]) & set(dir(ours))):
            yield pytest.param(ours, sparks, name, id=f"{ours.__name__}.{name}")


def _parameters(cls: type, name: str) -> list[Parameter] | None:
    """None for what is not called."""
    found = inspect.unwrap(inspect.getattr_static(cls, name))  # some of Connect are cached
    if not inspect.isfunction(found):
        assert isinstance(found, property) or hasattr(found, "attrname"), found
        return None
    return list(inspect.signature(found).parameters.values())[1:]


def _differences(ours: list[Parameter], sparks: list[Parameter]) -> list[str]:
    """What is right for ``sparks`` and wrong, or something else, for ``ours``."""
    named = {p.name: p for p in ours if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)}
    several, keywords = (
        any(p.kind is kind for p in ours) for kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    )
    wrong = []
    for place, p in enumerate(sparks):
        here = named.get(p.name)
        if p.kind is Parameter.VAR_POSITIONAL:
            wrong += [] if several else [f"*{p.name} is missing"]
        elif p.kind is Parameter.VAR_KEYWORD:
            wrong += [] if keywords or (p.name == "kwargs" and "ascending" in named) else [f"**{p.name} is missing"]
        elif here is None:
            # An option of a reader: whatever has no value is none.
            fits = keywords and (several or p.kind is Parameter.KEYWORD_ONLY) and p.default in (None, False)
            wrong += [] if fits else [f"{p.name} is missing"]
        elif here.default != p.default:
            wrong.append(f"{p.name} is {here.default!r}, in PySpark {p.default!r}")
        elif p.kind is Parameter.POSITIONAL_OR_KEYWORD and (place >= len(ours) or ours[place] != here):
            wrong.append(f"{p.name} is not parameter {place}")
    more = [p for p in named.values() if p.name not in {q.name for q in sparks} and p.default is Parameter.empty]
    return [*wrong, *(f"{p.name} is asked for, and PySpark has none" for p in more)]


@pytest.mark.parametrize(("ours", "sparks", "name"), list(_methods()))
def test_a_call_that_is_right_in_pyspark_is_right_here(ours: type, sparks: tuple[type, ...], name: str) -> None:
    here = _parameters(ours, name)
    for spark in sparks:
        there = _parameters(spark, name)
        assert (here is None) == (there is None), f"{name} is called in one of them only"
        assert _differences(here or [], there or []) == [], spark


def test_differences_are_found() -> None:
    def spark(self, a, b=1, *, c=None, **options):  # type: ignore[no-untyped-def]
        """PySpark's."""

    def found(ours: Spark) -> list[str]:
        return _differences(*(list(inspect.signature(f).parameters.values())[1:] for f in (ours, spark)))

    assert found(spark) == []
    assert found(lambda self, a, b=1, *, c=None, uid=None, **options: None) == []
    assert found(lambda self, b=1, a=2, *, c=None, **options: None) == [
        "a is 2, in PySpark <class 'inspect._empty'>",
        "b is not parameter 1",
    ]
    assert found(lambda self, a, d, *, c=None: None) == [
        "b is missing",
        "**options is missing",
        "d is asked for, and PySpark has none",
    ]


CHAINS = {
    spark_ckpt.CkptDataStreamReader: (
        DataStreamReader,
        "DataFrame",
        ("load", "csv", "json", "orc", "parquet", "text", "xml", "table"),
    ),
    spark_ckpt.CkptDataStreamWriter: (DataStreamWriter, "CkptQuery", ("start", "toTable")),
}


@pytest.mark.parametrize("cls", CHAINS, ids=lambda c: c.__name__)
def test_what_is_chained_returns_itself(cls: type) -> None:
    """By its annotation, which mypy holds against the code; and what ends a chain, what PySpark's ends it with."""
    sparks, result, ends = CHAINS[cls]
    for name in methods(sparks):
        returns = inspect.getattr_static(cls, name).__annotations__["return"]
        found = returns.removesuffix(" | RestorePlan")  # of a dry run, by an overload
        assert found == (result if name in ends else cls.__name__), name


@pytest.mark.parametrize("method", ["csv", "json", "orc", "parquet", "text", "xml"])
def test_options_of_short_forms_may_be_given_by_place_and_by_name(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of PySpark's: each arrives under its name, with its value."""
    loaded: list[dict[str, Any]] = []
    monkeypatch.setattr(
        spark_ckpt.CkptDataStreamReader,
        "load",
        lambda self, path, format, schema=None, **options: loaded.append(
            {"path": path, "format": format, "schema": schema, **options}
        ),
    )
    reader = spark_ckpt.CkptDataStreamReader.__new__(spark_ckpt.CkptDataStreamReader)
    names = [p.name for p in _parameters(DataStreamReader, method) or []]
    values = {name: f"value of {name}" for name in names}
    getattr(reader, method)(*values.values())
    getattr(reader, method)(**values)
    assert loaded == [{"schema": None, "format": method, **values}] * 2
    with pytest.raises(TypeError):
        getattr(reader, method)(*values.values(), "one too many")
