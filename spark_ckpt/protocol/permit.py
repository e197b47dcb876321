"""The permit to make a complete checkpoint visible: made from its record, here and nowhere else. Pure."""

from __future__ import annotations

from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.types import PERMIT_ISSUER, CheckpointId, CommitPermit, Generation


def permit_for(record: CompletionRecord, job: str, oldest: CheckpointId | None) -> CommitPermit:
    """``record`` was created, or read, as ``checkpoints/K`` of ``job``. ``oldest``: what sinks must not forget yet."""
    return CommitPermit(
        job=identity(job, record.life),
        checkpoint=CheckpointId(record.checkpoint),
        generation=Generation(record.generation),
        oldest=oldest,
        issuer=PERMIT_ISSUER,
    )
