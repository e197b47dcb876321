"""How rows flow through a job, as a start records it for people."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_ckpt.execution.job_graph import JobGraph, Step
from spark_ckpt.execution.lineage import Leaves, Lineage, OperatorNode, Place, SourceNode
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.protocol.records import Edge, GenerationRecord, Topology
from spark_ckpt.state.lsm.layout import StateLayout

LAYOUT = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())]), False)


def _source(uid: str) -> SourceNode:
    return SourceNode("files", {}, StructType(), uid)


def _step(kind: str, inputs: list[Step], lineage: Lineage) -> Step:
    return Step(kind, lambda: kind, inputs, lineage)


def _filtered(source: SourceNode, place: Place) -> Step:
    read = _step("read", [], Lineage(sources=(source,)))
    return _step("Filter", [read], Lineage(sources=(source,), places=(place,)))


def _sinks() -> list[SinkSpec]:
    sink: Any = object
    return [SinkSpec("out", sink, {}), SinkSpec("refused", sink, {}, refused_by="out")]


def test_edges_lead_from_sources_through_segments_and_operators_to_sinks_and_survive_a_record() -> None:
    a, b = _source("a"), _source("b")
    left = _filtered(a, Place("Filter", "in Arrow"))
    right = _filtered(b, Place("Filter", "in Spark: x", Leaves.FORM))
    operator = OperatorNode("joined", LAYOUT, (a, b), "NoTimeout", {})
    joined = _step("Join", [left, right], left.lineage.union(right.lineage).through(operator))
    last = _step("Project", [joined], joined.lineage.union(Lineage(0, places=(Place("Project", "in Arrow"),))))
    edges = JobGraph(last, {a: "a", b: "b"}, {operator: "joined"}).edges(_sinks())
    assert edges == (
        Edge("a", "joined", ("Filter",)),
        Edge("b", "joined", ("Filter (in Spark)",)),
        Edge("joined", "sink:out", ("Project",)),
        Edge("sink:out", "sink:refused", ("refused rows",)),
    )
    record = GenerationRecord(1, 1, "s", None, 0, Topology(1, 1, ("a", "b"), {}, ("out",)), edges=edges)
    assert GenerationRecord.from_json(record.to_json()).edges == edges


def test_an_operator_that_the_output_mode_leaves_out_is_none_of_the_graph() -> None:
    a = _source("a")
    operator = OperatorNode("kept", LAYOUT, (a,), "NoTimeout", {})
    read = _step("read", [], Lineage(sources=(a,)))
    last = _step("Deduplicate", [read], read.lineage.through(operator))
    assert JobGraph(last, {a: "a"}, {}).edges(_sinks())[:1] == (Edge("a", "sink:out"),)
