"""The command ``spark-ckpt``."""

from __future__ import annotations

from spark_ckpt.cli.main import app

__all__ = ["app"]
