"""What became of a checkpoint is one rule: the documented table, every cell of it, and what follows from a state."""

from __future__ import annotations

import itertools

import pytest

from spark_ckpt.protocol import checkpoint_state
from spark_ckpt.protocol.checkpoint_state import CheckpointState as State
from spark_ckpt.protocol.checkpoint_state import Name, Recorded, state_of

CASES = [
    (name, *flags)
    for name in Name
    for flags in itertools.product((False, True), repeat=4)  # committed, aborted, newer, triggered
]


def documented(name: Name, committed: bool, aborted: bool, newer: bool, triggered: bool) -> str:
    """The state that the module's table gives: its first row that applies."""
    table = checkpoint_state.__doc__.split("=\n")[2]
    rows: list[list[str]] = []
    for line in table.splitlines():
        if line.strip("= "):
            cells = [line[:20].strip(), line[20:37].strip(), line[37:54].strip(), line[54:].strip()]
            if cells[0]:
                rows.append(cells)
            else:
                rows[-1][3] += " " + cells[3]
    said = {"any": True, "yes": committed, "no": not committed}
    said |= {"yes, none newer": committed and not newer, "no, or a newer": not committed or newer}
    found = [r for r in rows if r[0] == name.value and said[r[1]] and {**said, "yes": aborted, "no": not aborted}[r[2]]]
    text = found[0][3]
    if text.startswith("SUBSUMED if a newer one is complete, else PENDING; ABSENT if nobody triggered it"):
        return "SUBSUMED" if newer and triggered else "PENDING" if triggered else "ABSENT"
    return text.split(":")[0]


@pytest.mark.parametrize(("name", "committed", "aborted", "newer", "triggered"), CASES)
def test_every_cell_of_the_table_is_what_the_code_says(name, committed, aborted, newer, triggered):
    found = state_of(name, committed=committed, aborted=aborted, newer=newer, triggered=triggered)
    assert found.name == documented(name, committed, aborted, newer, triggered)


def test_a_name_that_is_taken_is_settled_and_one_that_is_free_is_only_if_it_was_given_up():
    for name, committed, aborted, newer, triggered in CASES:
        state = state_of(name, committed=committed, aborted=aborted, newer=newer, triggered=triggered)
        assert state.settled == (name is not Name.FREE or state is State.ABORTED)
        assert not (state.settled and not state.over)


def test_a_completion_counts_and_not_that_it_was_given_up_at_the_same_moment():
    assert state_of(Name.COMPLETION, aborted=True, committed=True) is State.COMMITTED
    assert not state_of(Name.COMPLETION, aborted=True).given_up


def test_what_a_folder_holds_says_which_triggers_are_open_and_which_checkpoints_are_lost():
    recorded = Recorded(
        {2: Name.COMPLETION, 3: Name.DAMAGED, 5: Name.VOID},
        triggered=(1, 2, 3, 4, 5, 6, 7),
        committed=(1, 2, 7),
        aborted=(4,),
    )
    found = [recorded.state(k) for k in range(1, 9)]
    assert found == [
        State.SUBSUMED, State.COMMITTED, State.DAMAGED, State.ABORTED, State.VOID, State.PENDING, State.MISSING,
        State.ABSENT,
    ]  # fmt: skip
    assert recorded.open_triggers() == (1, 6, 7)  # of 7 the name is free: somebody could still complete it
    assert recorded.lost() == {3, 7}
