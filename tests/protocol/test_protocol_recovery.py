"""What a starting query decides from the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.records import (
    REFUSED,
    UNDECIDED,
    BatchRecord,
    CompletionRecord,
    GenerationRecord,
    TableRef,
    Topology,
)
from spark_ckpt.protocol.recovery import (
    GoOn,
    Refuse,
    RestoreFrom,
    SparkLocation,
    StartFacts,
    StartFresh,
    as_savepoint,
    decide_start,
    fit_topology,
)
from spark_ckpt.types import Committable, Epoch

UNMARKED = {"state": "n long", "keys": "k long"}
X = {**UNMARKED, "made_of": {}}
TOPOLOGY = Topology(4, 8, ("a", "b"), {"x": X}, ("s", "t"))
EMPTY = SparkLocation("file:/new")
HERE = SparkLocation("file:/spark", 5, 4, 1)


def staged(name, epoch, sink="s"):
    return Committable(sink, Epoch(epoch), name.encode())


def completion(checkpoint, origin=1, batch=None, committables=(), topology=TOPOLOGY):
    batch = checkpoint if batch is None else batch
    return CompletionRecord(
        checkpoint, "checkpoint", origin, origin, batch, batch + 1, {}, {}, tuple(committables), topology, 0, 0
    )


def generation(number, origin=None, location="file:/spark", restored_from=None, topology=TOPOLOGY):
    return GenerationRecord(number, number if origin is None else origin, location, restored_from, 0, topology)


def batches_of(origin, numbers):
    return tuple(BatchRecord(origin, batch, origin) for batch in numbers)


def facts(**changes):
    """Generation 1 ran at file:/spark and completed checkpoints 1 to 3; generation 9 starts."""
    done = tuple(completion(k) for k in (1, 2, 3))
    base = StartFacts("auto", EMPTY, TOPOLOGY, 9, (generation(1),), done, frozenset({1, 2, 3}), (BatchRecord(1, 4, 1),))
    return replace(base, **changes)


def refused(decision, *texts):
    assert isinstance(decision, Refuse)
    for text in texts:
        assert text in decision.reason
    return decision


# --- an empty location -----------------------------------------------------------------------------------------


def test_a_job_without_history_starts_fresh():
    nothing = StartFacts("auto", EMPTY, TOPOLOGY, 1)
    assert decide_start(nothing) == StartFresh()


def test_an_empty_location_never_reprocesses_a_job_that_has_history():
    decision = decide_start(facts())
    assert isinstance(decision, RestoreFrom)
    assert decision.checkpoint.checkpoint == 3


def test_restore_none_is_the_explicit_fresh_start():
    assert isinstance(decide_start(facts(restore="none")), StartFresh)


def test_restore_names_a_checkpoint():
    decision = decide_start(facts(restore=2))
    assert isinstance(decision, RestoreFrom)
    assert decision.checkpoint.checkpoint == 2


def test_restore_of_an_unknown_checkpoint_lists_what_there_is():
    refused(decide_start(facts(restore=7)), "restore=7", "[1, 2, 3]")


def test_what_is_complete_and_not_confirmed_is_committed_whatever_is_restored():
    for restore in ("auto", 2, "none"):
        decision = decide_start(facts(restore=restore, committed=frozenset({1})))
        assert [c.checkpoint for c in decision.commit] == [2, 3]


def test_what_nobody_will_commit_is_aborted():
    canonical = staged("canonical", 3)
    batches = (
        BatchRecord(1, 3, 1, (canonical, staged("open", 4))),
        BatchRecord(1, 4, 1, (staged("later", 4), staged("gone", 4, "dropped-sink"))),
        BatchRecord(2, 0, 2, (staged("other", 1),)),
    )
    decision = decide_start(facts(batches=batches, generations=(generation(1), generation(2)), open_triggers=(4, 5)))
    assert [c.data for c in decision.abort] == [b"open", b"later", b"other"]
    assert (decision.abort_triggers, decision.drop_origins) == ((4, 5), (1, 2))


def test_a_decision_that_a_fenced_start_records_late_changes_nothing():
    """Generation 2 decided to restore, and was halted; 3 went on with origin 1, and knew nothing of that."""
    late = (generation(1), generation(2, location="file:/other", restored_from=1), generation(3, origin=1))
    here = decide_start(facts(generations=late, location=HERE))
    assert isinstance(here, GoOn)
    assert here.origin == 1
    empty = decide_start(facts(generations=late))
    assert isinstance(empty, RestoreFrom)
    assert empty.checkpoint.checkpoint == 3


def test_the_newest_origin_that_did_anything_says_where_the_job_stands():
    """Rewound to 1, then stopped before its first checkpoint: 3 belongs to a line that was left."""
    rewound = generation(2, location="file:/other", restored_from=1)
    worked = facts(generations=(generation(1), rewound), batches=(BatchRecord(2, 0, 2),))
    assert decide_start(worked).checkpoint.checkpoint == 1
    completed = facts(generations=(generation(1), rewound), completions=(completion(3), completion(4, 2, 0)))
    assert decide_start(completed).checkpoint.checkpoint == 4


def test_a_rollback_that_was_decided_is_not_forgotten_before_its_first_batch():
    rewound = generation(2, location="file:/other", restored_from=1)
    idle = facts(generations=(generation(1), rewound))
    assert decide_start(idle).checkpoint.checkpoint == 1
    for claim in (UNDECIDED, REFUSED):  # an attempt that was stopped before it decided, or was refused
        stopped = facts(generations=(generation(1), replace(rewound, origin=claim, restored_from=None)))
        assert decide_start(stopped).checkpoint.checkpoint == 3
    assert decide_start(replace(idle, restore=3)).checkpoint.checkpoint == 3


def test_a_rollback_whose_checkpoint_is_gone_with_all_others_leaves_nothing_to_go_on_from():
    """Somebody deleted the job's checkpoints since."""
    rewound = generation(2, location="file:/other", restored_from=1)
    deleted = facts(generations=(generation(1), rewound), completions=(), committed=frozenset(), batches=())
    assert decide_start(deleted) == StartFresh()


