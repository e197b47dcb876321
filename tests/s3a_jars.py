"""Hadoop's client of S3, with which Spark writes its own location there."""

from __future__ import annotations

from pathlib import Path

S3A_JARS = Path.home() / ".cache/spark-ckpt/hadoop-aws-3.5.0"
"""Where ``scripts/with_env.sh ... --s3a`` puts it; of the Hadoop of Spark 4.2."""
