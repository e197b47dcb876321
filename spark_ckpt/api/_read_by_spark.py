"""What no source here reads and Spark's own do: they read it, with barriers beside their rows. Driver."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from spark_ckpt.api._file_options import OURS_ALONE
from spark_ckpt.api._left_out import with_attributes_of
from spark_ckpt.api._readers import FILE_FORMATS
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.plan.plan_check import OF_FILES
from spark_ckpt.plan.spark_stream_rows import SparkStreamRows, spark_stream_rows
from spark_ckpt.sources.base import KNOWN_SOURCES

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_log = logging.getLogger("spark_ckpt")
METADATA = "_metadata"
_OF_METADATA = re.compile(rf"(?<!\w){METADATA}\b")
_STAR_INSIDE = re.compile(r"unresolvedstar|[(,]\s*\*\s*[,)]")


def may_be_sparks(kind: Any) -> bool:
    """Whether ``kind`` is no source of spark_ckpt, by name, class or import path."""
    return isinstance(kind, str) and ":" not in kind and kind.lower() not in {*KNOWN_SOURCES, *FILE_FORMATS}


@dataclass(frozen=True)
class Asked:
    """Of the reader: ``kind`` is the format, ``options`` are those of the source, ``uid`` is its name."""

    session: Any
    kind: str
    schema: StructType | None
    options: Mapping[str, str]
    uid: str | None


def read_by_spark(asked: Asked, why: str, *more: str) -> Any:
    """The stream of :func:`rows_by_spark` as a DataFrame, None if there is none."""
    made = rows_by_spark(asked, why, *more)
    return made and asked.session._frame(made.recipe, made.lineage, made.schema)


def rows_by_spark(asked: Asked, why: str, *more: str) -> SparkStreamRows | None:
    """The stream as ``spark.readStream`` reads it, with columns ``more`` that it hides; None if Spark knows no such
    source, either.

    Raises as Spark does, ``ConfigError`` for options that only sources of spark_ckpt have.
    """
    own = [name for name in asked.options if name.lower() in OURS_ALONE or name.lower().startswith("storage.")]
    if own:
        raise ConfigError(
            f"reader option {own[0]}: only sources of spark_ckpt have it, and Spark's own has to read this "
            f"{asked.kind}: {why}"
        )
    reader = asked.session.spark.readStream.format(asked.kind).options(**asked.options)
    try:
        rows = (reader if asked.schema is None else reader.schema(asked.schema)).load()
        made = spark_stream_rows(asked.session.spark, rows.select("*", *more) if more else rows, asked.uid)
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" in str(error):  # classic Spark raises what Java does
            return None
        raise
    _log.info("Spark's own source reads %s, with barriers beside it: %s", asked.kind, why)
    return made


Reread = Callable[..., "CkptDataFrame | None"]
"""Makes the same rows as Spark reads them, as :func:`read_by_spark`, with columns that it hides behind the others."""


def behind(
    df: Any, made: CkptDataFrame, again: Callable[[Any, Sequence[str]], CkptDataFrame] = lambda rows, _: rows
) -> Reread | None:
    """For ``made``, a projection or filter of ``df``, or ``df`` itself: ``again(df, ())``. ``again(rows, more)`` keeps
    columns ``more``, too."""
    find = df._reread

    def found(why: str, *more: str) -> CkptDataFrame | None:
        rows = find(why, *more)
        return rows and with_attributes_of(made, again(rows, more))

    return find and found


def with_file_columns(df: Any, columns: Sequence[Any]) -> Any:
    """``df``, of files that projections and filters alone are behind, as Spark reads them, if ``columns`` ask for
    ``_metadata``, a column of it then, or ``input_file_name()``: what Spark alone tells of files. Else None.

    Raises ``InvalidInputError`` for a star inside a function beside ``_metadata``, which would take that in.
    """
    if df._reread is None:
        return None
    texts = [str(column) for column in columns]
    if METADATA not in df.columns and any(map(_OF_METADATA.search, texts)):
        if any(map(_STAR_INSIDE.search, texts)):
            raise InvalidInputError(f"a star inside a function, beside {METADATA}: name the columns that it stands for")
        made = df._reread(f"column {METADATA} is asked for", METADATA)
        made._reread = lambda *_: made
        return made
    named = next((found[0] for text in texts if (found := OF_FILES.search(text))), None)
    return None if named is None else df._reread(f"{named} is asked for")


def without_metadata(df: Any) -> Any:
    """A projection of what :func:`with_file_columns` gave."""
    return df.drop(METADATA)
