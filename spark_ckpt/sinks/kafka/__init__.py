"""The ``kafka`` sink: rows wait in Kafka transactions that tasks fill and the driver, or its successor, commits."""

from __future__ import annotations
