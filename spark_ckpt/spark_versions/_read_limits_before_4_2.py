"""The classes of ``pyspark.sql.streaming.datasource`` for Spark 4.0 and 4.1, which do not have the module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


class ReadLimit:
    """How much a source may read at once."""


@dataclass
class ReadAllAvailable(ReadLimit):
    """Everything, whatever the source's options say."""


@dataclass
class ReadMinRows(ReadLimit):
    """Nothing until so many rows are there."""

    min_rows: int


@dataclass
class ReadMaxRows(ReadLimit):
    """At most so many rows."""

    max_rows: int


@dataclass
class ReadMaxFiles(ReadLimit):
    """At most so many files."""

    max_files: int


@dataclass
class ReadMaxBytes(ReadLimit):
    """At most so many bytes."""

    max_bytes: int


class SupportsTriggerAvailableNow(ABC):
    """A source that can end with what is there at the start of a query."""

    @abstractmethod
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now as the end of the input."""
