"""Spark's progress with what Spark does not see: rows read and written, watermark, late rows, state, phases. The user's
process.

Where a source is chained to what follows, Spark sees record batches and counts those, and it counts control rows
everywhere; the watermark is our operators'. So each task says in-band how many rows it read and what time it went by,
the sink's commit writes it into the batch's record, and here Spark's numbers are replaced by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_ckpt.execution.lineage import SPARK_STREAMS
from spark_ckpt.jobs.batch_reports import Reported
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import FAMILY_OF, Figures, Topology
from spark_ckpt.sources.spark_stream import is_control, is_ours

_RATES = ("inputRowsPerSecond", "processedRowsPerSecond")
_CYCLE_MS = 146_097 * 86_400_000
"""400 years of the calendar."""
_UNKNOWN = -1
"""What Spark says of sinks that do not tell, such as foreachBatch."""


def with_reports(progress: Any, run: RunSpec, told: Reported) -> Any:
    """``progress`` with what its batch reported, as far as it is known.

    What Spark counts as written has control rows in it; ours are rows that each sink was given in the batch, to show
    them with the next checkpoint.
    """
    known = told.rows.get(progress.batchId) if progress.numInputRows else None
    watermark_us = told.watermark_us(progress.batchId)
    body = json.loads(progress.json)
    body["sink"]["numOutputRows"] = told.written.get(progress.batchId, _UNKNOWN)
    body["durationMs"].update({_as_spark_names(p): ms for p, ms in told.phases_ms.get(progress.batchId, {}).items()})
    _tell_state(body["stateOperators"], run.topology, told.figures)
    if watermark_us is not None:
        body["eventTime"] = {"watermark": _as_spark_writes(watermark_us // 1000)}
        _count_late(body["stateOperators"], run.topology.in_plan, told.late(progress.batchId))
    if known is not None and _counted(body["sources"], run.topology.sources, known):
        body["numInputRows"] = sum(s["numInputRows"] for s in body["sources"])
        body.update({rate: sum(s.get(rate) or 0.0 for s in body["sources"]) for rate in _RATES})
    counted = StreamingQueryProgress.fromJson(body)
    counted["observedMetrics"] = progress.observedMetrics
    return counted


def _as_spark_names(phase: str) -> str:
    """``commit_state_ms`` is ``checkpoint.commitState`` among Spark's durations."""
    first, *rest = phase.removesuffix("_ms").split("_")
    return f"checkpoint.{first}{''.join(word.capitalize() for word in rest)}"


def _tell_state(operators: list[dict[str, Any]], topology: Topology, figures: Figures) -> None:
    """Live keys and bytes of state files at the newest checkpoint, if all that Spark has are ours. What Spark counts is
    a row for each subtask, whose bytes are what changed since."""
    if len(operators) != len(topology.in_plan) or not figures.keys:
        return
    for operator, uid in zip(operators, topology.in_plan, strict=True):
        tables = [t for t, facts in topology.operators.items() if t == uid or facts.get(FAMILY_OF) == uid]
        operator["numRowsTotal"] = sum(figures.keys.get(t, 0) for t in tables)
        operator["memoryUsedBytes"] = sum(figures.state_bytes.get(t, 0) for t in tables)


def _as_spark_writes(ms: int) -> str:
    cycles, rest = divmod(ms, _CYCLE_MS)  # Python's years end with 9999
    year = (at := datetime.fromtimestamp(rest // 1000, timezone.utc)).year + 400 * cycles
    return f"{'+' if year > 9999 else ''}{year:04d}-{at:%m-%dT%H:%M:%S}.{rest % 1000:03d}Z"


def _count_late(operators: list[dict[str, Any]], uids: Sequence[str], late: Mapping[str, int]) -> None:
    """If all that Spark has are ours."""
    if len(operators) == len(uids):
        for operator, uid in zip(operators, uids, strict=True):
            operator["numRowsDroppedByWatermark"] = late.get(uid, 0)


def _counted(sources: list[dict[str, Any]], uids: Sequence[str], known: Mapping[str, int]) -> bool:
    """Whether the rows of each are known now. Of the streams that Spark reads it is Spark that knows them."""
    ends = [_parsed(source.get("endOffset")) for source in sources]
    control = [source for source, end in zip(sources, ends, strict=True) if is_control(end)]
    own = sources
    if control:
        own = [s for s, end in zip(sources, ends, strict=True) if is_ours(end) and not is_control(end)]
        uids = [uid for uid in uids if uid != SPARK_STREAMS.uid]
    if len(own) != len(uids):
        return False
    # Spark's order is that of the plan, from left to right; ours is that in which the streams were put together.
    for source, uid in zip(own, uids, strict=True):
        _count(source, known.get(uid, 0))
    for source in control:
        _count(source, 0)
    return True


def _parsed(offset: Any) -> Any:
    """Spark has an offset as JSON inside of its own, or, in what was read back, as a text."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _count(source: dict[str, Any], rows: int) -> None:
    """The times are Spark's: what it divided by is what it is divided by."""
    spark_rows = source["numInputRows"]
    source["numInputRows"] = rows
    for rate in _RATES:
        source[rate] = (source.get(rate) or 0.0) * rows / spark_rows if spark_rows else 0.0