def test_a_fresh_start_that_did_nothing_does_not_hide_what_there_is_to_go_on_from():
    assert decide_start(facts(generations=(generation(1), generation(2)))).checkpoint.checkpoint == 3


def test_an_explicit_fresh_start_that_did_something_is_started_fresh_again():
    decision = decide_start(facts(generations=(generation(1), generation(2)), batches=(BatchRecord(2, 0, 2),)))
    assert isinstance(decision, StartFresh)


def test_a_checkpoint_the_line_stands_at_and_that_is_gone_is_not_replaced_by_another():
    rewound = generation(2, restored_from=77)
    refused(decide_start(facts(generations=(generation(1), rewound), batches=(BatchRecord(2, 0, 2),))), "77")


def test_an_imported_savepoint_is_restored_by_a_job_without_history():
    savepoint = replace(completion(6, committables=[staged("a", 6)]), finished_weight=3, triggered_by=5)
    imported = replace(as_savepoint(savepoint), checkpoint=7)
    assert (imported.origin, imported.batch, imported.batches_from, imported.committables) == (0, -1, 0, ())
    assert (imported.finished_weight, imported.triggered_by) == (0, 0), "of another job's inputs and generations"
    decision = decide_start(StartFacts("auto", EMPTY, TOPOLOGY, 1, (), (imported,), frozenset({7})))
    assert isinstance(decision, RestoreFrom)
    assert (decision.checkpoint.checkpoint, decision.commit) == (7, ())


def test_a_sink_that_still_has_to_commit_must_be_there():
    pending = completion(3, committables=[staged("a", 3, "removed")])
    for restore in ("auto", "none"):
        decision = decide_start(facts(restore=restore, completions=(pending,), committed=frozenset()))
        assert refused(decision, "removed", "start once with").topology


# --- the same location -----------------------------------------------------------------------------------------


def test_batches_of_an_origin_that_was_left_behind_are_never_aborted_again():
    # Their records could not be dropped then, and the checkpoint that committed them has been dropped since.
    old = BatchRecord(1, 4, 1, (staged("committed long ago", 3),))
    new = completion(6, origin=5)
    found = decide_start(facts(completions=(new,), generations=(generation(1), generation(5)), batches=(old,)))
    assert (found.abort, found.drop_origins) == ((), (1,))
    begun = decide_start(facts(generations=(generation(1), generation(5)), batches=(replace(old, origin=5),)))
    assert [c.data for c in begun.abort] == [b"committed long ago"]


