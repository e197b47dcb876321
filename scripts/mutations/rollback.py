"""Of a job that goes back to a checkpoint with its sinks."""

from __future__ import annotations

from mutations.mutation import Mutation

_PROTOCOL, _JOBS, _RECOVERY = "protocol/rollback.py", "jobs/rollback.py", "protocol/recovery.py"
FILES = (_PROTOCOL, _JOBS)

MUTATIONS = (
    Mutation(_RECOVERY, "no start goes on before a rollback is finished", "if unfinished is not None:", "if False:"),
    Mutation(_RECOVERY, "batches behind a rollback are left", "if back is not None:", "if False:"),
    Mutation(
        _PROTOCOL,
        "what is complete behind it is not committed any more",
        "yield AbortSink(sink, group)",
        "yield from ()",
    ),
    Mutation(_PROTOCOL, "sinks go back", "    for sink in sinks:\n", "    for sink in ():\n"),
    Mutation(
        _PROTOCOL,
        "what is behind it cannot be restored",
        "for one in sorted(behind, key=lambda c: -c.checkpoint):",
        "for one in ():",
    ),
    Mutation(_PROTOCOL, "what could not be dropped is said", "if isinstance(failed, StorageFailed):", "if False:"),
    Mutation(_PROTOCOL, "one that was begun is finished first", "if begun is not None and (", "if False and ("),
    Mutation(_PROTOCOL, "it is finished in the end", "done = replace(record, to_set_back=())", "done = record"),
    Mutation(_PROTOCOL, "a start that is newer wins", "fence_start(facts)", "pass"),
    Mutation(_JOBS, "half a rollback is refused", "if not (plan.is_whole or partial):", "if False:"),
    Mutation(_JOBS, "sinks that cannot go back are left", "for s in plan.sinks if not s.kept)", "for s in plan.sinks)"),
)
