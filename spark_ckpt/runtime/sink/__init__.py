"""The sinks' side: staging in tasks."""

from __future__ import annotations
