"""Which life a starting generation belongs to, and so under which identity it commits."""

from __future__ import annotations

from spark_ckpt.protocol.life import UNMARKED, identity, life_of, life_to_live
from spark_ckpt.protocol.records import REFUSED, UNDECIDED, CompletionRecord, GenerationRecord, Topology

TOPOLOGY = Topology(4, 4, ("s",), {}, ("out",))


def generation(number: int, life: str, origin: int = 1) -> GenerationRecord:
    return GenerationRecord(number, origin, "spark", None, 0, TOPOLOGY, life)


def completion(life: str, origin: int = 1) -> CompletionRecord:
    return CompletionRecord(
        5, "checkpoint", 1, origin, 3, 4, {}, {}, (), TOPOLOGY, 0, 0, triggered_by=1, life=life
    )  # fmt: skip


def test_an_empty_folder_begins_a_life():
    assert life_to_live((), (), False, "drawn") == "drawn"


def test_a_job_keeps_its_life():
    assert life_to_live((generation(1, "first"), generation(2, "first")), (), True, "drawn") == "first"
    assert life_to_live((generation(1, "first"),), (), False, "drawn") == "first", "stopped before its first batch"


def test_a_job_of_an_earlier_version_stays_known_by_its_name():
    old = generation(3, UNMARKED)
    assert life_to_live((old,), (completion(UNMARKED),), True, "drawn") == UNMARKED
    assert identity("orders", UNMARKED) == "orders"


def test_a_job_whose_checkpoints_an_earlier_version_deleted_begins_a_life():
    """Nothing of it is left but its starts: its ids begin at 1 again, which sinks know under its bare name."""
    assert life_to_live((generation(3, UNMARKED),), (), False, "drawn") == "drawn"


def test_a_decided_start_says_more_than_a_claim():
    claim = generation(1, "claimed", UNDECIDED)
    assert life_of([claim], ()) == "claimed"
    assert life_of([claim, generation(2, "decided"), generation(3, "refused", REFUSED)], ()) == "decided"


def test_without_starts_the_checkpoints_tell():
    assert life_of((), [completion("first")]) == "first"
    assert life_of((), [completion("another job's", origin=0)]) is None, "an imported savepoint"


def test_records_of_an_earlier_version_are_read():
    for record in (generation(1, UNMARKED), completion(UNMARKED)):
        body = record.to_json()
        del body["life"]
        assert type(record).from_json(body) == record
