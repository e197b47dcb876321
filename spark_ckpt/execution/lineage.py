"""What flows into a DataFrame: its inputs, sources, keyed operators and watermarks. Plain values, no Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import TopologyError
from spark_ckpt.names import checked_name, family_table
from spark_ckpt.sources.spark_stream import SparkStream
from spark_ckpt.state.lsm.layout import FamilyLayout, StateLayout

NEEDS_UID = 'a keyed operator needs a uid, the stable name its state is found again by; call uid("...") behind it'


@dataclass(frozen=True, eq=False)
class SourceNode:
    """One ``readStream...load()``. ``inner`` is a known source's name or a Python DataSource class."""

    inner: Any
    options: dict[str, str]
    schema: Any
    uid: str | None
    lanes: int | None = None

    @property
    def by_spark(self) -> bool:
        """It stands beside the streams that Spark itself reads."""
        return self.inner is SparkStream


SPARK_STREAMS = SourceNode(SparkStream, {}, StructType(), "spark-streams", 1)
"""Sends the barriers of all streams of a query that Spark itself reads."""


@dataclass(frozen=True, eq=False)
class SparkStreamNode:
    """One ``readStream.spark(...)``. ``uid`` None: named as :func:`spark_ckpt.execution.build.name_streams` says.
    ``takes_position``: it can begin anywhere, as a function makes it."""

    uid: str | None
    takes_position: bool = False


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """One keyed operator. ``upstream`` are the sources whose rows can reach it; ``timeout``, ``made_of``, ``families``
    and ``kind`` are its function's (:class:`spark_ckpt.state.functions.base.StateFunction`). ``uid``: None if none was
    given; a start derives one then, see :func:`spark_ckpt.execution.build.name_operators`.
    """

    uid: str | None
    layout: StateLayout
    upstream: tuple[SourceNode, ...]
    timeout: str
    made_of: Mapping[str, str]
    output_mode: str | None = None
    """Of the rows it puts out, append or update; None: fits both."""
    listens: bool = False
    """Its function wants to know of completed checkpoints."""
    families: Mapping[str, FamilyLayout] = field(default_factory=dict)
    kind: str = "operator"
    begins: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """Of its state table, and those of its families: the columns that a query may add; None: they never change. See
    :meth:`spark_ckpt.state.functions.base.StateFunction.begins`."""
    results: Mapping[str, Collection[str]] = field(default_factory=dict)
    """See :attr:`spark_ckpt.state.functions.base.StateFunction.results`."""
    can_complete: bool = False
    """Whether its whole result can come out at each checkpoint, as output mode complete wants it."""
    behind: tuple[OperatorNode, ...] = ()
    """The operators whose rows can reach it."""
    whole_in_complete: bool = False
    """In output mode complete its work is done on each whole result, and it keeps nothing."""
    waits: bool = False
    """See :attr:`spark_ckpt.state.functions.base.StateFunction.waits`."""
    takes_updates: bool = False
    """Each update that comes is a row to it, and its user knows."""
    follows_mode: bool = False
    """It puts out its rows at the end of their time in output mode append, and with each change in others."""
    stands_in: str = ""
    """A mark of the plan that it is the top of, if no uid was given; empty: not known."""
    keyed_by: Mapping[str, str] = field(default_factory=dict)
    """Key -> what it is computed by, as Spark writes it; none of keys of which it is not known."""
    function: Any = None
    """What computes on its state, for whoever makes state of another system's."""

    @property
    def shown(self) -> str:
        """As messages name it before the start."""
        return self.kind if self.uid is None else self.uid

    def tables(self, uid: str) -> dict[str, StateLayout]:
        """Its state tables under this uid, by the names that checkpoints know them by. Raises ``TopologyError`` for
        names no folder can have."""
        tables = {family_table(uid, family): layout.stored for family, layout in self.families.items()}
        return {uid: self.layout, **{checked_name("state table", t, TopologyError): s for t, s in tables.items()}}

    def named(self, uid: str) -> None:
        """From now on it has this uid: ``uid`` is called behind what makes an operator."""
        object.__setattr__(self, "uid", uid)

    def marked(self, plan: str) -> None:
        """From now on it is known by the text of the ``plan`` that it is the top of."""
        object.__setattr__(self, "stands_in", hashlib.sha256(plan.encode()).hexdigest()[:16])

    @property
    def given(self) -> set[str]:
        """The names of its state tables, if its uid was given."""
        return set() if self.uid is None else set(self.tables(self.uid))


@dataclass(frozen=True, eq=False)
class WatermarkNode:
    """One ``withWatermark``: an event-time column, how late its rows may be, and the sources that they come from.

    ``one``: the same in all copies of it, as where filters in front of it differ: they have one watermark, the largest.
    """

    column: str
    delay_us: int
    sources: tuple[SourceNode, ...] = ()
    one: object = field(default_factory=object)


class Leaves(Enum):
    """Why rows leave Arrow for Spark. Each row of the ledger of nodes says which of them it may have."""

    FUNCTION = "a function that is not in the list of those that run in Arrow"
    FORM = "a form of a function that gives other results in Arrow"
    TYPE = "a type that Arrow has not, or compares otherwise"
    SETTING = "a setting or time zone that Spark alone follows"
    OPERATION = "the operation is Spark's own"
    WHOLE = "it looks at all rows of a batch, a group or a result"
    TABLE = "a join with a table by no equality of columns, or that Spark writes otherwise"
    UNKNOWN = "not known; a fault of this library"


