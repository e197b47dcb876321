"""``python -m spark_ckpt``: the command ``spark-ckpt``, where its script is not on the path."""

from __future__ import annotations

from spark_ckpt.cli import app

app(prog_name="spark-ckpt")
