from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.registry import create_sink, register_sink, sink_class, sink_names
from spark_ckpt.testing.sink_harness import SCHEMA, context, stage
from spark_ckpt.types import CommitPermit, Committable


class ListSink(TwoPhaseSink):
    OPTIONS: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.contexts: list[WriterContext] = []

    def writer(self, ctx: WriterContext) -> SinkWriter:
        self.contexts.append(ctx)
        return ListWriter()

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        self._step("only")

    def abort(self, committables: Sequence[Committable]) -> None:
        pass


class ListWriter(SinkWriter):
    def __init__(self) -> None:
        self.names: list[bytes] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.names.append(",".join(batch.schema.names).encode())

    def prepare_commit(self) -> Sequence[bytes]:
        return self.names

    def close(self) -> None:
        pass


def test_built_in_sinks_are_known_in_any_case() -> None:
    assert {"delta", "files", "memory", "sql"} <= set(sink_names())
    assert sink_class("Delta").__name__ == "DeltaSink"


def test_a_registered_sink_is_found_and_may_be_registered_again() -> None:
    register_sink("ListSink", ListSink)
    register_sink("listsink", ListSink)
    assert sink_class("LISTSINK") is ListSink
    assert isinstance(create_sink("listsink", {"path": "x"}), ListSink)
    assert isinstance(create_sink(ListSink, {"path": "x"}), ListSink)


def test_an_unknown_sink_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'kaffka'.*delta, files.*memory.*sql"):
        sink_class("kaffka")


@pytest.mark.parametrize("name", ["delta", "SQL", "", "  "])
def test_names_of_built_in_sinks_and_empty_ones_cannot_be_taken(name: str) -> None:
    with pytest.raises(ConfigError, match="choose another"):
        register_sink(name, ListSink)


@pytest.mark.parametrize("cls", [dict, ListSink({}), None])
def test_what_is_no_sink_class_cannot_be_registered(cls: Any) -> None:
    with pytest.raises(ConfigError, match="expected a subclass of TwoPhaseSink"):
        register_sink("mine", cls)


def test_an_abstract_sink_cannot_be_registered() -> None:
    class Unfinished(TwoPhaseSink):
        pass

    with pytest.raises(ConfigError, match="does not implement abort, commit, writer"):
        register_sink("mine", Unfinished)


def test_columns_reach_any_sink_as_schema_and_rows_in_the_order_asked_for() -> None:
    sink: Any = create_sink(ListSink, {"path": "x", "Columns": " v ,k"})
    assert [c.data for c in stage(sink, [(1, "a")])] == [b"v,k"]
    assert sink.inner.contexts[0].schema.names == ["v", "k"]
    assert sink.inner.options == {"path": "x"}


def test_columns_the_query_does_not_have_are_refused_at_start() -> None:
    sink = create_sink(ListSink, {"columns": "k,w"})
    with pytest.raises(InvalidInputError, match="names w; the query's columns are k, v"):
        sink.validate(SCHEMA)
    with pytest.raises(InvalidInputError, match="names w"):
        sink.writer(context(1, 1))


@pytest.mark.parametrize("columns", ["k,,v", "k,k", ","])
def test_malformed_columns_are_refused(columns: str) -> None:
    with pytest.raises(ConfigError, match="distinct column names"):
        create_sink(ListSink, {"columns": columns})


@pytest.mark.parametrize(
    ("sink", "options", "message"),
    [
        ("delta", {}, "option 'path' is required"),
        ("delta", {"path": "p", "mode": "upsert"}, "'mode' must be one of append, merge, got 'upsert'"),
        ("delta", {"path": "p", "mode": "merge"}, "need each other"),
        ("delta", {"path": "p", "mode": "append", "mergeKeys": "k"}, "need each other"),
        ("delta", {"path": "p", "mergeKeys": "k,,"}, "distinct column names"),
        ("sql", {"table": "t"}, "option 'url' is required"),
        ("sql", {"url": "sqlite:////x.db"}, "option 'table' is required"),
        ("sql", {"url": "sqlite://", "table": "t"}, "in-memory"),
        ("sql", {"url": "sqlite:///:memory:", "table": "t"}, "in-memory"),
        ("sql", {"url": "sqlite:////x.db", "table": "t", "createTable": "perhaps"}, "true or false"),
        ("files", {}, "option 'path' is required"),
        ("files", {"path": "p", "fileFormat": "orc"}, "one of csv, json, parquet, text, got 'orc'"),
        ("memory", {}, "exactly one of"),
        ("memory", {"name": "a", "path": "b"}, "exactly one of"),
        ("memory", {"name": "a/b"}, "without separators"),
    ],
)
def test_malformed_options_are_refused_before_anything_happens(
    sink: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create_sink(sink, options)