@dataclass(frozen=True)
class Place:
    """Where what a node does to rows runs. ``node``: its row in the ledger; ``leaves``: why it is not in Arrow;
    ``called``: what people call it, if that is not the node."""

    node: str
    told: str
    leaves: Leaves | None = None
    called: str = ""

    def __str__(self) -> str:
        return f"{self.called or self.node}: {self.told}"


@dataclass(frozen=True)
class Stays:
    """Why an operation stays in Spark: in the ledger's words, and in detail."""

    leaves: Leaves
    why: str


def place_of_rows(node: str, here: object) -> Place:
    """Of what works row by row. ``here``: ``Stays``, or what does it in Arrow."""
    if isinstance(here, Stays):
        return Place(node, f"in Spark: {here.why}", here.leaves)
    return Place(node, "in Arrow, if its rows are there")


@dataclass(frozen=True)
class Lineage:
    """``inputs`` counts the streams whose barriers arrive here: sources, or the operators nearest upstream.

    A source or operator that reaches a place along two branches counts twice, because its barriers come twice.
    ``open_watermarks`` are computed from rows at the next keyed operator; ``watermarks`` are all that apply.
    ``told_watermarks``: those of ``watermarks`` whose columns, or some of whose rows, do not reach the next keyed
    operator, so that they are computed where ``withWatermark`` stands. ``places`` says for people which filters and
    computed columns can run in Python. ``spark_streams``: those that Spark itself reads, in the order in which they
    stand in the plan. ``is_sorted`` and ``is_limited``: there is an ``orderBy``, or a ``limit``, which not every output
    mode has. ``marks_reads``: a stage wants to know of each batch whether sources read anything.
    """

    inputs: int = 1
    sources: tuple[SourceNode, ...] = ()
    operators: tuple[OperatorNode, ...] = ()
    watermarks: tuple[WatermarkNode, ...] = ()
    open_watermarks: tuple[WatermarkNode, ...] = field(default=())
    told_watermarks: tuple[WatermarkNode, ...] = ()
    places: tuple[Place, ...] = ()
    spark_streams: tuple[SparkStreamNode, ...] = ()
    is_sorted: bool = False
    is_limited: bool = False
    marks_reads: bool = False

    def in_mode(self, mode: str) -> Lineage:
        """Of a query with that output mode: what keeps state in others only is no operator of it."""
        if mode != "complete":
            return self
        return replace(self, operators=tuple(o for o in self.operators if not o.whole_in_complete))

    @property
    def whole_result(self) -> bool:
        """Whether output mode complete has a whole result here: right behind an aggregation."""
        operators = self.in_mode("complete").operators
        return bool(operators) and operators[-1].can_complete

    def union(self, other: Lineage, what: str = "union") -> Lineage:
        given = {t for o in other.operators for t in o.given}
        shared = {o.shown for o in self.operators if o in other.operators or o.given & given}
        if shared:
            raise TopologyError(
                f"both sides of the {what} contain the keyed operator(s) {sorted(shared)}; Spark would run each of "
                f"them twice. {what.capitalize()} before the operator, or build it anew for each side, by a function "
                "that is called twice: then each has state of its own, under a uid of its own."
            )
        return Lineage(
            self.inputs + other.inputs,
            _merge(self.sources, other.sources),
            self.operators + other.operators,
            _merge(self.watermarks, other.watermarks),
            _merge(self.open_watermarks, other.open_watermarks),
            _merge(self.told_watermarks, other.told_watermarks),
            _merge(self.places, other.places),
            _merge(self.spark_streams, other.spark_streams),
            self.is_sorted or other.is_sorted,
            self.is_limited or other.is_limited,
            self.marks_reads or other.marks_reads,
        )

    def with_watermark(self, node: WatermarkNode) -> Lineage:
        """A second ``withWatermark`` on the same rows replaces the first, as the rows carry one stream number."""
        kept = tuple(w for w in self.watermarks if w not in self.open_watermarks)
        return replace(self, watermarks=(*kept, node), open_watermarks=(node,))

    def with_watermarks_told(self) -> Lineage:
        """The rows have no event time any more, or not all of them come through here: watermarks go on, of all rows."""
        return replace(self, told_watermarks=_merge(self.told_watermarks, self.open_watermarks))

    def through(self, operator: OperatorNode) -> Lineage:
        """Behind a keyed operator: one input, and watermarks arrive in-band instead of on rows."""
        refuse_shared(self.operators, operator)
        return replace(self, inputs=1, operators=(*self.operators, operator), open_watermarks=())


def refuse_shared(others: Sequence[OperatorNode], operator: OperatorNode) -> None:
    """Raises ``TopologyError`` if one of ``others`` has state under the uid of ``operator``."""
    shared = {t for o in others for t in o.given} & operator.given
    if shared:
        raise TopologyError(
            f"two keyed operators have the uid {min(shared)!r}; their state would be mixed up. Give each its own uid."
        )


def in_plan_order(operators: Sequence[OperatorNode]) -> list[OperatorNode]:
    """``operators`` from the sink to the sources, and from left to right, as Spark goes through a plan. They come with
    each behind those whose rows reach it, and these in one piece, as :class:`Lineage` has them."""
    found: list[OperatorNode] = []
    while operators:
        *others, last = operators
        inside = sum(o in others for o in last.behind)
        at = len(others) - inside
        found = [last, *in_plan_order(others[at:]), *found]
        operators = others[:at]
    return found


def _merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return a + tuple(x for x in b if x not in a)
