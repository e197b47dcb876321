"""The command ``spark-ckpt``."""

from __future__ import annotations

from spark_ckpt.cli._main import app

__all__ = ["app"]
