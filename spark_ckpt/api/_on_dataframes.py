"""What PySpark's own DataFrame gets for streams of ours: ``writeStream``, ``uid``, and behind ``groupBy`` the operators
that PySpark has not. Driver."""

from __future__ import annotations

from functools import partial
from typing import Any

from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.plan.front_door import FrontDoor, front_door
from spark_ckpt.plan.grouped_methods import aggregate, applyInArrowWithState, topN

_of_spark: dict[Any, Any] = {}
"""PySpark's own ``writeStream`` of each of its classes."""


def add_methods(spark: Any) -> None:
    """To the classes of ``spark``. DataFrames without a stream of ours are as they were."""
    door = front_door(spark)
    own = _of_spark.setdefault(door.frames, door.frames.writeStream)
    door.frames.writeStream = property(partial(_write_stream, door), doc=own.__doc__)
    door.frames.uid = property(partial(_uid, door), doc=door.with_uid.__doc__)
    for method in (aggregate, applyInArrowWithState, topN):
        setattr(door.grouped, method.__name__, method)


def _write_stream(door: FrontDoor, df: Any) -> Any:
    session = door.session_of(df)
    return _of_spark[door.frames].__get__(df) if session is None else CkptDataStreamWriter(df, session)


def _uid(door: FrontDoor, df: Any) -> Any:
    if door.session_of(df) is None:  # then it is a column, or Spark's error
        raise AttributeError("uid")
    return partial(door.with_uid, df)
