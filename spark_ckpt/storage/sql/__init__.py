"""SQL databases, as the sink and the source ``sql`` reach them."""

from __future__ import annotations
