"""The ``kafka`` source: topics of Apache Kafka, with the options and columns of Spark's own."""

from __future__ import annotations
