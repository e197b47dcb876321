"""The checkpointing settings of a job's starts: recorded with each, compared with the one before. Driver."""

from __future__ import annotations

import logging

from spark_ckpt.config import PREFIX
from spark_ckpt.protocol.records import GenerationRecord

_log = logging.getLogger("spark_ckpt")


def tell_changes(job: str, before: GenerationRecord | None, now: GenerationRecord) -> list[str]:
    """Log what is set otherwise than at the start before; returns that. A setting that is new to it is no change."""
    was = {} if before is None else before.settings
    changed = [
        f"{PREFIX}{name} is {value}, was {was[name]}"
        for name, value in sorted(now.settings.items())
        if name in was and was[name] != value
    ]
    if changed and before is not None:
        _log.warning(
            "Job %s, generation %d: settings changed since generation %d: %s",
            job,
            now.generation,
            before.generation,
            "; ".join(changed),
        )
    return changed
