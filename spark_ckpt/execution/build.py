"""Builds the Spark plan of a start from the recipes of a translated plan. Driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from functools import reduce
from itertools import count
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import TopologyError
from spark_ckpt.execution.chain import Chain, Recipe, in_python, with_names_of_their_own
from spark_ckpt.execution.lineage import (
    NEEDS_UID,
    Lineage,
    OperatorNode,
    SourceNode,
    SparkStreamNode,
    WatermarkNode,
    in_plan_order,
)
from spark_ckpt.execution.session_confs import refuse_named_sources
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.spec import RunSpec, SinkSpec, SourceSpec
from spark_ckpt.names import checked_name
from spark_ckpt.protocol.records import FAMILY_OF, Topology
from spark_ckpt.protocol.source_offset import SourcePosition
from spark_ckpt.protocol.source_starts import ASKED, starts_at
from spark_ckpt.redaction import redact_url
from spark_ckpt.runtime.datasource import source_class_of
from spark_ckpt.runtime.operations import ENCLOSED, Disclose, Enclose, Operation
from spark_ckpt.runtime.operator.spec import EventTime
from spark_ckpt.runtime.sink.writer import require_control_columns
from spark_ckpt.runtime.stateless import arrow_schema, spark_schema
from spark_ckpt.sources.spark_stream import followed
from spark_ckpt.spark_versions.shared_reads import with_one_reader
from spark_ckpt.state.lsm.layout import StateLayout


def name_sources(lineage: Lineage) -> dict[SourceNode, str]:
    """Every source's id: its ``uid`` option, else its format and number in the query. The first is to lead: what stands
    beside Spark's streams sends each barrier last, and comes last."""
    named: dict[SourceNode, str] = {}
    for number, node in enumerate(sorted(lineage.sources, key=lambda source: source.by_spark)):
        kind = node.inner if isinstance(node.inner, str) else getattr(node.inner, "__name__", "source")
        default = f"{kind.rsplit(':', 1)[-1].lower()}-{number}"
        named[node] = checked_name("source uid", node.uid or default, TopologyError)
    ids = list(named.values())
    if len(set(ids)) != len(ids):
        raise TopologyError(f"two sources have the same uid: {sorted(ids)}; give each its own (reader option uid)")
    return named


_SAYS_WHAT = frozenset({"path", "table", "url", "dbtable", "query", "subscribe", "subscribepattern", "assign", "topic"})


def reads_of(node: SourceNode) -> str:
    """What a source reads, as records and messages have it: its kind, and the options that name a place."""
    kind = node.inner if isinstance(node.inner, str) else node.inner.__name__
    named = {key.lower(): redact_url(str(value)) for key, value in node.options.items() if key.lower() in _SAYS_WHAT}
    return " ".join([kind, *(f"{key}={value}" for key, value in sorted(named.items()))])


def name_streams(lineage: Lineage) -> dict[SparkStreamNode, str]:
    """What checkpoints call the streams that Spark reads: by the given uid, else by their number in the query."""
    nodes = enumerate(lineage.spark_streams)
    named = {node: checked_name("stream uid", node.uid or f"stream-{n}", TopologyError) for n, node in nodes}
    twice = sorted(name for name, uses in Counter(named.values()).items() if uses > 1)
    if twice:
        raise TopologyError(f"several readStream.spark(...) have the uid {', '.join(twice)}; give each its own")
    return named


def name_operators(lineage: Lineage, sources: dict[SourceNode, str], required: bool = False) -> dict[OperatorNode, str]:
    """Every keyed operator's uid: the given one, else its kind and number in the query, from 0, as the operators stand
    in the program. A number whose name is taken is passed over. Raises ``TopologyError`` if uids are ``required``.
    """
    taken = {*sources.values(), *(table for o in lineage.operators for table in o.given)}
    named: dict[OperatorNode, str] = {}
    for place, node in enumerate(lineage.operators):
        if node.uid is None and required:
            raise TopologyError(f"{node.kind}: {NEEDS_UID}")
        derived = (f"{node.kind}-{number}" for number in count(place))
        named[node] = node.uid or next(uid for uid in derived if not taken & set(node.tables(uid)))
        taken.update(node.tables(named[node]))
    return named


def query_topology(
    lineage: Lineage,
    sources: dict[SourceNode, str],
    sinks: tuple[SinkSpec, ...],
    key_groups: int,
    uids: dict[OperatorNode, str],
    output_mode: str = "append",
    starting_from: Mapping[str, Any] | None = None,
) -> Topology:
    """What takes part in the query's checkpoints. Raises ``TopologyError`` if a uid is used twice."""
    operators = {
        t: facts for node, uid in uids.items() for t, facts in _recorded(node, uid, sources, output_mode).items()
    }
    both = sorted(set(sources.values()) & set(operators))
    if both:
        raise TopologyError(f"{both} are uids of a source and of an operator; give each its own")
    return Topology(
        key_groups,
        lineage.inputs * key_groups,
        tuple(sources.values()),
        operators,
        tuple(s.id for s in sinks),
        tuple(uids[o] for o in in_plan_order(lineage.operators)),
        {name: reads_of(node) for node, name in sources.items()},
        tuple(name for node, name in sources.items() if node.uid is None),
        {uid: {ASKED: asked} for uid, asked in (starting_from or {}).items()},
    )


