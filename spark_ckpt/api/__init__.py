"""What users call: session, DataFrame, grouped, writer, query, the plain plugin. Driver."""

from __future__ import annotations
