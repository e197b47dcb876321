"""What a start refuses when records are lost, with a way out that works, and what it passes over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.protocol.damage import Damage, to_put_back
from spark_ckpt.protocol.records import BatchRecord
from spark_ckpt.protocol.recovery import NONE, GoOn, RestoreFrom, StartFresh, decide_start
from tests.protocol.test_protocol_recovery import EMPTY, HERE, completion, facts, generation, refused

RESTORED = facts(generations=(generation(1, restored_from=3),), completions=(completion(3, origin=0),), batches=())
"""Generation 1 began from checkpoint 3 and has completed none."""
UNCOMMITTED = replace(HERE, committed=None)


@pytest.mark.parametrize(
    ("then", "damage", "text", "restore"),
    [
        (facts(), Damage(checkpoints={4: 1}), "checkpoints/4", 3),
        (facts(), Damage(states=(3,)), "manifests of checkpoint 3", 2),
        (facts(), Damage(generations=(2,)), "generations/2", 3),
        (facts(batches=()), Damage(), "batches/0000000001-0000000004", 3),
        (facts(), Damage(batches=((1, 4, 2),)), "batches/0000000001-0000000004", 3),
        (replace(RESTORED, completions=()), Damage(checkpoints={3: None}), "checkpoints/3", NONE),
        (RESTORED, Damage(states=(3,)), "manifests of checkpoint 3", NONE),
    ],
)
def test_what_is_needed_at_a_location_and_is_lost_is_told_with_what_can_be_restored(then, damage, text, restore):
    location = UNCOMMITTED if then.completions != facts().completions else HERE
    assert isinstance(decide_start(replace(facts(), location=HERE)), GoOn)
    found = refused(decide_start(replace(then, location=location, damage=damage)), text)
    assert found.damaged
    assert (f"spark.ckpt.restore={restore} and" if restore != NONE else "or to none") in found.reason
    followed = decide_start(replace(then, location=EMPTY, damage=damage, restore=restore))
    assert isinstance(followed, StartFresh if restore == NONE else RestoreFrom), "who follows the message starts"


@pytest.mark.parametrize(
    ("then", "damage"),
    [
        (facts(), Damage(checkpoints={2: 1, 5: None})),  # older; of nobody's trigger
        (facts(), Damage(states=(2,))),
        (facts(), Damage(batches=((1, 3, 1), (1, 5, 1)))),  # below the newest checkpoint; not committed
        (facts(batches=(BatchRecord(1, 4, 2),)), Damage(generations=(2,))),  # it was here
    ],
)
def test_what_is_not_needed_at_a_location_is_passed_over(then, damage):
    assert isinstance(decide_start(replace(then, location=HERE, damage=damage)), GoOn)


@pytest.mark.parametrize(
    ("damage", "text", "restore"),
    [
        (Damage(checkpoints={4: 1}), "checkpoints/4", 3),
        (Damage(states=(3,)), "checkpoint 3 cannot be restored", 2),
    ],
)
def test_an_older_checkpoint_is_not_restored_in_place_of_one_that_is_lost(damage, text, restore):
    found = refused(decide_start(facts(damage=damage)), text, f"spark.ckpt.restore={restore};")
    assert found.damaged
    assert decide_start(facts(damage=damage, restore=restore)).checkpoint.checkpoint == restore


@pytest.mark.parametrize("lost", [{2: 1}, {4: None}])
def test_what_is_older_or_of_nobodys_trigger_is_passed_over_by_a_restore(lost):
    assert decide_start(facts(damage=Damage(checkpoints=lost))).checkpoint.checkpoint == 3


def test_a_lost_checkpoint_is_put_back_from_its_only_copy():
    own, other = completion(4), completion(3)
    assert to_put_back(Damage(checkpoints={4: 1}, copies={4: (own,)})) == (own,)
    for not_believed in ((other,), (own, own), (own, None), (None,)):
        assert to_put_back(Damage(checkpoints={4: 1}, copies={4: not_believed})) == ()
    assert to_put_back(Damage(copies={4: (own,)})) == (), "it is there"
