"""The plugin without ``enable``: ``format("ckpt")`` of Spark's own readers and writers, on data sources of ours."""

from __future__ import annotations
