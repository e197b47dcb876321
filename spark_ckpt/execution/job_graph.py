"""What a plan becomes: a job, and for people its sources, segments and keyed operators. ``ckpt.explain`` prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_ckpt import shown
from spark_ckpt.execution.build import name_operators, name_sources
from spark_ckpt.execution.chain import Recipe
from spark_ckpt.execution.event_time import without_notes
from spark_ckpt.execution.lineage import Lineage, OperatorNode, Place, SourceNode, WatermarkNode
from spark_ckpt.execution.refused_types import refuse_unwritable
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.protocol.records import SINK, Edge
from spark_ckpt.runtime.stateless import arrow_schema

_WIDTH = 100


@dataclass
class Step:
    """One node of Spark's plan. ``say`` gives Spark's own line of it, as only who looks at the graph needs it;
    ``inputs`` are the steps whose rows it gets."""

    kind: str
    say: Callable[[], Any]
    inputs: list[Step] = field(default_factory=list)
    lineage: Lineage = field(default_factory=lambda: Lineage(0))

    @property
    def operators(self) -> list[OperatorNode]:
        """The keyed operators that it adds."""
        known = {operator for step in self.inputs for operator in step.lineage.operators}
        return [operator for operator in self.lineage.operators if operator not in known]

    @property
    def watermarks(self) -> list[WatermarkNode]:
        known = {watermark for step in self.inputs for watermark in step.lineage.watermarks}
        return [watermark for watermark in self.lineage.watermarks if watermark not in known]

    @property
    def places(self) -> tuple[Place, ...]:
        """Where what it does to single rows runs, and why."""
        return self.lineage.places[sum(len(step.lineage.places) for step in self.inputs) :]


@dataclass(frozen=True, repr=False)
class JobGraph:
    """``last`` is what the sinks get. ``sources`` and ``uids`` are the names that checkpoints know them by."""

    last: Step
    sources: Mapping[SourceNode, str]
    uids: Mapping[OperatorNode, str]

    def __str__(self) -> str:
        return "\n".join(self._lines(self.last, "", ""))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str | None:
        edges = self.edges([SinkSpec("sinks", None, {})])
        names = tuple(self.sources.values()), tuple(self.uids.values()), ("sinks",)
        return shown.html("graph", edges, *names, str(self))

    def edges(self, sinks: Sequence[SinkSpec]) -> tuple[Edge, ...]:
        """How rows flow from sources through keyed operators to ``sinks``."""
        found: dict[Edge, None] = {}
        for end in self._flow(self.last, found):
            found |= dict.fromkeys(replace(end, end=SINK + sink.id) for sink in sinks if sink.refused_by is None)
        refusing = [(sink.refused_by, sink.id) for sink in sinks if sink.refused_by is not None]
        found |= dict.fromkeys(Edge(SINK + by, SINK + sink, ("refused rows",)) for by, sink in refusing)
        return tuple(found)

    def _flow(self, step: Step, found: dict[Edge, None]) -> list[Edge]:
        """What comes out of ``step``, as edges without an end; those inside go into ``found``."""
        ends = [Edge(self.sources[s], "") for s in step.lineage.sources] if not step.inputs else []
        ends += [end for below in step.inputs for end in self._flow(below, found)]
        operators = [operator for operator in step.operators if operator in self.uids]
        for operator in operators:
            found |= dict.fromkeys(replace(end, end=self.uids[operator]) for end in ends)
            ends = [Edge(self.uids[operator], "")]
        done = () if operators else tuple(_done(place) for place in step.places)
        return [replace(end, through=(*end.through, *done)) for end in ends]

    def _lines(self, step: Step, first: str, other: str) -> Iterator[str]:
        shown = list(self._shown(step))
        for line in shown:
            yield f"{first}{line}"
            first = other
        for at, below in enumerate(step.inputs):
            deeper = len(step.inputs) > 1
            follows = at + 1 < len(step.inputs)
            yield from self._lines(
                below, f"{other}+- " if deeper else first, f"{other}{'|  ' if follows else '   '}" if deeper else other
            )

    def _shown(self, step: Step) -> Iterator[str]:
        for operator in reversed(step.operators):
            yield self._operator(operator)
        for watermark in step.watermarks:
            yield f"watermark of {watermark.column}: {watermark.delay_us / 1_000_000:g} s behind the newest"
        for place in reversed(step.places):
            yield str(place) if step.operators else f"{place}. {_short(str(step.say()))}"
        if not step.inputs:
            yield from self._source(step)

    def _operator(self, node: OperatorNode) -> str:
        uid = self.uids[node]
        named = uid if node.uid else f"{uid} (derived: call uid behind it)"
        tables = "; ".join(
            f"{table}: {', '.join(layout.key_schema.names) or 'one key'} -> {', '.join(layout.value_schema.names)}"
            for table, layout in node.tables(uid).items()
        )
        timeout = "" if node.timeout == "NoTimeout" else f"; {node.timeout}"
        mode = f"; output mode {node.output_mode}" if node.output_mode else ""
        return f"keyed operator {named}: {node.kind}{mode}{timeout}; state {tables}"

    def _source(self, step: Step) -> Iterator[str]:
        for source in step.lineage.sources:
            kind = source.inner if isinstance(source.inner, str) else getattr(source.inner, "__name__", "source")
            by = "Spark, with barriers beside its rows" if source.by_spark else kind
            yield f"source {self.sources[source]}: {by}{'. ' + _short(str(step.say())) if source.by_spark else ''}"


def _done(place: Place) -> str:
    name = place.called or place.node
    return name if place.leaves is None else f"{name} (in Spark)"


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _WIDTH else f"{one[:_WIDTH]}..."


@dataclass(frozen=True)
class Translated:
    """A DataFrame as a job: what a start builds it from."""

    _session: Any
    _recipe: Recipe
    _lineage: Lineage
    schema: StructType
    _last: Step

    def graph(self) -> JobGraph:
        """Of sources, segments and operators, under the names that a start gives them. Raises ``TopologyError`` for
        names that come twice."""
        sources = name_sources(self._lineage)
        uids = name_operators(self._lineage, sources, self._session.config().require_uid)
        return JobGraph(self._last, sources, uids)

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def _arrow_schema(self) -> pa.Schema:
        """Of what sinks get. Raises ``InvalidInputError`` for a column whose type no sink has."""
        refuse_unwritable(self.schema)
        return arrow_schema(without_notes(self.schema))
