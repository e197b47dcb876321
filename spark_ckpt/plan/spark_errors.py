"""Errors of Spark's own conditions, where it is not Spark that finds them. Driver."""

from __future__ import annotations

from pyspark.errors import AnalysisException


def analysis_error(condition: str, text: str, **parameters: str) -> AnalysisException:
    """As Spark raises it, of error condition ``condition``; ``parameters`` are those of its message."""
    return AnalysisException(text, errorClass=condition, messageParameters=parameters)


def path_not_found(path: str) -> AnalysisException:
    """What Spark raises where a stream of files is made of a ``path`` that is not there."""
    return analysis_error(
        "PATH_NOT_FOUND",
        f"Path does not exist: {path}. Make the folder first, or give a glob, such as {path.rstrip('/')}/*, which may "
        "match nothing yet",
        path=path,
    )
