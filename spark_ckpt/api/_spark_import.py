"""``ckpt.import_spark``: the checkpoint of a plain Spark query becomes a savepoint of the same query here. Driver."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from spark_ckpt.api._savepoint_writer import SavepointWriter
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.lineage import SourceNode
from spark_ckpt.execution.spark_state import SparkState, spark_checkpoint, spark_operators
from spark_ckpt.jobs.savepoint import Savepoint
from spark_ckpt.jobs.spark_checkpoint import SparkCheckpoint
from spark_ckpt.plan.front_door import front_door
from spark_ckpt.protocol import events as ev
from spark_ckpt.sources.delta.source import ahead_of_version

_log = logging.getLogger("spark_ckpt")


def import_spark(
    writer: SavepointWriter, df: Any, location: str, path: str, offsets: Mapping[str, Mapping[str, Any]]
) -> Savepoint:
    """``writer`` is that of the query ``df``; ``offsets``: of sources whose offsets Spark's log does not tell in our
    terms."""
    query = writer.query
    checkpoint = spark_checkpoint(writer.spark, query.config, location)
    if checkpoint.planned:
        _log.warning(
            "%s: batch %d was planned and is not committed. The savepoint is that of batch %d: rows behind it are read "
            "again, and what the Spark query may have written of them is written once more.",
            location, checkpoint.batch + 1, checkpoint.batch,
        )  # fmt: skip
    _import_state(writer, df, checkpoint)
    _import_offsets(writer, checkpoint, offsets)
    return writer.write(path)


def _import_state(writer: SavepointWriter, df: Any, checkpoint: SparkCheckpoint) -> None:
    query, spark = writer.query, writer.spark
    uids = query.topology.in_plan
    found = spark_operators(spark, checkpoint.location) if checkpoint.keeps_state else []
    if len(found) != len(uids):
        raise InvalidInputError(
            f"expected the state of {len(uids)} operators, {', '.join(uids)}; found {len(found)} in Spark's "
            f"checkpoint, {', '.join(o.name for o in found) or 'none'}: expected the query that wrote it"
        )
    for operator, uid in zip(found, uids, strict=True):
        where = (spark, checkpoint.location, checkpoint.batch)
        semi = partial(front_door(spark).semi_columns, df)
        state = SparkState(*where, operator, uid, query.nodes[uid], query.tables[uid], semi)
        for table, rows in state.rows().items():
            writer.with_operator(table, rows)
        writer.seen_by(uid, _event_times(writer, uid, checkpoint))


def _event_times(writer: SavepointWriter, uid: str, checkpoint: SparkCheckpoint) -> dict[str, int]:
    """Late rows are told by the watermark of the batch before, time-outs by that of the next one."""
    streams = writer.query.watermarks.get(uid, ())
    if not streams:
        return {}
    return {
        **dict.fromkeys(streams, 1000 * checkpoint.watermark_ms),
        ev.NO_STREAM: 1000 * checkpoint.late_ms,
    }


def _import_offsets(
    writer: SavepointWriter, checkpoint: SparkCheckpoint, given: Mapping[str, Mapping[str, Any]]
) -> None:
    sources = writer.query.sources
    unknown = sorted(set(given) - set(sources))
    if unknown:
        raise InvalidInputError(f"offsets: expected sources of the query, {sorted(sources)}, found {unknown}")
    by_uid = {} if set(given) == set(sources) else _in_spark(checkpoint.offsets, list(sources))
    for uid, node in sources.items():
        options = given.get(uid)
        if options is None and checkpoint.offsets[by_uid[uid]] is not None:
            source, offset = by_uid[uid], checkpoint.offsets[by_uid[uid]]
            options = _files(checkpoint, source, offset) if node.inner == "files" else None
            options = options or spark_offset_options(uid, node, offset)
        if options is not None:
            writer.with_offsets(uid, **options)


def _in_spark(offsets: Mapping[str, Any], uids: list[str]) -> dict[str, str]:
    """By uid, what Spark calls each source: by its name if sources have names there, else by its place in the plan."""
    found = list(offsets)
    if not all(map(str.isdigit, found)):
        if set(found) != set(uids):
            raise InvalidInputError(
                f"expected sources {', '.join(sorted(uids))} in Spark's checkpoint, found those of the names "
                f"{', '.join(sorted(found))}: give each stream here the name that it has there, "
                "ckpt.readStream.name(...)"
            )
        return dict(zip(uids, uids))
    if len(uids) == 1 and found and all(offset == offsets[found[0]] for offset in offsets.values()):
        found = found[:1]  # Spark reads a DataFrame that is used twice by two sources
    if len(found) != len(uids):
        raise InvalidInputError(
            f"expected offsets of {len(uids)} sources, {', '.join(uids)}; found {len(found)} in Spark's "
            "checkpoint. Say them all: offsets={...}"
        )
    return dict(zip(uids, found))


def _files(checkpoint: SparkCheckpoint, source: str, offset: Any) -> dict[str, Any] | None:
    return {"files": checkpoint.files_of(source, int(offset["logOffset"]))} if "logOffset" in offset else None


def spark_offset_options(uid: str, node: SourceNode, offset: Any) -> dict[str, Any]:
    """What Spark's offset is in the source's own options."""
    kind = node.inner if isinstance(node.inner, str) else ""
    if kind == "kafka" and all(isinstance(places, dict) for places in offset.values()):
        return {"startingOffsets": json.dumps(offset)}
    if kind == "delta" and "reservoirVersion" in offset:
        return {"offset": _delta_offset(uid, offset, node.options)}
    raise InvalidInputError(
        f"source {uid!r}: how its offset in Spark's checkpoint reads is not known for {kind or node.inner!r}: say "
        f"where it goes on, by its own options: offsets={{{uid!r}: {{...}}}}"
    )


def _delta_offset(uid: str, offset: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Spark's stands ahead of a version, or in the middle of one, in an order of files that is Delta's own."""
    first = offset.get("isStartingVersion", offset.get("isInitialSnapshot", False))
    if int(offset["index"]) >= 0 or first is True:
        raise InvalidInputError(
            f"source {uid!r}: Spark's checkpoint stands in the middle of version {offset['reservoirVersion']} of the "
            "Delta table. Let the Spark query read to the end of it (trigger availableNow), and import then, or say "
            f"where it goes on: offsets={{{uid!r}: {{'startingVersion': ...}}}}"
        )
    changes = {name.lower(): value for name, value in options.items()}.get("readchangefeed", "false")
    return ahead_of_version(str(offset["reservoirId"]), changes.lower() == "true", int(offset["reservoirVersion"]))
