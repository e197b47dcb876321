"""Where a stream that Spark reads begins when a job is restored elsewhere: the options its own connector has for it."""

from __future__ import annotations

import json
from typing import Any

from spark_ckpt.errors import InvalidInputError


def starting_options(position: Any) -> dict[str, str]:
    """The options with which Spark's own source begins at ``position``, as a function in ``readStream.spark(function)``
    gets it: ``startingOffsets`` for Kafka, ``startingVersion`` for Delta; none for None, the first start.

    Driver. Raises ``InvalidInputError`` if that source has no option for it (files, rate), if the position is inside of
    a Delta version, or if it is of a source that is not known here::

        def sold(position: Any) -> Any:
            options = spark_ckpt.starting_options(position)
            return spark.readStream.format("delta").options(**options).load("/lake/sold")
    """
    if position is None:
        return {}
    if _is_delta(position):
        return _version(position)
    if _is_kafka(position):
        return {"startingOffsets": json.dumps(position)}
    raise InvalidInputError(f"starting_options: {_no_way(position)}")


def _is_delta(position: Any) -> bool:
    return isinstance(position, dict) and {"reservoirVersion", "index"} <= position.keys()


def _is_kafka(position: Any) -> bool:
    """Topic -> partition -> offset."""
    topics = list(position.values()) if isinstance(position, dict) else []
    return bool(topics) and all(isinstance(t, dict) and t and all(map(_is_offset, t.items())) for t in topics)


def _is_offset(entry: tuple[Any, Any]) -> bool:
    partition, offset = entry
    return str(partition).isdigit() and isinstance(offset, int)


def _version(position: dict[str, Any]) -> dict[str, str]:
    version = position["reservoirVersion"]
    if position.get("isStartingVersion"):
        raise InvalidInputError(
            f"starting_options: the stream was still reading the table as it was at version {version} when the "
            "checkpoint was taken, and Delta's reader has no option to go on there. Restore a later checkpoint, start "
            'at the old Spark location, or read the table here, by ckpt.readStream.format("delta")'
        )
    if position["index"] != -1:
        raise InvalidInputError(
            f"starting_options: the checkpoint stands inside of version {version} of the table, behind its file "
            f"{position['index']}, and Delta's startingVersion begins whole versions only. Restore another checkpoint, "
            "start at the old Spark location, let maxFilesPerTrigger be above the files of a commit, or read the table "
            'here, by ckpt.readStream.format("delta")'
        )
    return {"startingVersion": str(version)}


def _no_way(position: Any) -> str:
    if isinstance(position, dict) and "logOffset" in position:
        return (
            "Spark's file source remembers which files it has read in its own location only, and has no option to "
            "leave them out. Start at the old Spark location, or read the files here, by "
            'ckpt.readStream.format("files")'
        )
    if isinstance(position, int):
        return (
            "Spark's rate source, and others that count, have no option to begin in the middle. Start at the old Spark "
            'location, or use ckpt.readStream.format("rate")'
        )
    return (
        f"expected an offset of Kafka or Delta, found {json.dumps(position)}. Give readStream.spark a function that "
        "takes this position and returns a stream that begins right there, if its source has an option for it; or "
        "start at the old Spark location"
    )
