"""One rule, broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``file`` below ``spark_ckpt/``; ``old`` occurs in it exactly once."""

    file: str
    rule: str
    old: str
    new: str