def test_a_location_with_batches_goes_on_as_its_origin():
    decision = decide_start(facts(location=HERE))
    assert decision == GoOn(1, None, None, (), newest=completion(3))


def test_going_on_commits_first_what_is_canonical():
    decision = decide_start(facts(location=HERE, committed=frozenset({1, 2})))
    assert [c.checkpoint for c in decision.commit] == [3]


def test_a_replay_of_the_batch_that_completed_a_checkpoint_adopts_it():
    done = (completion(3, batch=5),)
    assert decide_start(facts(location=HERE, completions=done)).adopt == done[0]
    committed = replace(HERE, committed=5)
    assert decide_start(facts(location=committed, completions=done)).adopt is None


def test_a_location_that_has_committed_nothing_keeps_its_first_restore_decision():
    """initialOffset must be what it was when batch 0 was planned."""
    opened = generation(2, location="file:/new", restored_from=2)
    again = generation(3, origin=2, location="file:/new", restored_from=2)
    decision = decide_start(
        facts(
            location=SparkLocation("file:/new", 0, None, 2),
            generations=(generation(1), opened, again),
            batches=(BatchRecord(2, 0, 2),),
        )
    )
    assert isinstance(decision, GoOn)
    assert decision.restored.checkpoint == 2


def test_a_location_that_needs_a_checkpoint_that_is_gone_refuses():
    opened = generation(2, location="file:/new", restored_from=77)
    fresh = SparkLocation("file:/new", 0, None, 2)
    refused(decide_start(facts(location=fresh, generations=(opened,))), "77", "empty location")
    batches = (BatchRecord(2, 0, 2),)
    after = facts(location=replace(fresh, committed=0), generations=(opened,), batches=batches)
    assert isinstance(decide_start(after), GoOn)


@pytest.mark.parametrize("origin", [None, 7])
def test_batches_of_another_job_are_refused(origin):
    refused(decide_start(facts(location=replace(HERE, origin=origin))), f"origin {origin}", "another")


def test_a_location_the_job_has_left_is_refused():
    refused(
        decide_start(facts(location=HERE, generations=(generation(1), generation(2, location="file:/b")))), "file:/b"
    )


def test_a_start_elsewhere_that_may_still_be_alive_is_refused():
    claim = generation(2, origin=UNDECIDED, location="file:/b")
    refused(decide_start(facts(location=HERE, generations=(generation(1), claim))), "file:/b")
    for harmless in (
        generation(2, origin=UNDECIDED),
        generation(2, origin=REFUSED, location="file:/b"),
    ):
        assert isinstance(decide_start(facts(location=HERE, generations=(generation(1), harmless))), GoOn)


def test_a_location_that_was_set_back_is_refused():
    done = (completion(3, batch=7),)
    refused(decide_start(facts(location=HERE, completions=done)), "batch 7", "set back")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"operators": {"x": X, "y": X}}, "operators"),
        ({"sources": ("a",)}, "sources"),
        ({"sinks": ("s",)}, "sinks"),
        ({"key_groups": 8}, "maxParallelism"),
        ({"weight_total": 4}, "streams at the sink"),
        ({"operators": {"x": {**X, "state": "n double"}}}, "state schema"),
    ],
)
def test_a_changed_query_whose_location_cannot_be_left_is_refused(changed, text):
    here = facts(location=HERE, topology=replace(TOPOLOGY, **changed))
    assert refused(decide_start(here), text, "expected", "found").topology
    nothing = replace(here, may_move=True, completions=(), committed=frozenset(), batches=batches_of(1, range(6)))
    assert refused(decide_start(nothing), text).topology, "there is no checkpoint to go on from elsewhere"


