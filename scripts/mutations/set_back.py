"""Of set-backs: whether what the sinks show and what the folder says belong together."""

from __future__ import annotations

from mutations.mutation import Mutation

_SETBACK, _START, _COMPARED = "protocol/setback.py", "protocol/startup.py", "jobs/compared_sinks.py"

MUTATIONS = (
    # --- what was committed where
    Mutation(
        _SETBACK,
        "another life's sinks owe nothing",
        "if record is None or (record.origin <= 0 and (not life or record.life != life)):",
        "if record is None:",
    ),
    Mutation(
        _SETBACK,
        "what is complete and not confirmed is not expected",
        "not own or (confirmed and (at.checkpoint, sink) not in abandoned)",
        "not own or (at.checkpoint, sink) not in abandoned",
    ),
    Mutation(
        _SETBACK,
        "what was given up is not expected",
        "(confirmed and (at.checkpoint, sink) not in abandoned)",
        "confirmed",
    ),
    Mutation(
        _SETBACK,
        "what sinks without rows show is carried on",
        "shown = {sink: Shown(at, 0, target) for sink, (at, target) in before.items()}",
        "shown: dict[str, Shown] = {}",
    ),
    Mutation(
        _SETBACK,
        "what a sink showed before is kept beside it",
        "shown[sink] = Shown(checkpoint, before.get(sink, (0, ",
        "shown[sink] = Shown(checkpoint, {}.get(sink, (0, ",
    ),
    # --- the comparison
    Mutation(
        _SETBACK,
        "a sink that cannot say is passed over",
        "        if there.newest is None:\n            continue\n",
        "",
    ),
    Mutation(
        _SETBACK, "a sink that is ahead is told", "        if there.newest > newest_known:\n", "        if False:\n"
    ),
    Mutation(
        _SETBACK,
        "what is complete and not confirmed is not ahead",
        "        if there.newest > newest_known:\n",
        "        if there.newest > least:\n",
    ),
    Mutation(_SETBACK, "a sink that is behind is told", "elif there.newest < least and not", "elif False and not"),
    Mutation(
        _SETBACK,
        "another target that shows this job was set back",
        "return found.newest == 0 and bool(target)",
        "return bool(target)",
    ),
    Mutation(
        _SETBACK, "what is accepted holds for this set-back only", "or found.expected <= a.known for a", "or True for a"
    ),
    Mutation(
        _SETBACK, "of a sink, what was accepted of it", "(a.sink, a.checkpoint) == (found.sink, found.found)", "True"
    ),
    Mutation(
        _SETBACK,
        "rows that were staged before are read again",
        "if c.epoch > after and b.generation <= by.get(c.sink, 0)}",
        "if False}",
    ),
    Mutation(
        _SETBACK,
        "rows that were staged behind it are there",
        "c.epoch > after and b.generation <= by.get(c.sink, 0)",
        "c.epoch > after and c.sink in by",
    ),
    Mutation(_SETBACK, "the checkpoint where the target stands is named", "return at[0] == d.found", "return True"),
    # --- the start
    Mutation(_START, "sinks are compared", "    differ = set_back(", "    differ = () and set_back("),
    Mutation(_START, "one that is ahead is looked at again", "if ahead and not looked:", "if False:"),
    Mutation(_START, "what nobody accepted is refused", "    if refused:\n", "    if False:\n"),
    Mutation(
        _START,
        "an open checkpoint takes no id that the sink knows",
        "for k in (*facts.open_triggers, *sorted(ahead))",
        "for k in sorted(ahead)",
    ),
    Mutation(_COMPARED, "the plain plugin compares, too", "    if refused:\n", "    if False:\n"),
)