def _recorded(
    node: OperatorNode, uid: str, sources: dict[SourceNode, str], output_mode: str
) -> dict[str, dict[str, Any]]:
    """State table -> what is in it, as checkpoints record it; of a derived uid also where the operator stands."""
    tables: dict[str, dict[str, Any]] = {
        table: {
            "state": _schema_text(layout.value_schema),
            "keys": _schema_text(layout.key_schema),
            "timeout": node.timeout if layout.with_timeout else "NoTimeout",
            "made_of": _made_in(node, family, layout),
            **_columns(node, family, layout),
            **({} if table == uid else {FAMILY_OF: uid}),
        }
        for (table, layout), family in zip(node.tables(uid).items(), ("", *node.families), strict=True)
    }
    if node.uid is None:
        tables[uid]["derived"] = sorted(sources[s] for s in node.upstream)
        tables[uid] |= {"stands_in": node.stands_in} if node.stands_in else {}
    if node.keyed_by:
        tables[uid]["keyed_by"] = dict(node.keyed_by)
    if node.follows_mode:
        tables[uid]["mode"] = output_mode
    return tables


def _made_in(node: OperatorNode, family: str, layout: StateLayout) -> dict[str, str]:
    """Aggregates may have their columns in a family."""
    if family:
        return {c: node.made_of[c] for c in layout.value_schema.names if c in node.made_of}
    elsewhere = {name for other in node.families.values() for name in other.value_schema.names}
    own = {*layout.value_schema.names}
    return {c: made for c, made in node.made_of.items() if c in own or c not in elsewhere}


def _columns(node: OperatorNode, family: str, layout: StateLayout) -> dict[str, Any]:
    """The columns one by one, of a state table in which they may change."""
    addable = node.begins.get(family)
    if addable is None:
        return {}
    types = {f.name: str(f.type) for f in layout.value_schema}
    from_start = sorted(set(types) - set(addable))
    results = {r: mine for r, of in node.results.items() if (mine := sorted(set(of) & types.keys()))}
    more = {"from_start": from_start, "results": results}
    return {"types": types, **{name: value for name, value in more.items() if value}}