@pytest.mark.parametrize(
    ("changed", "fresh", "dropped"),
    [
        ({"sources": ("b", "a")}, (), ()),
        ({"in_plan": ("y", "x"), "operators": {"x": X, "y": X}}, ("y",), ()),
        ({"operators": {"x": X, "y": X}}, ("y",), ()),
        ({"sources": ("a",)}, (), ("b",)),
        ({"sources": ("c", "a", "b")}, ("c",), ()),
        ({"sinks": ("s",)}, (), ()),
        ({"weight_total": 4}, (), ()),
    ],
)
def test_a_changed_query_restores_the_newest_checkpoint_elsewhere(changed, fresh, dropped):
    here = facts(
        location=HERE, topology=replace(TOPOLOGY, **changed), may_move=True, allow_non_restored=True, open_triggers=(4,)
    )
    decision = decide_start(here)
    assert isinstance(decision, RestoreFrom)
    assert decision.changed.startswith("the query at this location changed")
    assert decision.checkpoint.checkpoint == 3
    assert (decision.fresh_uids, decision.dropped_uids) == (fresh, dropped)
    assert (decision.abort_triggers, decision.drop_origins) == ((4,), (1,))


def test_operators_that_changed_places_leave_the_location():
    """Spark's state store numbers them. Records of before do not say it."""
    two = replace(TOPOLOGY, operators={"x": X, "y": X})
    for then, moves in ((("x", "y"), True), (("y", "x"), False), ((), False)):
        ran = replace(two, in_plan=then)
        done = tuple(completion(k, topology=ran) for k in (1, 2, 3))
        here = facts(location=HERE, generations=(generation(1, topology=ran),), completions=done, may_move=True)
        decision = decide_start(replace(here, topology=replace(two, in_plan=("y", "x"))))
        assert isinstance(decision, RestoreFrom if moves else GoOn), then


OTHER_SINKS = replace(TOPOLOGY, sinks=("s",))


@pytest.mark.parametrize(
    "without",
    [
        {"allow_non_restored": False, "topology": replace(TOPOLOGY, sources=("a",))},  # it would drop a state
        {"topology": OTHER_SINKS, "completions": (), "committed": frozenset()},  # there is nothing to restore
        {"topology": replace(TOPOLOGY, operators={"x": {**X, "state": "n double"}})},
        {"topology": OTHER_SINKS, "generations": (generation(1), generation(2))},  # it went on there
        {"topology": OTHER_SINKS, "completions": (completion(3, batch=7),)},  # the location was set back
    ],
)
def test_a_changed_query_is_refused_where_something_would_be_lost(without):
    assert isinstance(decide_start(facts(**{"location": HERE, "may_move": True, **without})), Refuse)


def test_a_source_of_another_kind_does_not_go_on_from_the_offsets():
    old = replace(TOPOLOGY, reads={"a": "files path=/a"})
    refused(
        fit_topology(old, replace(TOPOLOGY, reads={"a": "kafka subscribe=t"}), True), "'a'", "files", "kafka", "uid"
    )
    assert not isinstance(fit_topology(old, replace(TOPOLOGY, reads={"a": "files path=/moved"}), True), Refuse)


def test_operators_without_uids_that_changed_places_are_refused():
    """Both keep the same, so that nothing else tells."""
    one, two, three = ({**X, "derived": ["a"], "stands_in": mark} for mark in ("1", "2", "3"))
    old = replace(TOPOLOGY, operators={"count-0": one, "count-1": two})
    refused(
        fit_topology(old, replace(old, operators={"count-0": two, "count-1": one}), True), "changed places", "count-1"
    )
    assert not isinstance(fit_topology(old, replace(old, operators={"count-0": three, "count-1": two}), True), Refuse)
    assert not isinstance(fit_topology(old, old, True), Refuse)


def test_groups_that_waited_in_mode_append_are_known_in_mode_update():
    modes = [replace(TOPOLOGY, operators={"x": {**X, "mode": m}}) for m in ("append", "update", "complete")]
    append, update, complete = modes
    later = carried_over(append, update, 2)
    assert later.operators["x"]["waited"]
    assert carried_over(later, update, None).operators["x"]["waited"]
    for now, was in ((update, update), (append, later), (complete, append)):
        assert "waited" not in carried_over(was, now, 3).operators["x"]


