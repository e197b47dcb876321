"""A job's folder, running or not, without Spark: records, start, hooks, requests, clean-up. Driver, command line."""

from __future__ import annotations
