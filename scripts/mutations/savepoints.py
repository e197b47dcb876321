"""Of savepoints as things: their folders, copies, removal and schedule."""

from __future__ import annotations

from mutations.mutation import Mutation

_TARGET, _THING, _SCHEDULE = "jobs/_savepoint_target.py", "jobs/savepoint.py", "jobs/scheduled_savepoints.py"
FILES = (_TARGET, _THING, _SCHEDULE)

MUTATIONS = (
    Mutation(_TARGET, "only an empty folder is free", "    if found:\n        more", "    if False:\n        more"),
    Mutation(
        _TARGET,
        "of two that claim a folder one wins",
        "if isinstance(made, Exists) and codec.read(SavepointMark, made.body, CLAIM_RECORD) != mark:",
        "if False:",
    ),
    Mutation(_TARGET, "no savepoint is inside its job's folder", "if job_url is not None and", "if False and"),
    Mutation(
        _THING,
        "an unfinished savepoint is removed by force only",
        "if not (force or mark.disposing):",
        "if False:",
    ),
    Mutation(
        _THING,
        "the claim says that a savepoint is being removed",
        "replace_claim(self.store, replace(mark, disposing=True))",
        "pass",
    ),
    Mutation(
        _THING,
        "a copy is there when all of it is",
        "copy_folder(self.store.folder.child(name), there.store.folder.child(name))",
        "pass",
    ),
    Mutation(
        _SCHEDULE,
        "savepoints of another life stay",
        "(found.job, found.life) == (job, life)",
        "found.job == job",
    ),
    Mutation(
        _SCHEDULE,
        "as many as are wanted are kept",
        "kept = complete[max(0, len(complete) + 1 - config.savepoint_keep) :]",
        "kept = complete[max(0, len(complete) - config.savepoint_keep) :]",
    ),
    Mutation(_SCHEDULE, "only older ones go", "if n < newest]", "]"),
)
