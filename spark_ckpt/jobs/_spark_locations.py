"""Whether a start may go on at a location where another version of Spark has been. Driver."""

from __future__ import annotations

from collections.abc import Sequence

from spark_ckpt.errors import ConfigError
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.protocol.records import GenerationRecord
from spark_ckpt.redaction import redact_url
from spark_ckpt.spark_versions import spark_version


def this_spark() -> str:
    return ".".join(map(str, spark_version()))


def refuse_newer_spark(folder: SparkFolder, decided: Sequence[GenerationRecord]) -> None:
    """Raise ``ConfigError`` if the batches in ``folder`` are those of a newer Spark: Spark reads what older versions
    wrote, and not what newer ones did. ``decided``: the job's starts, oldest first."""
    wrote = next((g.spark for g in reversed(decided) if g.spark_location == folder.path and g.spark), "")
    if not wrote or tuple(map(int, wrote.split("."))) <= spark_version() or folder.location().planned is None:
        return
    raise ConfigError(
        f"the Spark checkpoint location {redact_url(folder.path)}: expected batches of Spark {this_spark()} or older, "
        f"found those of Spark {wrote}, which older versions do not read. Set checkpointLocation to a new, empty "
        "folder: the job goes on there from its newest checkpoint, whose state every version reads"
    )
