"""The mutations that ``make mutants`` tries: the rule that each breaks, and the text that it replaces."""

from __future__ import annotations

from mutations import protocol, rollback, savepoints, set_back, shell, sinks, start
from mutations.mutation import Mutation

MUTATIONS = (
    *protocol.MUTATIONS,
    *start.MUTATIONS,
    *set_back.MUTATIONS,
    *shell.MUTATIONS,
    *savepoints.MUTATIONS,
    *rollback.MUTATIONS,
    *sinks.MUTATIONS,
)

__all__ = ["MUTATIONS", "Mutation"]