def test_what_a_derived_source_reads_tells_it_from_another():
    """Its uid is its place in the query."""
    old = replace(TOPOLOGY, reads={"a": "files path=/a"}, derived_sources=("a",))
    other = replace(TOPOLOGY, reads={"a": "files path=/b"}, derived_sources=("a",))
    refused(fit_topology(old, other, True), "'a'", "path=/a", "path=/b", "uid")
    given = fit_topology(old, replace(other, derived_sources=()), False)
    assert not isinstance(given, Refuse), "its uid is given now: its user says which it is"
    moved = replace(TOPOLOGY, sources=("c", "b"), reads={"c": "files path=/a"}, derived_sources=("c",))
    refused(fit_topology(old, moved, False), "holds state of ['a']", """path=/a goes on with option("uid", 'a')""")


# --- topology --------------------------------------------------------------------------------------------------


def test_new_uids_start_empty():
    new = replace(TOPOLOGY, operators={"x": X, "y": X}, sources=("a", "b", "c"))
    assert fit_topology(TOPOLOGY, new, False).fresh_uids == ("y", "c")


@pytest.mark.parametrize("gone", [{"operators": {}}, {"sources": ("a",)}])
def test_state_that_nobody_takes_is_refused_unless_allowed(gone):
    new = replace(TOPOLOGY, **gone)
    assert refused(fit_topology(TOPOLOGY, new, False), "allowNonRestoredState").topology
    assert fit_topology(TOPOLOGY, new, True).dropped_uids


@pytest.mark.parametrize("part", ["state", "keys"])
def test_a_changed_schema_is_refused_even_if_state_may_be_dropped(part):
    new = replace(TOPOLOGY, operators={"x": {**X, part: "other"}})
    refused(fit_topology(TOPOLOGY, new, True), "'x'", "expected", "found other", "ckpt.migrate('x').begin_empty()")


MADE = {**X, "timeout": "NoTimeout", "made_of": {"high": "max(v)"}}


@pytest.mark.parametrize(
    ("changed", "texts"),
    [
        ({"made_of": {"high": "min(v)"}}, ("'high'", "made by max(v)", "by min(v)")),
        ({"timeout": "EventTimeTimeout"}, ("time-out", "expected NoTimeout", "found EventTimeTimeout")),
        ({"state": "other", "made_of": {"top": "max(v)"}}, ("found other",)),
    ],
)
def test_state_that_was_made_otherwise_is_refused_at_every_entrance(changed, texts):
    old = replace(TOPOLOGY, operators={"x": MADE})
    new = replace(TOPOLOGY, operators={"x": {**MADE, **changed}})
    for restore in ("auto", 3):
        decision = decide_start(facts(restore=restore, completions=(completion(3, topology=old),), topology=new))
        assert refused(decision, "'x'", "ckpt.migrate('x').begin_empty()", *texts).topology
    here = generation(1, topology=old)
    assert refused(decide_start(facts(location=HERE, generations=(here,), topology=new)), "'x'", *texts).topology


@pytest.mark.parametrize(("then", "now"), [(MADE, X), (X, MADE), (UNMARKED, MADE)])
def test_what_no_aggregate_made_is_not_compared(then, now):
    old, new = replace(TOPOLOGY, operators={"x": then}), replace(TOPOLOGY, operators={"x": now})
    fit = fit_topology(old, new, False)
    assert fit.uncompared == (("x",) if "made_of" not in then else ())


def test_a_start_says_which_state_it_could_not_compare():
    old, new = (replace(TOPOLOGY, operators={"x": o}) for o in (UNMARKED, MADE))
    restored = decide_start(facts(completions=(completion(3, topology=old),), topology=new))
    gone_on = decide_start(facts(location=HERE, generations=(generation(1, topology=old),), topology=new))
    assert restored.uncompared == gone_on.uncompared == ("x",)


def derived(**uids):
    """A topology of operators whose uids were derived: uid -> the sources that reach it."""
    named = {uid.replace("_", "-"): {**X, "derived": sources} for uid, sources in uids.items()}
    return replace(TOPOLOGY, operators=named)


def given(topology, *uids):
    """The same, with these uids given."""
    plain = {
        uid: {k: v for k, v in o.items() if k != "derived"} for uid, o in topology.operators.items() if uid in uids
    }
    return replace(topology, operators={**topology.operators, **plain, **{u: X for u in uids if u not in plain}})


