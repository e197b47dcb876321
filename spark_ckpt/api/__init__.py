"""What users call: session, reader, writer, query. Driver."""

from __future__ import annotations
