"""Wrong aggregates are refused when the query is built, with the column, its type and what would be right."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.function import AggregateFunction

KEYS = pa.schema([("k", pa.string())])
INPUT = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.int64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


@pytest.mark.parametrize(
    ("spec", "type_"),
    [
        (agg.sum("s"), "string"),
        (agg.sum("b"), "bool"),
        (agg.mean("l"), "list"),
        (agg.stddev("s"), "string"),
        (agg.min("m"), "map"),
        (agg.approx_count_distinct("m"), "map"),
        (agg.count_distinct("m"), "map"),
    ],
)
def test_unsupported_types_name_column_type_and_what_is_supported(spec: agg.AggSpec, type_: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"'x': {spec.kind} .*'{spec.column}'.*{type_}.*Supported: .*double"):
        AggregateFunction(KEYS, INPUT, {"x": spec})


@pytest.mark.parametrize(
    ("specs", "options", "message"),
    [
        ({"x": agg.sum("nope")}, {}, r"no column 'nope'.*\['k', 'v'"),
        ({}, {}, "at least one"),
        ({"x": "sum(v)"}, {}, "found str"),
        ({"x": agg.AggSpec("median", "v")}, {}, "unknown kind 'median'.*stddev"),
        ({"k": agg.count()}, {}, r"\['k'\].*twice"),
        ({"m": agg.mean("v"), "m_sum": agg.sum("v")}, {}, r"\['m_sum'\].*twice"),
        ({"_key_hash": agg.count()}, {}, "twice"),
        ({"v": agg.sum("v")}, {"emit": "rows"}, r"output columns \['v'\]"),
        ({"x": agg.count()}, {"emit": "delta"}, "'update' or 'rows'.*'delta'"),
        ({"x": agg.first("v")}, {"emit": "rows"}, "first is not available with emit='rows'"),
        ({"x": agg.count_distinct("v")}, {"emit": "rows"}, "count_distinct is not available with emit='rows'"),
        ({"a/b": agg.count_distinct("v"), "a-b": agg.count_distinct("s")}, {}, r"would meet in tables .*\['a-b'\]"),
        ({"x": agg.count()}, {"order_by": "v"}, "order_by needs emit='rows'"),
        ({"x": agg.count()}, {"emit": "rows", "order_by": "w"}, "'w'"),
        ({"x": agg.count()}, {"emit": "rows", "order_by": "l"}, "'l'.*list"),
    ],
)
def test_wrong_options_are_refused(specs: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        AggregateFunction(KEYS, INPUT, specs, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agg.sum(5), "name of a column.*int"),
        (lambda: agg.min(""), "name of a column"),
        (lambda: agg.collect_list("v", 0), "max_items.*positive"),
        (lambda: agg.collect_list("v", True), "max_items"),
        (lambda: agg.approx_count_distinct("v", 0.5), "rsd between"),
        (lambda: agg.approx_count_distinct("v", "0.1"), "rsd between"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_specs_are_values() -> None:
    assert agg.first("v", True) == agg.AggSpec("first", "v", {"ignore_nulls": True})
    assert agg.avg("v") == agg.mean("v") != agg.mean("w")
    assert agg.count("*") == agg.count()
    assert pickle.loads(pickle.dumps(agg.collect_list("v", 3))) == agg.collect_list("v", 3)
    assert len({agg.sum("v"), agg.sum("v"), agg.sum("w")}) == 2