ONE = derived(count_0=["a"])
MOVED = [
    (derived(count_0=["a"], count_1=["a"]), ("'count-0' behind a", "'count-1' behind a")),
    (derived(distinct_0=["a"], count_1=["a"]), ("'count-1'", "'distinct-0'")),
    (derived(count_0=["a", "b"]), ("'count-0' behind a and b",)),
    (given(derived(count_1=["a"]), "first"), ("'count-1'",)),
]


@pytest.mark.parametrize(("new", "texts"), MOVED)
def test_derived_uids_that_moved_are_refused_at_every_entrance(new, texts):
    texts = ("expected 'count-0' behind a,", *texts, "uid('count-0')", "ckpt.moved('count-0', ...)")
    for allowed in (False, True):
        assert refused(fit_topology(ONE, new, allowed), *texts).topology
    here = generation(1, topology=ONE)
    assert refused(decide_start(facts(location=HERE, generations=(here,), topology=new)), *texts).topology
    back = fit_topology(derived(count_0=["a"], count_1=["a"]), ONE, True)
    assert refused(back, "'count-1'").topology, "which of the two is left is not known"


def test_an_operator_gets_the_state_of_its_derived_uid_when_that_is_given():
    inserted = given(derived(distinct_0=["a"], count_0=["a"]), "count-0")
    assert fit_topology(ONE, inserted, False).fresh_uids == ("distinct-0",)
    here = facts(location=HERE, generations=(generation(1, topology=ONE),), topology=given(ONE, "count-0"))
    assert isinstance(decide_start(here), GoOn)
    assert isinstance(decide_start(replace(here, topology=ONE)), GoOn)


def test_state_of_a_derived_uid_that_nobody_takes_is_dropped_only_when_allowed():
    new = replace(TOPOLOGY, operators={"totals": X})
    told = "holds state of ['count-0']", "derived from", "uid('count-0')", "NonRestored"
    refused(fit_topology(ONE, new, False), *told)
    assert fit_topology(ONE, new, True).dropped_uids == ("count-0",)


def test_a_changed_number_of_key_groups_is_refused():
    refused(fit_topology(TOPOLOGY, replace(TOPOLOGY, key_groups=8), True), "expected 4", "found 8")


def test_a_restore_checks_the_topology_of_the_checkpoint_it_takes():
    old = completion(3, topology=replace(TOPOLOGY, operators={"x": X, "y": X}))
    refused(decide_start(facts(completions=(old,))), "['y']")
    decision = decide_start(facts(completions=(old,), allow_non_restored=True))
    assert decision.dropped_uids == ("y",)


def test_tables_of_a_savepoint_are_kept():
    record = replace(completion(6), tables={"x": TableRef(3, "m")})
    assert as_savepoint(record).tables == record.tables


# --- a start that ran no batch ---------------------------------------------------------------------------------


def with_columns(*columns):
    types = dict.fromkeys(columns, "int64")
    x = {"state": ", ".join(columns), "keys": "k long", "made_of": {c: f"{c}()" for c in columns}, "types": types}
    return replace(TOPOLOGY, operators={"x": x})


@pytest.mark.parametrize("batch_of_2", [None, BatchRecord(1, 5, 2)])
def test_what_a_start_left_out_that_ran_no_batch_goes_on(batch_of_2):
    """Query 2 came without ``total`` and failed; query 3 is query 1 again."""
    one, two = with_columns("n", "total"), with_columns("n")
    batches = (BatchRecord(1, 4, 1), *([batch_of_2] if batch_of_2 else []))
    here = (generation(1, topology=one), generation(2, 1, topology=two))
    decision = decide_start(facts(location=HERE, topology=one, generations=here, batches=batches))
    assert isinstance(decision, GoOn)
    assert decision.was == (two if batch_of_2 else one)


def test_what_completed_a_checkpoint_has_run_though_its_batches_are_dropped():
    one, two = with_columns("n", "total"), with_columns("n")
    here = (generation(1, topology=one), generation(2, 1, topology=two))
    done = (completion(3, topology=one), replace(completion(4, topology=two), generation=2))
    decision = decide_start(
        facts(location=HERE, topology=one, generations=here, batches=(), completions=done, committed=frozenset({3, 4}))
    )
    assert isinstance(decision, GoOn)
    assert decision.was == two
