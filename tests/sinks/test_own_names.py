"""Names that the sinks, or the libraries behind them, have for themselves: a user's column or topic of that name works,
or is refused at start. It is never met first in a commit, which would fail each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_ckpt.errors import ConfigError, ControlColumnsError, InvalidInputError
from spark_ckpt.execution.columns import refuse_reserved
from spark_ckpt.sinks.kafka._rows import refuse_topic
from spark_ckpt.sinks.kafka._settings import LEDGER, read_settings
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import context, permit, stage_table
from tests.sinks.iceberg_harness import catalog_options

NAMES = ["s", "t", "k0", "row", "source", "_change_type", "_ckpt_stage", "_ckpt_rank", "_file", "__DELTA_RS_SOURCE"]


def schema_of(name: str) -> pa.Schema:
    """Of a struct: ``s.k`` could be read as column ``k`` of a table ``s``."""
    return pa.schema([("k", pa.int64()), (name, pa.struct([("k", pa.int64()), ("v", pa.string())]))])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_merge_takes_columns_of_any_name(tmp_path: Path, kind: str, name: str) -> None:
    schema = schema_of(name)
    place = {"path": f"{tmp_path}/t"} if kind == "delta" else {"table": "db.t", **catalog_options(tmp_path)}
    sink = create_sink(kind, {**place, "mergeKeys": "k"})
    sink.validate(schema)
    for checkpoint, keys in enumerate(([1, 2], [2, 3]), 1):
        rows = pa.table([keys, [{"k": k, "v": str(checkpoint)} for k in keys]], schema=schema)
        sink.commit(permit(checkpoint), stage_table(sink, context(checkpoint, checkpoint, schema=schema), rows))
    if kind == "delta":
        found = {r["k"]: r[name]["v"] for r in DeltaTable(f"{tmp_path}/t").to_pyarrow_table().to_pylist()}
        assert found == {1: "1", 2: "2", 3: "2"}


@pytest.mark.parametrize("name", ["__delta_rs_source", "__delta_rs_target", "__delta_rs_operation"])
def test_a_merge_into_delta_refuses_names_of_delta_rs_at_start_and_appending_takes_them(
    tmp_path: Path, name: str
) -> None:
    schema = schema_of(name)
    with pytest.raises(InvalidInputError, match=f"column.s. {name} have names that a merge"):
        create_sink("delta", {"path": f"{tmp_path}/merged", "mergeKeys": "k"}).validate(schema)
    create_sink("delta", {"path": f"{tmp_path}/t"}).validate(schema)


def test_a_merge_into_a_table_with_a_change_feed_refuses_the_names_of_the_feed(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable.create(f"{tmp_path}/t", schema=pa.schema([("k", pa.int64())]), configuration=feed)
    sink = create_sink("delta", {"path": f"{tmp_path}/t", "mergeKeys": "k", "mergeSchema": "true"})
    with pytest.raises(InvalidInputError, match=r"column\(s\) _change_type have names that a merge"):
        sink.validate(pa.schema([("k", pa.int64()), ("_change_type", pa.string())]))


def test_a_column_called_as_a_partition_of_iceberg_is_refused_in_plain_words(tmp_path: Path) -> None:
    sink = create_sink("iceberg", {"table": "db.t", **catalog_options(tmp_path), "partitionBy": "bucket(4, k)"})
    with pytest.raises(InvalidInputError, match="is called k_bucket, as a column of the query is"):
        sink.validate(pa.schema([("k", pa.int64()), ("k_bucket", pa.string())]))


def test_no_row_goes_to_the_topic_of_kafka_that_remembers_commits() -> None:
    broker = {"kafka.bootstrap.servers": "localhost:1"}
    for ledger in (LEDGER, "mine"):
        with pytest.raises(ConfigError, match=f"topic {ledger} is where the sink remembers"):
            read_settings({**broker, "topic": ledger, "ledgerTopic": ledger})
    assert read_settings({**broker, "topic": LEDGER, "ledgerTopic": "mine"}).topic == LEDGER
    rows = pa.record_batch({"topic": ["a", None, LEDGER], "value": [b"1", b"2", b"3"]})
    with pytest.raises(InvalidInputError, match="where the sink remembers"):
        refuse_topic(rows, LEDGER)
    refuse_topic(rows.slice(0, 2), LEDGER)


@pytest.mark.parametrize("name", ["__ckpt_tag", "__CKPT_where_0", "__ckpt_order_0"])
def test_columns_of_a_source_have_no_names_that_the_library_adds_to_a_query(name: str) -> None:
    with pytest.raises(ControlColumnsError, match="names that begin with __ckpt_ are reserved"):
        refuse_reserved(["a", name], "the source")
    refuse_reserved(["a", name.strip("_"), "_" + name.strip("_")], "the source")
