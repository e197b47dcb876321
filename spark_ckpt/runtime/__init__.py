"""What Spark's Python processes run: executors, the planner's and the commit's."""

from __future__ import annotations
