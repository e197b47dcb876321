"""Builds the Spark plan of a start from the recipes of wrapped DataFrames. Driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol.records import Topology
from spark_ckpt.spark.lineage import Lineage, OperatorNode, SourceNode, WatermarkNode
from spark_ckpt.spark.spec import RunSpec, SinkSpec, SourceSpec


def name_sources(lineage: Lineage) -> dict[SourceNode, str]:
    """Every source's id: its ``uid`` option, else its format and number in the query."""
    named: dict[SourceNode, str] = {}
    for number, node in enumerate(lineage.sources):
        kind = node.inner if isinstance(node.inner, str) else getattr(node.inner, "__name__", "source")
        named[node] = node.uid or f"{kind.rsplit(':', 1)[-1].lower()}-{number}"
    ids = list(named.values())
    if len(set(ids)) != len(ids):
        raise TopologyError(f"two sources have the same uid: {sorted(ids)}; give each its own (reader option uid)")
    return named


def query_topology(
    lineage: Lineage,
    sources: dict[SourceNode, str],
    sinks: tuple[SinkSpec, ...],
    key_groups: int,
    operators: dict[str, dict[str, Any]],
) -> Topology:
    """What takes part in the query's checkpoints. Raises ``TopologyError`` if a uid is used twice."""
    both = sorted(set(sources.values()) & set(operators))
    if both:
        raise TopologyError(f"{both} are uids of a source and of an operator; give each its own")
    return Topology(
        key_groups, lineage.inputs * key_groups, tuple(sources.values()), operators, tuple(s.id for s in sinks)
    )


class BuildContext:
    """One build: every recipe is built once, however many branches lead to it."""

    def __init__(self, spark: Any, format_name: str, run: RunSpec, sources: dict[SourceNode, str]) -> None:
        self.spark = spark
        self.format_name = format_name
        self.run = run
        self._sources = sources
        self._built: dict[int, tuple[Callable[..., Any], Any]] = {}
        self._streams: list[WatermarkNode] = []

    def once(self, recipe: Callable[[Any], Any]) -> Any:
        found = self._built.get(id(recipe))
        if found is None:
            # The recipe is kept beside its result, so that its id is not used again.
            found = self._built[id(recipe)] = (recipe, recipe(self))
        return found[1]

    def load_source(self, node: SourceNode) -> Any:
        return self.spark.readStream.format(self.format_name).option("source", self._sources[node]).load()

    def stream_number(self, node: WatermarkNode) -> int:
        """Numbers from 1; 0 marks rows without a watermark."""
        if node not in self._streams:
            self._streams.append(node)
        return self._streams.index(node) + 1

    def stream_name(self, node: WatermarkNode) -> str:
        """Stable for the same query across restarts; restored watermarks are found by it."""
        return f"{node.column}#{self.stream_number(node)}"

    def source_specs(self, lineage: Lineage) -> dict[str, SourceSpec]:
        """The first source leads; each operator's state comes with the first source whose rows reach it."""
        restores: dict[SourceNode, list[str]] = {node: [] for node in self._sources}
        for operator in lineage.operators:
            restores[_carrier(operator, self._sources)].append(operator.uid)
        specs = {}
        for number, (node, name) in enumerate(self._sources.items()):
            specs[name] = SourceSpec(
                id=name,
                inner=node.inner,
                options=node.options,
                schema=node.schema,
                leader=number == 0,
                restores=tuple(restores[node]),
                reaches=tuple(o.uid for o in lineage.operators if node in o.upstream),
                lanes=node.lanes or self.run.config.lanes or 1,
            )
        return specs


def _carrier(operator: OperatorNode, sources: dict[SourceNode, str]) -> SourceNode:
    return next(node for node in sources if node in operator.upstream)