def _schema_text(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


class BuildContext:
    """One build: every recipe is built once, however many branches lead to it. ``uids``: the operators' names.

    ``told``: the watermarks that ``withWatermark`` computes itself, wherever its rows are. ``location``: Spark's own.
    ``event_time``: what is the same of it for all operators.
    """

    def __init__(
        self,
        spark: Any,
        format_name: str,
        run: RunSpec,
        sources: dict[SourceNode, SourceSpec],
        root: Recipe,
        output_mode: str,
        uids: dict[OperatorNode, str],
        told: tuple[WatermarkNode, ...] = (),
        streams: Mapping[SparkStreamNode, str] | None = None,
        location: str = "",
        event_time: EventTime = EventTime(),  # noqa: B008 - it is frozen
    ) -> None:
        self.told, self.location, self.event_time = told, location, event_time
        self.streams = dict(streams or {})
        self.spark = spark
        self.output_mode = output_mode
        self.format_name = format_name
        self.run = run
        self.uids = uids
        self._specs = sources
        self._consumers = root.consumers()
        self._built: dict[Recipe, Chain] = {}
        self._streams: list[WatermarkNode] = []
        self._first: tuple[BuildContext, Collection[Recipe]] | None = None

    def again(self, copies: Mapping[OperatorNode, OperatorNode], own: Collection[Recipe]) -> BuildContext:
        """For a second use of recipes: ``own`` are built anew, with ``copies`` of their operators."""
        made = copy(self)
        made.uids = {**self.uids, **{node: self.uids[as_] for node, as_ in copies.items()}}
        made._built, made._first = {}, (self, own)
        return made

    def chain(self, recipe: Recipe) -> Chain:
        """The recipe's result. Operations that several branches need are placed, so that they run once."""
        if self._first is not None and recipe not in self._first[1]:
            return self._first[0].chain(recipe)
        if recipe not in self._built:
            made = recipe.make(self)
            if made.open and not (self.run.config.chaining and self._consumers.get(recipe, 1) == 1):
                made = Chain(self.for_spark(made), made.schema)
            self._built[recipe] = made
        return self._built[recipe]

    def frame(self, recipe: Recipe) -> Any:
        """The recipe's result as a Spark DataFrame with control columns."""
        return self.for_spark(self.chain(recipe))

    def for_spark(self, chain: Chain) -> Any:
        """As :meth:`place`, where Spark goes on."""
        chain, steps = chain.left_to_spark()
        return reduce(lambda rows, step: step(rows), steps, self.place(chain))

    def place(self, chain: Chain) -> Any:
        """Give the open operations a stage: the source's own, else one ``mapInArrow``."""
        one_by_one = with_names_of_their_own(chain) if chain.open else chain
        if isinstance(chain.head, SourceNode):
            placed = self._load(one_by_one)
        elif chain.operations:
            placed = in_python(chain.head, one_by_one.operations, one_by_one.schema)
        else:
            placed = chain.head
        return placed if one_by_one is chain else placed.toDF(*chain.schema.fieldNames())

    def _load(self, chain: Chain) -> Any:
        refuse_named_sources(self.spark.conf)
        spec = self._specs[chain.head]
        name = f"{self.format_name}_{list(self._specs).index(chain.head)}"
        self.spark.dataSource.register(source_class_of(name, self.run, spec, chain.operations, chain.schema))
        return with_one_reader(self.spark.readStream.format(name).load())

    def wants_rows(self, _node: OperatorNode) -> bool:
        """Whether the build ends with the rows in front of the operator: not that of a start."""
        return False

    def restored_position(self, node: SourceNode) -> Any:
        """Where ``node`` stood at the checkpoint that this Spark location began from; None if it began from none."""
        restored = self.run.restored_from
        completion = None if restored is None else JobRecords(self.run.url, self.run.config).completion(restored)
        return SourcePosition.from_json(starts_at(self.run.topology, self._specs[node].id, completion)).inner

    def source_options(self, node: SourceNode) -> dict[str, str]:
        return self._specs[node].options

    def source_ids(self, nodes: Iterable[SourceNode]) -> tuple[str, ...]:
        return tuple(self._specs[node].id for node in nodes)

    def stream_number(self, node: WatermarkNode) -> int:
        """Numbers from 1; 0 marks rows without a watermark."""
        known = [stream.one for stream in self._streams]
        if node.one not in known:
            self._streams.append(node)
            return len(self._streams)
        return known.index(node.one) + 1

    def stream_name(self, node: WatermarkNode) -> str:
        """Stable for the same query across restarts; restored watermarks are found by it."""
        number = self.stream_number(node)
        return f"{self._streams[number - 1].column}#{number}"


def sink_input(ctx: BuildContext, root: Recipe) -> tuple[Any, tuple[Operation, ...]]:
    """What the sink's writer gets from Spark, and the operations it does first."""
    chain = ctx.chain(root)
    if isinstance(chain.head, SourceNode):
        enclosed = chain.then(Enclose(), spark_schema(ENCLOSED))
        return ctx.place(enclosed), (Disclose(arrow_schema(chain.schema)),)
    if not chain.operations:
        require_control_columns(chain.schema)
    return chain.head, chain.operations


def source_specs(
    run: RunSpec,
    lineage: Lineage,
    named: dict[SourceNode, str],
    uids: dict[OperatorNode, str],
    no_data_batches: bool = True,
    location: str = "",
    streams: Iterable[str] = (),
) -> dict[SourceNode, SourceSpec]:
    """The first source leads; each operator's state comes with the first source whose rows reach it.

    ``location``: Spark's own, as the ``streams`` that Spark reads are followed there."""
    by_spark = any(node.by_spark for node in named)
    timed = {s for o in lineage.operators if o.timeout == "EventTimeTimeout" for s in o.upstream}
    restores: dict[SourceNode, list[str]] = {node: [] for node in named}
    for operator, uid in uids.items():
        restores[_carrier(operator, named)].extend(operator.tables(uid))
    return {
        node: SourceSpec(
            id=name,
            inner=node.inner,
            options=followed(location, node in timed, tuple(streams)) if node.by_spark else node.options,
            schema=node.schema,
            leader=number == 0,
            restores=tuple(restores[node]),
            reaches=tuple(table for o, uid in uids.items() if node in o.upstream for table in o.tables(uid)),
            lanes=node.lanes or run.config.lanes or 1,
            event_time=node in timed,
            no_data_batches=no_data_batches,
            tells=any(o.listens and node in o.upstream for o in lineage.operators),
            can_drain=not by_spark,
            last=node.by_spark and len(named) > 1,
            marks_reads=lineage.marks_reads,
        )
        for number, (node, name) in enumerate(named.items())
    }


def _carrier(operator: OperatorNode, sources: dict[SourceNode, str]) -> SourceNode:
    return next(node for node in sources if node in operator.upstream)
